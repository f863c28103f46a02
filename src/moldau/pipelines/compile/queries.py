"""From a pipeline to Spark's queries: all flows that only look at one record of one source share
one pass over it; a flow that remembers (groups, windows, joins of streams) is a query of its own.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moldau.core.connectors.postgres_sql import DELETED
from moldau.core.pipelines.graph import (
    Flow,
    Mode,
    OnError,
    Pipeline,
    PipelineError,
    Postgres,
    Problem,
    Table,
    Topic,
)
from moldau.core.pipelines.graph_checks import dead_letter_of, sources_of
from moldau.pipelines.compile.expectations import STEP_ERROR, need_columns, well_made
from moldau.pipelines.compile.frames import frames_of, told
from moldau.pipelines.compile.lookups import shapes_of_lookups
from moldau.pipelines.compile.values import (
    dead_letters,
    good_rows,
    read_values,
    step_letters,
    written_rows,
)
from moldau.pipelines.declare.arguments import wrong
from moldau.spark.runtime.spark_errors import short_text

OUTPUT_MODES = {Mode.APPEND: "append", Mode.UPSERT: "update", Mode.COMPLETE: "complete"}
_REMEMBERS = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState",
        "GlobalLimit",
        "TransformWithState",
        "TransformWithStateInPySpark",
    }
)
_WORDS_MAX = 1000
_SOME_TIME_MS = 1_000_000_000_000
"""Any will do, to see whether Spark can reckon with it."""
Reader = Callable[[str, str], Any]
"""(source, query) -> its records."""
Watch = Callable[[Flow, Any], Any]
"""(flow, its rows) -> the same rows, which are counted on the way."""


@dataclass
class Query:
    """One of Spark's streaming queries."""

    name: str
    sources: tuple[str, ...]
    flows: list[Flow] = field(default_factory=list)
    output_mode: str = "append"
    is_pass: bool = False
    """Its flows are made again of each batch; else its frame is what its one flow gives."""
    sends_dead_letters: bool = False

    @property
    def written(self) -> list[Flow]:
        """Those that have a target; others are only judged."""
        return [flow for flow in self.flows if flow.into is not None]

    @property
    def targets(self) -> list[str]:
        found = [target_name(flow) for flow in self.written]
        is_sent = self.sends_dead_letters or self.sends_step_letters
        return [*found, "dead letters"] if is_sent else found

    @property
    def only_judges(self) -> bool:
        """Some of its flows are counted in a pass of their own."""
        return len(self.written) < len(self.flows)

    @property
    def writes_topics(self) -> bool:
        is_sent = self.sends_dead_letters or self.sends_step_letters
        return is_sent or any(isinstance(flow.into, Topic) for flow in self.flows)

    @property
    def sends_step_letters(self) -> bool:
        return any(flow.on_error is OnError.DEAD_LETTER for flow in self.flows)


def target_name(flow: Flow) -> str:
    assert flow.into is not None
    return flow.into.path if isinstance(flow.into, Table) else flow.into.name


def compile_queries(session: Any, pipeline: Pipeline, read: Reader) -> list[Query]:
    """Analyses every plan. Raises PipelineError with all that Spark would refuse."""
    sources = {name: source_rows(pipeline, name, read(name, name)) for name in pipeline.sources}
    frames = frames_of(session, pipeline, sources | shapes_of_lookups(session, pipeline))
    passes = {name: Query(name, (name,), is_pass=True) for name in pipeline.sources}
    alone: list[Query] = []
    problems: list[Problem] = []
    for flow in pipeline.flows.values():
        if flow.into is None and not flow.only_checks_rows:
            continue
        try:
            outputs_of(pipeline, flow, frames[flow.name])
            refuse_what_streams_cannot(session, flow, frames[flow.name])
        except PipelineError as error:
            problems += error.problems
            continue
        used = sources_of(pipeline, flow)
        if len(used) == 1 and not remembers(frames[flow.name]):
            passes[used[0]].flows.append(flow)
        elif flow.into is None:
            problems += _letters_from_inside(flow)
        else:
            alone.append(Query(flow.name, used, [flow], OUTPUT_MODES[flow.mode]))
    if problems:
        raise PipelineError(*problems)
    for name, query in passes.items():
        source = pipeline.sources[name]
        query.sends_dead_letters = source.on_error is OnError.DEAD_LETTER
    return [one for one in passes.values() if one.flows or one.sends_dead_letters] + alone


