"""Sources as Spark frames: topics, HTTP and PostgreSQL through our data sources, folders through
Spark's own.
"""

import itertools
import json
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql.datasource import DataSource

from moldau.config.addresses import DEFAULT_BOOTSTRAP
from moldau.connectors.http.source import HttpSource
from moldau.connectors.postgres.source import (
    PostgresSource,
    first_position,
    options_of,
    table_read_of,
    with_bad_rows,
)
from moldau.core.connectors.postgres_sql import write_position
from moldau.core.pipelines.graph import Files, Http, OnError, Pipeline, Postgres, Source, Topic
from moldau.core.spark.offset_json import Offsets, nested, parse_numbers
from moldau.core.spark.options import SourceOptions, source_options
from moldau.pipelines.compile.values import CORRUPT, needed_columns, with_corrupt
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.spark.runtime.connection import connection_to
from moldau.spark.runtime.spark_errors import short_text
from moldau.spark.source.data_source import DefaultSource
from moldau.spark.source.offset_resolver import Terms, find_partitions, resolve

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


def brokers_of(pipeline: Pipeline) -> str:
    return dict(pipeline.settings).get("bootstrap.servers", DEFAULT_BOOTSTRAP)


def kafka_options(pipeline: Pipeline) -> dict[str, str]:
    settings = {**dict(pipeline.settings), "bootstrap.servers": brokers_of(pipeline)}
    return {f"kafka.{name}": value for name, value in settings.items()}


def group_of(pipeline: Pipeline, query: str) -> str:
    """The consumer group that shows a query's progress."""
    return f"moldau.pipeline.{pipeline.name}.{query}"


def topic_options(
    pipeline: Pipeline,
    source: Topic,
    group: str,
    start: str | None = None,
    *,
    publishes: bool = True,
) -> dict[str, str]:
    """Options of the data source `moldau`; the arguments are those of StreamTerms."""
    options = kafka_options(pipeline) | {"kafka.group.id": group, "subscribe": source.name}
    if start is not None:
        options["startingOffsets"] = start
    elif source.start.isdecimal():
        options["startingTimestamp"] = source.start
        options["startingOffsetsByTimestampStrategy"] = "latest"
    else:
        options["startingOffsets"] = source.start
    if source.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    if not publishes:
        options["publishProgress"] = "false"
    if not source.fail_on_data_loss:
        options["failOnDataLoss"] = "false"
    if "headers" in needed_columns(source):
        options["includeHeaders"] = "true"
    return options


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


def http_options(source: Http, keep: str = "") -> dict[str, str]:
    """Options of the HTTP source. Raises PipelineError if an environment variable is not set."""

    def resolved(pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
        return {name: _with_environment(value, source) for name, value in pairs}

    options = {
        "url": _with_environment(source.url, source),
        "everyMs": str(source.every_ms),
        "timeoutMs": str(source.timeout_ms),
        "attempts": str(source.attempts),
        "headers": json.dumps(resolved(source.headers)),
        "params": json.dumps(resolved(source.params)),
        "lines": str(source.is_lines).lower(),
        "skipFirstLine": dict(source.format.options).get("header", "false"),
        "keep": keep,
    }
    if source.path is not None:
        options["path"] = source.path
    if source.cursor is not None:
        cursor = source.cursor
        sides = {"Param": cursor.param, "Last": cursor.last, "Next": cursor.next}
        sides["Start"] = cursor.start
        options |= {f"cursor{side}": name for side, name in sides.items() if name is not None}
    return options


def _with_environment(text: str, source: Http) -> str:
    def value_of(match: re.Match[str]) -> str:
        try:
            return os.environ[match[1]]
        except KeyError:
            raise pipeline_error(
                source.spot, f"environment variable {match[1]} is not set"
            ) from None

    return re.sub(r"\$\{(\w+)\}", value_of, text)


def _table(reader: Any, source: Postgres, start: str | None) -> Any:
    if source.schema is not None:
        is_reported = source.on_error is not OnError.FAIL
        reader = reader.schema(with_bad_rows(source.schema) if is_reported else source.schema)
    return reader.options(**options_of(source, start)).load()


def _schema(source: Topic) -> str:
    return ", ".join(f"{name} {_KINDS[name]}" for name in needed_columns(source))


def starts_at_group(source: Source) -> bool:
    """Whether each query starts at the offsets of its own group."""
    return isinstance(source, Topic) and source.start == "group"


def first_offsets(pipeline: Pipeline, name: str, group: str) -> str | None:
    """The start of a query as offsets, so that a second start uses the same ones."""
    source = pipeline.sources[name]
    if isinstance(source, Postgres):
        return json.dumps(write_position(first_position(table_read_of(options_of(source)), 0.0)))
    if not isinstance(source, Topic):
        return None
    options = source_options(topic_options(pipeline, source, group), is_stream=True)
    return json.dumps(nested(_resolved_offsets(options, group, {})))


def with_new_partitions(pipeline: Pipeline, name: str, start: str) -> str:
    """The recorded start, with partitions that were added to the topic since then, from their
    beginning, and without those that no longer exist.
    """
    source = pipeline.sources[name]
    if not isinstance(source, Topic):
        return start
    group = group_of(pipeline, name)
    options = source_options(topic_options(pipeline, source, group, "earliest"), is_stream=True)
    return json.dumps(
        nested(_resolved_offsets(options, group, parse_numbers(start, "startingOffsets")))
    )


def _resolved_offsets(options: SourceOptions, group: str, known: Offsets) -> Offsets:
    """The offsets of all existing partitions; those in `known` are not requested."""
    connection = connection_to(options.settings)

    async def found() -> Offsets:
        there = await find_partitions(connection.cluster, options.strategy, is_strict=True)
        terms = Terms(connection.fetch.isolation, group, is_lenient_by_time=True)
        missing = tuple(partition for partition in there.partitions if partition not in known)
        new = await resolve(connection.cluster, options.starting, missing, terms) if missing else {}
        return new | {
            partition: known[partition] for partition in there.partitions if partition in known
        }

    return connection.run(found())
