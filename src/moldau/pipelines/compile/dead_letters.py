"""Dead letters: a source's bad records, unchanged, and the rows that a step marks as bad, as JSON.
Headers `__dlq.*` say what is wrong and where it comes from.
"""

from typing import Any

from pyspark.sql import functions as sql

from moldau.core.pipelines.graph import Flow, Pipeline
from moldau.pipelines.compile.expectations import STEP_ERROR
from moldau.pipelines.compile.values import (
    ERROR,
    HEADER_ARRAY,
    SPECIAL_COLUMNS,
    origin_columns,
    struct_of,
)
from moldau.spark.runtime.exact_times import EXACT_TIMES


def source_dead_letters(prepared: Any, pipeline: Pipeline, name: str) -> Any:
    """Records that the source could not read or that fail its expectations, in OUT_COLUMNS."""
    source = pipeline.sources[name]
    reasons = {
        **{name: sql.col(name).cast("string") for name in origin_columns(source)},
        "error": sql.col(ERROR),
        "pipeline": sql.lit(pipeline.name),
        "step": sql.lit(name),
    }
    own = sql.coalesce(sql.col("headers"), sql.array().cast(HEADER_ARRAY))
    return prepared.where(sql.col(ERROR).isNotNull()).select(
        sql.lit(source.dead_letter).alias("topic"),
        sql.col("key").cast("binary").alias("key"),
        sql.col("value").cast("binary").alias("value"),
        sql.concat(own, _headers(reasons)).alias("headers"),
    )


def step_dead_letters(rows: Any, flow: Flow, topic: str | None, pipeline: Pipeline) -> Any:
    """Rows that a step marks as bad, in OUT_COLUMNS. After a step the record is unknown, so the
    value is the row as JSON.
    """
    names = [name for name in rows.columns if name not in SPECIAL_COLUMNS]
    reasons = {
        "error": sql.col(STEP_ERROR),
        "pipeline": sql.lit(pipeline.name),
        "step": sql.lit(flow.name),
    }
    return rows.where(sql.col(STEP_ERROR).isNotNull()).select(
        sql.lit(topic).alias("topic"),
        sql.lit(None).cast("binary").alias("key"),
        sql.to_json(struct_of(names), EXACT_TIMES).cast("binary").alias("value"),
        _headers(reasons).alias("headers"),
    )


def _headers(reasons: dict[str, Any]) -> Any:
    return sql.array(
        *[
            sql.struct(sql.lit(f"__dlq.{name}").alias("key"), value.cast("binary").alias("value"))
            for name, value in reasons.items()
        ]
    ).cast(HEADER_ARRAY)
