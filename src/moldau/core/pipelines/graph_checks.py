"""Structural validation of a pipeline, without Spark."""

import re
from collections.abc import Iterator

from moldau.config.log import LogConfig
from moldau.core.pipelines.graph import (
    Delivery,
    Files,
    Flow,
    FormatKind,
    Mode,
    OnError,
    Pipeline,
    Postgres,
    Problem,
    Table,
    TableKind,
    Topic,
)
from moldau.core.spark.errors import suggestion

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
# Formats that need a schema to decode bytes.
_NEEDS_SCHEMA = (
    FormatKind.JSON,
    FormatKind.CSV,
    FormatKind.AVRO,
    FormatKind.PROTOBUF,
    FormatKind.JSON_SCHEMA,
    FormatKind.DEBEZIUM,
)


def problems_of(pipeline: Pipeline) -> tuple[Problem, ...]:
    """All problems, in the order of the file."""
    problems = [
        *_name_problems(pipeline),
        *_lookup_problems(pipeline),
        *_input_problems(pipeline),
        *_source_problems(pipeline),
        *_target_problems(pipeline),
        *_conflict_problems(pipeline),
        *_example_problems(pipeline),
        *_expectation_problems(pipeline),
    ]
    problems += _cycle_problems(pipeline)
    return tuple(
        sorted(problems, key=lambda each: (each.spot.file, each.spot.line, each.spot.column))
    )


def order_of(pipeline: Pipeline) -> tuple[Flow, ...]:
    """Topological order: each flow after those that it reads. The graph must be acyclic."""
    done: dict[str, Flow] = {}

    def visit(name: str) -> None:
        flow = pipeline.flows.get(name)
        if flow is not None and name not in done:
            for needed in flow.inputs:
                visit(needed)
            done[name] = flow

    for name in pipeline.flows:
        visit(name)
    return tuple(done.values())


def sources_of(pipeline: Pipeline, flow: Flow) -> tuple[str, ...]:
    """The sources of a flow, also those that reach it through other flows."""
    return tuple(name for name in _origins(pipeline, flow) if name in pipeline.sources)


def lookups_of(pipeline: Pipeline, flow: Flow) -> tuple[str, ...]:
    """The lookups of a flow, also those that reach it through other flows."""
    return tuple(name for name in _origins(pipeline, flow) if name in pipeline.lookups)


def _origins(pipeline: Pipeline, flow: Flow) -> dict[str, None]:
    origins: dict[str, None] = {}
    for name in flow.inputs:
        if name in pipeline.flows:
            origins |= _origins(pipeline, pipeline.flows[name])
        else:
            origins[name] = None
    return origins


def _name_problems(pipeline: Pipeline) -> Iterator[Problem]:
    if not _PIPELINE_NAME.fullmatch(pipeline.name):
        yield Problem(
            pipeline.spot,
            f"'{pipeline.name}' is not a valid name; use letters, digits, dots and dashes",
        )
    for name, source in pipeline.sources.items():
        if name in pipeline.flows:
            spot = pipeline.flows[name].spot
            yield Problem(spot, f"'{name}' is already the name of a source")
        if not _NAME.fullmatch(name):
            yield Problem(
                source.spot, f"'{name}' is not a valid name; use letters, digits and underscores"
            )
    for name, flow in pipeline.flows.items():
        if not _NAME.fullmatch(name):
            yield Problem(
                flow.spot, f"'{name}' is not a valid name; use letters, digits and underscores"
            )
    if not any(flow.into is not None for flow in pipeline.flows.values()):
        yield Problem(pipeline.spot, "the pipeline writes nothing: no flow has an 'into'")


def _lookup_problems(pipeline: Pipeline) -> Iterator[Problem]:
    for name, lookup in pipeline.lookups.items():
        if name in pipeline.flows or name in pipeline.sources:
            yield Problem(lookup.spot, f"'{name}' is already the name of a source or flow")
        if not _NAME.fullmatch(name):
            yield Problem(
                lookup.spot, f"'{name}' is not a valid name; use letters, digits and underscores"
            )
        if isinstance(lookup, Postgres) and not lookup.key:
            yield Problem(lookup.spot, f"'{name}' needs a key to be looked up: key='id'")
        if isinstance(lookup, Postgres) and lookup.by is not None:
            yield Problem(
                lookup.spot,
                f"'{name}' is read by '{lookup.by}' as a source, or with refresh as a lookup; "
                "not both",
            )


