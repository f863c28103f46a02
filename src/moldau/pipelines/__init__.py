"""Declared pipelines on Spark: `import moldau.pipelines as mp`. See docs/how-to/pipelines.md.

`declare` turns files into declarations, `compile` turns declarations into Spark frames, `run` runs
them. Each may use those before it.
"""

from moldau.core.pipelines.graph import Pipeline, PipelineError
from moldau.pipelines.declare.flows import example, flow, pipeline, sql
from moldau.pipelines.declare.formats import (
    avro,
    bytes,  # noqa: A004 - used as mp.bytes()
    csv,
    debezium,
    json,
    json_schema,
    protobuf,
    text,
)
from moldau.pipelines.declare.loading import load
from moldau.pipelines.declare.sources import files, http, topic
from moldau.pipelines.declare.tables import postgres, table
from moldau.protocol.errors import MoldauError

__all__ = [
    "MoldauError",
    "Pipeline",
    "PipelineError",
    "avro",
    "bytes",
    "csv",
    "debezium",
    "example",
    "files",
    "flow",
    "http",
    "json",
    "json_schema",
    "load",
    "pipeline",
    "postgres",
    "protobuf",
    "sql",
    "table",
    "text",
    "topic",
]
