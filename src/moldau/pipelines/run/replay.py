"""Runs a pipeline's flows over a range of time as one batch, into targets with other names."""

from dataclasses import replace
from typing import Any

from moldau.connectors.postgres.target import PostgresTarget
from moldau.core.pipelines.graph import Flow, Pipeline, Postgres, Table, TableKind, Topic
from moldau.pipelines.compile.frames import frames_of
from moldau.pipelines.compile.lookups import Lookups
from moldau.pipelines.compile.outputs import outputs_of
from moldau.pipelines.compile.queries import source_rows, target_name
from moldau.pipelines.compile.source_options import kafka_options
from moldau.pipelines.compile.sources import batch_of
from moldau.pipelines.compile.topics import ensure_topics
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.spark_errors import in_one_line


def renamed(pipeline: Pipeline, suffix: str) -> Pipeline:
    """The pipeline with a suffix appended to the names of its targets. Raises MoldauError."""
    if not suffix:
        raise MoldauError("--into is empty: the replay would write to the pipeline's own targets")
    flows = {}
    for name, flow in pipeline.flows.items():
        into = flow.into
        if isinstance(into, Topic):
            into = replace(into, name=into.name + suffix)
        elif isinstance(into, Table):
            into = replace(into, path=into.path.rstrip("/") + suffix)
        elif isinstance(into, Postgres):
            # A dot would separate a schema from its table.
            into = replace(into, name=into.name + suffix.replace(".", "_"))
        flows[name] = replace(flow, into=into)
    return replace(pipeline, flows=flows)


def replay(
    session: Any, pipeline: Pipeline, from_ms: int | None, to_ms: int | None
) -> dict[str, int]:
    """Runs all flows. Returns the number of written rows by target. Delivery is at least once:
    after a failure, rows that were written stay. Raises MoldauError.
    """
    ensure_topics(pipeline)
    with in_one_line(pipeline.name):
        return _replay(session.newSession(), pipeline, from_ms, to_ms)


def _replay(own: Any, pipeline: Pipeline, from_ms: int | None, to_ms: int | None) -> dict[str, int]:
    options = {}
    if from_ms is not None:
        options["startingTimestamp"] = str(from_ms)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if to_ms is not None:
        options["endingTimestamp"] = str(to_ms)
    sources = {
        name: source_rows(pipeline, name, batch_of(own, pipeline, name, options=options))
        for name in pipeline.sources
    }
    frames = frames_of(own, pipeline, sources | Lookups(own, pipeline).frames())
    written: dict[str, int] = {}
    for flow in pipeline.flows.values():
        if flow.into is None:
            continue
        outputs = outputs_of(pipeline, flow, frames[flow.name])
        topics = outputs.all_topics
        if topics is not None:
            count = _counted(topics, lambda rows: _to_topics(rows, pipeline))
            if isinstance(flow.into, Topic):
                written[flow.into.name] = count
        for _, rows in outputs.tables:
            written[target_name(flow)] = _counted(
                rows, lambda rows, flow=flow: _to_table(rows, flow)
            )
    return written


def _counted(rows: Any, write: Any) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sql

    counted = Observation()
    write(rows.observe(counted, sql.count(sql.lit(1)).alias("rows")))
    return int(counted.get["rows"])


def _to_topics(rows: Any, pipeline: Pipeline) -> None:
    rows.write.format("moldau").options(**kafka_options(pipeline)).mode("append").save()


def _to_table(rows: Any, flow: Flow) -> None:
    into = flow.into
    if isinstance(into, Postgres):
        PostgresTarget(into, flow.mode, f"replay.{flow.name}", "").put(rows, None)
        return
    assert isinstance(into, Table)
    if into.kind is not TableKind.PARQUET:
        raise MoldauError(
            f"table {into.path}: so far only parquet tables can be targets of a replay"
        )
    writer = rows.write.mode("append")
    if into.partition_by:
        writer = writer.partitionBy(*into.partition_by)
    writer.parquet(into.path)