def _letters_from_inside(flow: Flow) -> list[Problem]:
    """Rows that are dropped in the middle of a query that remembers are gone; letters cannot be
    sent from there.
    """
    if flow.on_error is not OnError.DEAD_LETTER:
        return []
    told = (
        f"'{flow.name}' remembers, or reads several sources: to send dead letters it needs 'into'"
    )
    return [Problem(flow.spot, told)]


def query_frame(
    session: Any, pipeline: Pipeline, query: Query, read: Reader, lookups: Mapping[str, Any]
) -> Any:
    """What the query hands to each of its batches. A flow that remembers has one plan: `lookups`
    are in it.
    """
    if query.is_pass:
        name = query.sources[0]
        return read_values(read(name, query.name), pipeline.sources[name], name)
    sources = {name: source_rows(pipeline, name, read(name, query.name)) for name in query.sources}
    return frames_of(session, pipeline, sources | dict(lookups))[query.flows[0].name]


def source_rows(pipeline: Pipeline, name: str, records: Any) -> Any:
    """The good ones, as flows see them."""
    source = pipeline.sources[name]
    try:
        return good_rows(read_values(records, source, name))
    except PipelineError:
        # It has a better place.
        raise
    except Exception as error:  # noqa: BLE001 - Spark raises all sorts
        raise wrong(source.spot, f"'{name}': {short_text(error)}") from None


def pass_outputs(
    pipeline: Pipeline,
    query: Query,
    rows: Any,
    lookups: Mapping[str, Any],
    watch: "Watch | None" = None,
) -> "Outputs":
    """What all flows of a pass make of a batch, and of what they look up."""
    name = query.sources[0]
    sources = {name: good_rows(rows), **lookups}
    frames = frames_of(rows.sparkSession, pipeline, sources)
    found = Outputs()
    for flow in query.flows:
        found.add(outputs_of(pipeline, flow, frames[flow.name], watch))
    if query.sends_dead_letters:
        found.topics.append(dead_letters(rows, pipeline, name))
    return found


@dataclass
class Outputs:
    topics: list[Any] = field(default_factory=list)
    """Frames of OUT_COLUMNS."""
    letters: list[Any] = field(default_factory=list)
    """Frames of the same kind: rows that steps call bad."""
    tables: list[tuple[Flow, Any]] = field(default_factory=list)
    judged: list[Any] = field(default_factory=list)
    """Rows that are only counted: nobody writes them."""

    def add(self, other: "Outputs") -> None:
        self.topics += other.topics
        self.letters += other.letters
        self.tables += other.tables
        self.judged += other.judged

    @property
    def all_topics(self) -> Any | None:
        """In one frame, for one write."""
        frames = [*self.topics, *self.letters]
        if not frames:
            return None
        united = frames[0]
        for one in frames[1:]:
            united = united.unionByName(one)
        return united


def outputs_of(pipeline: Pipeline, flow: Flow, rows: Any, watch: "Watch | None" = None) -> Outputs:
    """`watch` counts the rows of a flow that expects something. Raises PipelineError."""
    # Once: each frame is written once.
    watched = rows if watch is None or not flow.expect else watch(flow, rows)
    found = Outputs()
    try:
        match flow.into:
            case Table() | Postgres():
                found.tables.append((flow, _table_rows(flow, watched)))
            case Topic():
                found.topics.append(written_rows(watched, flow))
            case None:
                found.judged.append(watched)
        if flow.on_error is OnError.DEAD_LETTER:
            letter = dead_letter_of(pipeline, flow)
            found.letters.append(step_letters(rows, flow, letter, pipeline))
    except PipelineError:
        raise
    except Exception as error:  # noqa: BLE001 - Spark raises all sorts
        raise told(error, flow) from None
    return found


