"""Pipelines on Spark, declared: `import moldau.pipelines as mp`. See docs/pipelines.md."""

from moldau.core.pipelines.graph import Pipeline, PipelineError
from moldau.pipelines.declare import (
    avro,
    bytes,  # noqa: A004 - used as mp.bytes()
    csv,
    example,
    files,
    flow,
    http,
    json,
    json_schema,
    pipeline,
    protobuf,
    sql,
    table,
    text,
    topic,
)
from moldau.pipelines.loading import load
from moldau.protocol.errors import MoldauError

__all__ = [
    "MoldauError",
    "Pipeline",
    "PipelineError",
    "avro",
    "bytes",
    "csv",
    "example",
    "files",
    "flow",
    "http",
    "json",
    "json_schema",
    "load",
    "pipeline",
    "protobuf",
    "sql",
    "table",
    "text",
    "topic",
]
