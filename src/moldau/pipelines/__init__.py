"""Pipelines on Spark, declared: `import moldau.pipelines as mp`. See docs/pipelines.md."""

from moldau.core.pipelines.graph import PipelineError
from moldau.pipelines.declare import (
    avro,
    bytes,  # noqa: A004 - used as mp.bytes()
    csv,
    example,
    files,
    flow,
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

__all__ = [
    "PipelineError",
    "avro",
    "bytes",
    "csv",
    "example",
    "files",
    "flow",
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
