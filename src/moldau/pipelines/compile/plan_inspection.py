"""Inspects Spark's logical plans of streams: which state they keep, and what Spark cannot run. The
only module that walks plans over py4j.
"""

import re
from typing import Any

from moldau.core.pipelines.graph import Flow, Mode
from moldau.pipelines.compile.frames import flow_error
from moldau.pipelines.declare.arguments import pipeline_error

_STATEFUL = frozenset(
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
_FIELDS_SHOWN_MAX = 1000
_ANY_TIME_MS = 1_000_000_000_000
"""Any time shows whether Spark can compute a watermark from the join's condition."""


def is_stateful(frame: Any) -> bool:
    """Whether a stream's plan keeps state from batch to batch."""
    return bool(state_of(frame))


def state_of(frame: Any) -> list[str]:
    """The operators that keep state, as Spark describes them, with the types of their columns.
    Numbers that change from run to run are left out.
    """
    execution = frame._jdf.queryExecution()
    operators = [
        re.sub(r"#\d+L?", "", f"{node.simpleString(_FIELDS_SHOWN_MAX)} of {_types_in(node)}")
        for node in _nodes(execution.analyzed())
        if node.isStreaming() and node.nodeName() in _STATEFUL
    ]
    if any(_joins_streams(node) for node in _nodes(execution.analyzed())):
        # Both sides are kept, with the columns that are used later; the optimizer knows those.
        optimizer = frame.sparkSession._jsparkSession.sessionState().optimizer()
        operators += [
            re.sub(r"#\d+L?", "", f"{node.simpleString(_FIELDS_SHOWN_MAX)} of {sides}")
            for node in _nodes(optimizer.execute(execution.analyzed()))
            if _joins_streams(node)
            for sides in [[side.schema().catalogString() for side in _children(node)]]
        ]
    return operators


def _types_in(node: Any) -> str:
    used = node.references().toSeq()
    attributes = [used.apply(index) for index in range(used.size())]
    types = {f"{attribute.name()} {attribute.dataType().sql()}" for attribute in attributes}
    return ", ".join(sorted(types))


def _joins_streams(node: Any) -> bool:
    sides = _children(node) if _name_of(node) == "Join" else []
    return sum(bool(side.isStreaming()) for side in sides) > 1


def refuse_unsupported_plan(session: Any, flow: Flow, frame: Any) -> None:
    """Raises PipelineError for a plan that Spark would refuse when the query starts."""
    jvm = session.sparkContext._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode_of = {Mode.APPEND: modes.Append, Mode.UPSERT: modes.Update, Mode.COMPLETE: modes.Complete}
    mode = mode_of[flow.mode]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    execution = frame._jdf.queryExecution()
    if flow.mode is Mode.COMPLETE and not is_stateful(frame):
        raise flow_error(ValueError("mode complete needs an aggregation"), flow)
    joins = filter(_joins_streams, _nodes(execution.analyzed()))
    if not all(_has_bounds(jvm, join) for join in joins):
        # Spark would continue until memory and disk are full.
        raise pipeline_error(
            flow.spot,
            f"'{flow.name}' joins streams without bounds and would keep all records for ever; "
            "give both a watermark, and the condition a range of time",
        )
    try:
        checker.checkForStreaming(execution.analyzed(), mode)
    except Exception as error:  # noqa: BLE001 - py4j's own kind
        cause = getattr(error, "java_exception", None)
        text = str(error) if cause is None else str(cause.getMessage())
        raise flow_error(ValueError(text), flow) from None


def _has_bounds(jvm: Any, join: Any) -> bool:
    """Whether Spark can tell when a row of either side can no longer find a match."""
    sides = _children(join)
    if not all("EventTimeWatermark" in map(_name_of, _nodes(side)) for side in sides):
        return False
    helper = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if helper.isWatermarkInJoinKeys(join):
        return True
    now = jvm.scala.Some(_ANY_TIME_MS)
    return all(
        helper.getStateValueWatermark(
            side.outputSet(), other.outputSet(), join.condition(), now
        ).isDefined()
        for side, other in (sides, sides[::-1])
    )


def _name_of(node: Any) -> str:
    return str(node.nodeName())


def _nodes(plan: Any) -> list[Any]:
    nodes = [plan]
    for node in nodes:
        nodes += _children(node)
    return nodes


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(index) for index in range(children.size())]
