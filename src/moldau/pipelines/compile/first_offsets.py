"""Where the queries of a pipeline start to read: looked up once and recorded, so that a second
start uses the same offsets.
"""

import json

from moldau.connectors.postgres.source import first_position, options_of, table_read_of
from moldau.core.connectors.postgres_sql import write_position
from moldau.core.pipelines.graph import Pipeline, Postgres, Source, Topic
from moldau.core.spark.offset_json import Offsets, nested, parse_numbers
from moldau.core.spark.options import SourceOptions, source_options
from moldau.pipelines.compile.source_options import group_of, topic_options
from moldau.spark.runtime.connection import connection_to
from moldau.spark.source.offset_resolver import Terms, find_partitions, resolve


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
