"""Pipelines on Spark, declared: `import moldau.pipelines as mp`. See docs/how-to/pipelines.md."""

from moldau.core.pipelines.graph import Pipeline, PipelineError
from moldau.pipelines.declare.api import (
    example,
    files,
    flow,
    http,
    pipeline,
    postgres,
    sql,
    table,
    topic,
)
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
