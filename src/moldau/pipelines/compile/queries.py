"""Plans a pipeline's Spark queries: all flows that look at single records of one source share one
pass over it; a flow that keeps state (groups, windows, joins of streams) is a query of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moldau.core.pipelines.graph import (
    Flow,
    Mode,
    OnError,
    Pipeline,
    PipelineError,
    Problem,
    Table,
    Topic,
)
from moldau.core.pipelines.graph_checks import sources_of
from moldau.pipelines.compile.frames import frames_of
from moldau.pipelines.compile.lookups import shapes_of_lookups
from moldau.pipelines.compile.outputs import outputs_of
from moldau.pipelines.compile.plan_inspection import is_stateful, refuse_unsupported_plan
from moldau.pipelines.compile.values import (
    good_rows,
    read_values,
)
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.spark.runtime.spark_errors import short_text

OUTPUT_MODES = {Mode.APPEND: "append", Mode.UPSERT: "update", Mode.COMPLETE: "complete"}
Reader = Callable[[str, str], Any]
"""(source, query) -> records of the source, as that query reads them."""


@dataclass
class Query:
    """One of Spark's streaming queries."""

    name: str
    sources: tuple[str, ...]
    flows: list[Flow] = field(default_factory=list)
    output_mode: str = "append"
    is_pass: bool = False
    """Whether its flows are applied to each batch. Otherwise the query's frame is that of its only
    flow.
    """
    sends_dead_letters: bool = False

    @property
    def written(self) -> list[Flow]:
        """Flows with a target; for the others only expectations are counted."""
        return [flow for flow in self.flows if flow.into is not None]

    @property
    def targets(self) -> list[str]:
        names = [target_name(flow) for flow in self.written]
        is_sent = self.sends_dead_letters or self.sends_step_dead_letters
        return [*names, "dead letters"] if is_sent else names

    @property
    def has_unwritten_flows(self) -> bool:
        """Their rows are counted in a separate pass over the batch."""
        return len(self.written) < len(self.flows)

    @property
    def writes_topics(self) -> bool:
        is_sent = self.sends_dead_letters or self.sends_step_dead_letters
        return is_sent or any(isinstance(flow.into, Topic) for flow in self.flows)

    @property
    def sends_step_dead_letters(self) -> bool:
        return any(flow.on_error is OnError.DEAD_LETTER for flow in self.flows)


def target_name(flow: Flow) -> str:
    assert flow.into is not None
    return flow.into.path if isinstance(flow.into, Table) else flow.into.name


def compile_queries(session: Any, pipeline: Pipeline, read: Reader) -> list[Query]:
    """Plans the queries and analyses every plan. Raises PipelineError with all problems."""
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
            refuse_unsupported_plan(session, flow, frames[flow.name])
        except PipelineError as error:
            problems += error.problems
            continue
        used = sources_of(pipeline, flow)
        if len(used) == 1 and not is_stateful(frames[flow.name]):
            passes[used[0]].flows.append(flow)
        elif flow.into is None:
            problems += _dead_letters_from_inside(flow)
        else:
            alone.append(Query(flow.name, used, [flow], OUTPUT_MODES[flow.mode]))
    if problems:
        raise PipelineError(*problems)
    for name, query in passes.items():
        source = pipeline.sources[name]
        query.sends_dead_letters = source.on_error is OnError.DEAD_LETTER
    used_passes = [query for query in passes.values() if query.flows or query.sends_dead_letters]
    return used_passes + alone


def _dead_letters_from_inside(flow: Flow) -> list[Problem]:
    """Inside a stateful query, rows that are dropped cannot be sent as dead letters."""
    if flow.on_error is not OnError.DEAD_LETTER:
        return []
    text = (
        f"'{flow.name}' keeps state or reads several sources: to send dead letters it needs 'into'"
    )
    return [Problem(flow.spot, text)]


def query_frame(
    session: Any, pipeline: Pipeline, query: Query, read: Reader, lookups: Mapping[str, Any]
) -> Any:
    """The frame whose batches the query processes. A stateful flow has one plan for the whole run,
    which includes `lookups`.
    """
    if query.is_pass:
        name = query.sources[0]
        return read_values(read(name, query.name), pipeline.sources[name], name)
    sources = {name: source_rows(pipeline, name, read(name, query.name)) for name in query.sources}
    return frames_of(session, pipeline, sources | dict(lookups))[query.flows[0].name]


def source_rows(pipeline: Pipeline, name: str, records: Any) -> Any:
    """Good rows of a source, as flows see them."""
    source = pipeline.sources[name]
    try:
        return good_rows(read_values(records, source, name))
    except PipelineError:
        # It knows a more precise line.
        raise
    except Exception as error:  # noqa: BLE001 - Spark raises all sorts
        raise pipeline_error(source.spot, f"'{name}': {short_text(error)}") from None