def _input_problems(pipeline: Pipeline) -> Iterator[Problem]:
    known = (*pipeline.sources, *pipeline.lookups, *pipeline.flows)
    for flow in pipeline.flows.values():
        if not flow.inputs:
            names = ", ".join((*known, *pipeline.unread))
            yield Problem(flow.spot, f"'{flow.name}' reads nothing; choose from {names}")
        elif all(name in pipeline.lookups for name in flow.inputs):
            yield Problem(flow.spot, f"'{flow.name}' only reads lookups; rows come from sources")
        for name in flow.inputs:
            if name not in known:
                hint = suggestion(name, (*known, *pipeline.unread))
                yield Problem(
                    flow.spot, f"'{flow.name}' reads '{name}', which does not exist{hint}"
                )
            elif name in pipeline.flows and pipeline.flows[name].mode is not Mode.APPEND:
                yield Problem(
                    flow.spot,
                    f"'{flow.name}' reads '{name}', whose mode is "
                    f"{pipeline.flows[name].mode}; read the topic that it writes",
                )


def _source_problems(pipeline: Pipeline) -> Iterator[Problem]:
    for name, source in pipeline.sources.items():
        if isinstance(source, Files):
            if source.schema is None and source.format != "text":
                yield Problem(
                    source.spot, f"'{name}' has no schema; write its columns: 'id BIGINT, …'"
                )
        elif isinstance(source, Postgres):
            if source.by is None:
                yield Problem(
                    source.spot,
                    f"'{name}' needs the column by which new rows are found: by='id'; or, for a "
                    "lookup, how often it is read again: refresh='10m'",
                )
        elif source.format.kind in _NEEDS_SCHEMA and source.format.schema is None:
            yield Problem(
                source.spot,
                f"'{name}' has no schema; write the columns of its "
                f"{source.format.kind}: 'id BIGINT, user STRING'",
            )
        if source.on_error is OnError.DEAD_LETTER and source.dead_letter is None:
            yield Problem(
                source.spot, f"'{name}': on_error is dead_letter, but there is no dead_letter topic"
            )
        if isinstance(source, Topic) and source.dead_letter == source.name:
            yield Problem(source.spot, f"'{name}': it would read its own dead letters")


def _target_problems(pipeline: Pipeline) -> Iterator[Problem]:
    for flow in pipeline.flows.values():
        into = flow.into
        is_sent = flow.on_error is OnError.DEAD_LETTER and (into is not None or flow.expect)
        if is_sent and dead_letter_of(pipeline, flow) is None:
            yield Problem(
                flow.spot,
                f"'{flow.name}': on_error is dead_letter, but no source that it reads has a "
                "dead_letter topic",
            )
        if into is None:
            if flow.mode is not Mode.APPEND:
                yield Problem(flow.spot, f"'{flow.name}' has a mode, but no 'into'")
        elif isinstance(into, Topic):
            yield from _topic_target_problems(flow, into)
        elif isinstance(into, Postgres):
            yield from _postgres_target_problems(flow, into)
        else:
            yield from _table_target_problems(flow, into)


def _postgres_target_problems(flow: Flow, into: Postgres) -> Iterator[Problem]:
    if flow.mode is Mode.UPSERT and not into.key:
        yield Problem(
            flow.spot, f"'{flow.name}': mode upsert needs a key, so that a later row replaces it"
        )


def _topic_target_problems(flow: Flow, into: Topic) -> Iterator[Problem]:
    if into.format.kind is FormatKind.DEBEZIUM:
        yield Problem(flow.spot, f"'{flow.name}': debezium can only be read; write json")
    if flow.mode is Mode.UPSERT and not into.key:
        yield Problem(
            flow.spot, f"'{flow.name}': mode upsert needs a key, so that a later record replaces it"
        )
    if into.compacted and not into.key:
        yield Problem(flow.spot, f"'{flow.name}': a compacted topic needs a key")
    yield from _topic_config_problems(flow, into)


def _topic_config_problems(flow: Flow, into: Topic) -> Iterator[Problem]:
    names = [name for name, _ in into.config]
    if into.compacted and "cleanup.policy" in names:
        yield Problem(into.spot, f"'{flow.name}': either compacted or cleanup.policy, not both")
    known = LogConfig.declared
    for name in names:
        # Other vendors' brokers have settings of their own: refuse only likely typos.
        if name not in known and (hint := suggestion(name, known)):
            yield Problem(into.spot, f"'{flow.name}': there is no topic setting '{name}'{hint}")


def _table_target_problems(flow: Flow, into: Table) -> Iterator[Problem]:
    if flow.mode is not Mode.APPEND:
        yield Problem(
            flow.spot, f"'{flow.name}': {into.kind} can only be appended to, not {flow.mode}"
        )
    if into.catalog is not None and into.kind is not TableKind.ICEBERG:
        yield Problem(into.spot, f"'{flow.name}': only iceberg tables have a catalog")
    if into.catalog is not None and "." not in into.path:
        yield Problem(
            into.spot,
            f"'{flow.name}': a table in a catalog needs a namespace: shop.{into.path}",
        )