def _table_rows(flow: Flow, rows: Any) -> Any:
    if isinstance(flow.into, Postgres):
        need_columns(rows, flow.into.key, flow, "key")
        if DELETED in rows.columns and flow.mode is not Mode.UPSERT:
            raise wrong(
                flow.spot,
                f"'{flow.name}' has a column {DELETED}, which only mode upsert understands",
            )
    elif isinstance(flow.into, Table):
        need_columns(rows, flow.into.partition_by, flow, "partition_by")
    return rows if flow.on_error is None else well_made(rows, flow).drop(STEP_ERROR)


def remembers(frame: Any) -> bool:
    """Whether a stream's plan keeps something from batch to batch."""
    return bool(memory_of(frame))


def memory_of(frame: Any) -> list[str]:
    """What it keeps, in Spark's words, without numbers that change from run to run, and the types
    of it.
    """
    execution = frame._jdf.queryExecution()
    found = [
        re.sub(r"#\d+L?", "", f"{node.simpleString(_WORDS_MAX)} of {_types_in(node)}")
        for node in _nodes(execution.analyzed())
        if node.isStreaming() and node.nodeName() in _REMEMBERS
    ]
    if any(_joins_streams(node) for node in _nodes(execution.analyzed())):
        # Both sides are kept, with those columns that are used behind it: Spark's optimizer knows.
        optimizer = frame.sparkSession._jsparkSession.sessionState().optimizer()
        found += [
            re.sub(r"#\d+L?", "", f"{node.simpleString(_WORDS_MAX)} of {sides}")
            for node in _nodes(optimizer.execute(execution.analyzed()))
            if _joins_streams(node)
            for sides in [[side.schema().catalogString() for side in _children(node)]]
        ]
    return found


def _types_in(node: Any) -> str:
    used = node.references().toSeq()
    attributes = [used.apply(place) for place in range(used.size())]
    return ", ".join(sorted({f"{one.name()} {one.dataType().sql()}" for one in attributes}))


def _joins_streams(node: Any) -> bool:
    sides = _children(node) if _name_of(node) == "Join" else []
    return sum(bool(side.isStreaming()) for side in sides) > 1


def refuse_what_streams_cannot(session: Any, flow: Flow, frame: Any) -> None:
    """As Spark would when the query starts. Raises PipelineError."""
    jvm = session.sparkContext._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}
    wanted = mode[OUTPUT_MODES[flow.mode]]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    execution = frame._jdf.queryExecution()
    if flow.mode is Mode.COMPLETE and not remembers(frame):
        raise told(ValueError("mode complete is for aggregations"), flow)
    joins = filter(_joins_streams, _nodes(execution.analyzed()))
    if not all(_has_bounds(jvm, join) for join in joins):
        # Spark would go on until memory and disk are full.
        raise wrong(
            flow.spot,
            f"'{flow.name}' joins streams without bounds and would remember all records for ever; "
            "both need a watermark, and the condition a range of time",
        )
    try:
        checker.checkForStreaming(execution.analyzed(), wanted)
    except Exception as error:  # noqa: BLE001 - py4j's own kind
        cause = getattr(error, "java_exception", None)
        text = str(error) if cause is None else str(cause.getMessage())
        raise told(ValueError(text), flow) from None


def _has_bounds(jvm: Any, join: Any) -> bool:
    """Whether Spark can tell when a row of either side finds no other any more."""
    sides = _children(join)
    if not all("EventTimeWatermark" in map(_name_of, _nodes(side)) for side in sides):
        return False
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(join):
        return True
    now = jvm.scala.Some(_SOME_TIME_MS)
    return all(
        helper.getStateValueWatermark(
            one.outputSet(), other.outputSet(), join.condition(), now
        ).isDefined()
        for one, other in (sides, sides[::-1])
    )


def _name_of(node: Any) -> str:
    return str(node.nodeName())


def _nodes(plan: Any) -> list[Any]:
    found = [plan]
    for node in found:
        found += _children(node)
    return found


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(place) for place in range(children.size())]
