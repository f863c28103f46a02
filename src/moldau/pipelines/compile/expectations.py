"""Expectations of sources and steps: rows that do not meet them get an error, and `on_error` says
what happens to them, as to every bad row.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as sql

from moldau.core.pipelines.graph import Expectation, Flow, OnError
from moldau.core.pipelines.query_progress import EXPECTED
from moldau.core.spark.errors import suggestion
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.spark.runtime.spark_errors import short_text

STEP_ERROR = "_error"
_REST = "__moldau_rest"


def with_errors(rows: Any, flow: Flow) -> Any:
    """The rows of a flow, with STEP_ERROR set where an expectation fails, unless the step has set
    an error. Raises PipelineError.
    """
    if not flow.expect:
        return rows
    check_conditions(rows, flow.expect)
    error = first_failed(flow.expect)
    if STEP_ERROR in rows.columns:
        error = sql.coalesce(sql.col(STEP_ERROR), error)
    return rows.withColumn(STEP_ERROR, error)


def passing_rows(rows: Any, flow: Flow | None) -> Any:
    """The rows of a dataset that other flows see: those that meet the expectations of its flow, or
    all rows if it is a source, for which `flow` is None.
    """
    return (
        rows if flow is None or not flow.expect else without_bad_rows(rows, flow).drop(STEP_ERROR)
    )


def without_bad_rows(rows: Any, flow: Flow) -> Any:
    """The rows that the step does not mark as bad; with on_error fail, a bad row fails the query
    instead. Raises PipelineError.
    """
    if flow.on_error is None:
        return rows
    require_columns(rows, (STEP_ERROR,), flow, "on_error")
    if flow.on_error is not OnError.FAIL:
        return rows.where(sql.col(STEP_ERROR).isNull())
    complaint = sql.concat(sql.lit(f"step {flow.name}: "), sql.col(STEP_ERROR))
    checked = sql.when(sql.col(STEP_ERROR).isNotNull(), sql.raise_error(complaint))
    return rows.where(checked.cast("boolean").isNull())


def require_columns(rows: Any, names: tuple[str, ...], flow: Flow, what: str) -> None:
    for name in names:
        if name not in rows.columns:
            hint = suggestion(name, rows.columns)
            raise pipeline_error(
                flow.spot,
                f"'{flow.name}': {what} needs a column '{name}'{hint}; choose from "
                f"{', '.join(rows.columns)}",
            )


def with_expectations(
    prepared: Any, row: Any, expect: Sequence[Expectation], error: str, *, is_topic: bool
) -> tuple[Any, Any]:
    """Records of a source with `error` where an expectation fails, and a column for each
    expectation that says whether it failed; and the column with the row. Raises PipelineError.
    """
    row_name = "__moldau_expected"
    flat = prepared.select(sql.struct("*").alias(_REST), row.alias(row_name)).select(
        _REST, f"{row_name}.*"
    )
    # Without our columns, so that Spark's suggestions for a misspelt name are the user's columns.
    check_conditions(flat.drop(_REST), expect)
    names = [name for name in flat.columns if name != _REST]
    is_checked = sql.col(f"{_REST}.{error}").isNull()
    if is_topic:
        # A tombstone has no columns.
        is_checked &= sql.col(f"{_REST}.value").isNotNull()
    kept = [sql.col(f"{_REST}.{name}") for name in prepared.columns if name != error]
    made = flat.select(
        *kept,
        sql.struct(*[sql.col(f"`{name}`") for name in names]).alias(row_name),
        sql.coalesce(sql.col(f"{_REST}.{error}"), sql.when(is_checked, first_failed(expect))).alias(
            error
        ),
        *[
            (is_checked & _fails(expectation)).alias(f"{EXPECTED}{expectation.name}")
            for expectation in expect
        ],
    )
    return made, sql.col(row_name)


def check_conditions(rows: Any, expect: Sequence[Expectation]) -> None:
    """Raises PipelineError."""
    for expectation in expect:
        try:
            kind = rows.select(sql.expr(expectation.condition)).schema[0].dataType.simpleString()
        except Exception as error:  # noqa: BLE001 - Spark raises all sorts
            raise pipeline_error(
                expectation.spot, f"'{expectation.name}': {short_text(error)}"
            ) from None
        if kind != "boolean":
            raise pipeline_error(
                expectation.spot,
                f"'{expectation.name}' is not a condition: {expectation.condition} gives {kind}",
            )


def first_failed(expect: Sequence[Expectation]) -> Any:
    """The first expectation that a row fails, as text, or null."""
    return sql.coalesce(
        *[
            sql.when(
                _fails(expectation),
                sql.lit(f"expectation {expectation.name} fails: {expectation.condition}"),
            )
            for expectation in expect
        ]
    )


def failures(expect: Sequence[Expectation]) -> list[Any]:
    """For each expectation, a count of the rows that fail it."""
    return [
        sql.count_if(_fails(expectation)).alias(f"{EXPECTED}{expectation.name}")
        for expectation in expect
    ]


def _fails(expectation: Expectation) -> Any:
    return ~sql.coalesce(sql.expr(expectation.condition), sql.lit(False))