def dead_letter_of(pipeline: Pipeline, flow: Flow) -> str | None:
    """The topic for a flow's bad rows."""
    for name in _known_sources(pipeline, flow):
        source = pipeline.sources[name]
        if source.dead_letter is not None:
            return source.dead_letter
    return None


def _conflict_problems(pipeline: Pipeline) -> Iterator[Problem]:
    writers: dict[str, Flow] = {}
    for flow in pipeline.flows.values():
        if isinstance(flow.into, Topic):
            earlier = writers.setdefault(flow.into.name, flow)
            yield from _shared_topic_problems(earlier, flow)
        elif flow.into is not None:
            table = flow.into.path if isinstance(flow.into, Table) else flow.into.name
            earlier = writers.setdefault(f"table {table}", flow)
            if earlier is not flow:
                yield Problem(
                    flow.spot, f"'{flow.name}' and '{earlier.name}' write the same table {table}"
                )
        for name in _known_sources(pipeline, flow):
            source = pipeline.sources[name]
            if not isinstance(source, Topic) or not isinstance(flow.into, Topic):
                continue
            if source.name == flow.into.name:
                yield Problem(
                    flow.spot,
                    f"'{flow.name}' writes the topic {source.name} that it reads: it would never "
                    "end",
                )
    is_exactly_once = pipeline.delivery is Delivery.EXACTLY_ONCE
    if is_exactly_once and pipeline.flows and not pipeline.sources and not pipeline.unread:
        yield Problem(pipeline.spot, "there are no sources")


def _known_sources(pipeline: Pipeline, flow: Flow) -> tuple[str, ...]:
    """Like sources_of, for a graph that may have cycles."""
    seen: dict[str, None] = {}
    left = list(flow.inputs)
    while left:
        name = left.pop()
        if name not in seen:
            seen[name] = None
            left += pipeline.flows[name].inputs if name in pipeline.flows else ()
    return tuple(name for name in seen if name in pipeline.sources)


def _shared_topic_problems(earlier: Flow, flow: Flow) -> Iterator[Problem]:
    first, second = earlier.into, flow.into
    assert isinstance(first, Topic)
    assert isinstance(second, Topic)
    if earlier is flow:
        return
    both = f"'{flow.name}' and '{earlier.name}' both write {second.name}"
    if Mode.APPEND not in {earlier.mode, flow.mode} or earlier.mode is not flow.mode:
        yield Problem(flow.spot, f"{both}; only flows in mode append can share a topic")
    elif (first.key, first.format) != (second.key, second.format):
        yield Problem(flow.spot, f"{both} with different keys or formats")
    elif _creation_settings(first) != _creation_settings(second):
        yield Problem(flow.spot, f"{both} with different partitions, replication or config")


def _creation_settings(topic: Topic) -> tuple[object, ...]:
    return topic.compacted, topic.partitions, topic.replication, sorted(topic.config)


def _example_problems(pipeline: Pipeline) -> Iterator[Problem]:
    for example in pipeline.examples:
        for name in example.given:
            given = (*pipeline.sources, *pipeline.lookups)
            if name not in given:
                hint = suggestion(name, given)
                yield Problem(
                    example.spot,
                    f"'{example.name}' gives rows of '{name}', which is not a source{hint}",
                )
        for name in example.expect:
            if name not in pipeline.flows:
                hint = suggestion(name, pipeline.flows)
                yield Problem(
                    example.spot,
                    f"'{example.name}' expects rows of '{name}', which is not a flow{hint}",
                )


def _expectation_problems(pipeline: Pipeline) -> Iterator[Problem]:
    for each in (*pipeline.sources.values(), *pipeline.flows.values()):
        for expected in each.expect:
            if not _NAME.fullmatch(expected.name):
                yield Problem(
                    expected.spot,
                    f"'{expected.name}' is not a valid name; use letters, digits and underscores",
                )


def _cycle_problems(pipeline: Pipeline) -> list[Problem]:
    done: set[str] = set()
    path: list[str] = []
    problems: list[Problem] = []

    def visit(name: str) -> None:
        if name in done or name not in pipeline.flows:
            return
        if name in path:
            cycle = [*path[path.index(name) :], name]
            problems.append(Problem(pipeline.flows[name].spot, f"a cycle: {' <- '.join(cycle)}"))
            return
        path.append(name)
        for needed in pipeline.flows[name].inputs:
            visit(needed)
        path.pop()
        done.add(name)

    for name in pipeline.flows:
        visit(name)
    return problems
