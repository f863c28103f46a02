"""Sources as Spark frames: topics, HTTP and PostgreSQL through our data sources, folders through
Spark's own.
"""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSource

from moldau.connectors.http.source import HttpSource
from moldau.connectors.postgres.source import (
    PostgresSource,
    options_of,
    with_bad_rows,
)
from moldau.core.pipelines.graph import Files, Http, OnError, Pipeline, Postgres, Topic
from moldau.pipelines.compile.source_options import http_options, topic_options
from moldau.pipelines.compile.values import CORRUPT, needed_columns, with_corrupt
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.spark.runtime.spark_errors import short_text
from moldau.spark.source.data_source import DefaultSource

_FORMATS_WITH_BAD_ROWS = ("json", "csv")
_DATA_SOURCES = {Topic: DefaultSource, Http: HttpSource, Postgres: PostgresSource}
_STREAM_NUMBERS = itertools.count()
_KINDS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}


class StreamTerms(NamedTuple):
    """Options with which one query reads a source."""

    group: str
    start: str | None = None
    """Offsets as JSON, which override the source's start."""
    keep: str = ""
    """A folder for answers of an HTTP address."""
    publishes: bool = True
    """Commit the position to the group; False if the sink does that."""


def stream_of(session: Any, pipeline: Pipeline, name: str, terms: StreamTerms) -> Any:
    """The records or rows of a source, as a stream."""
    source = pipeline.sources[name]
    reader = session.readStream
    if isinstance(source, Files):
        if source.max_files_per_trigger is not None:
            reader = reader.option("maxFilesPerTrigger", source.max_files_per_trigger)
        return _files(reader, name, source)
    reader = reader.format(_register_for_one_stream(session, _DATA_SOURCES[type(source)]))
    if isinstance(source, Http):
        return reader.options(**http_options(source, terms.keep)).load()
    if isinstance(source, Postgres):
        return _table(reader, source, terms.start)
    options = topic_options(pipeline, source, terms.group, terms.start, publishes=terms.publishes)
    return reader.schema(_schema(source)).options(**options).load()


def _register_for_one_stream(session: Any, kind: type[DataSource]) -> str:
    """Registers the data source under a new name, and returns the name. A stream that starts writes
    to the environment variables of its data source, which all streams of that name share without a
    lock: two that start together can fail with "Task not serializable".
    """
    name = f"{kind.name()}_{next(_STREAM_NUMBERS)}"
    session.dataSource.register(type(kind.__name__, (kind,), {"name": classmethod(lambda _: name)}))
    return name


def batch_of(session: Any, pipeline: Pipeline, name: str, *, options: Mapping[str, str]) -> Any:
    """The existing records of a source, as a batch; `options` limit the range of a topic."""
    source = pipeline.sources[name]
    if isinstance(source, Files):
        return _files(session.read, name, source)
    if isinstance(source, Http):
        session.dataSource.register(HttpSource)
        return session.read.format(HttpSource.name()).options(**http_options(source)).load()
    if isinstance(source, Postgres):
        return _table(session.read.format(PostgresSource.name()), source, None)
    given = topic_options(pipeline, source, "", "earliest") | dict(options)
    for unused in ("kafka.group.id", "maxOffsetsPerTrigger"):
        given.pop(unused, None)
    return session.read.format("moldau").schema(_schema(source)).options(**given).load()


def _files(reader: Any, name: str, source: Files) -> Any:
    """Raises PipelineError."""
    if source.format in _FORMATS_WITH_BAD_ROWS:
        reader = reader.schema(with_corrupt(source.schema)).option("mode", "PERMISSIVE")
        reader = reader.option("columnNameOfCorruptRecord", CORRUPT)
    elif source.schema is not None:
        reader = reader.schema(source.schema)
    try:
        return reader.format(source.format).options(**dict(source.options)).load(source.path)
    except Exception as error:  # noqa: BLE001 - Spark raises all sorts
        raise pipeline_error(source.spot, f"'{name}': {short_text(error)}") from None


def _table(reader: Any, source: Postgres, start: str | None) -> Any:
    if source.schema is not None:
        is_reported = source.on_error is not OnError.FAIL
        reader = reader.schema(with_bad_rows(source.schema) if is_reported else source.schema)
    return reader.options(**options_of(source, start)).load()


def _schema(source: Topic) -> str:
    return ", ".join(f"{name} {_KINDS[name]}" for name in needed_columns(source))
