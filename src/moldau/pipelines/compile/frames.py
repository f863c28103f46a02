"""Flows as Spark frames. Spark's errors are reported with the line of the user's file."""

import re
from collections.abc import Mapping
from typing import Any

from moldau.core.pipelines.graph import (
    Flow,
    Pipeline,
    PipelineError,
    Problem,
    Sql,
)
from moldau.core.pipelines.graph_checks import order_of
from moldau.pipelines.compile.expectations import passing_rows, with_errors
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.pipelines.declare.source_locations import last_in
from moldau.spark.runtime.spark_errors import short_text

_POSITION = re.compile(r"line (\d+),? pos (\d+)")


def frames_of(session: Any, pipeline: Pipeline, sources: Mapping[str, Any]) -> dict[str, Any]:
    """The sources' frames and those of all flows that need no other sources. Rows that fail an
    expectation of their flow have an `_error`. Raises PipelineError.
    """
    frames = dict(sources)
    problems: list[Problem] = []
    for flow in order_of(pipeline):
        if any(name not in frames for name in flow.inputs):
            continue
        try:
            seen = {
                name: passing_rows(frames[name], pipeline.flows.get(name)) for name in flow.inputs
            }
            frames[flow.name] = with_errors(frame_of(session, flow, seen), flow)
        except PipelineError as error:
            problems += error.problems
    if problems:
        raise PipelineError(*problems)
    return frames


def frame_of(session: Any, flow: Flow, frames: Mapping[str, Any]) -> Any:
    try:
        if isinstance(flow.body, Sql):
            for name in flow.inputs:
                frames[name].createOrReplaceTempView(name)
            return session.sql(flow.body.text)
        frame = flow.body(**{name: frames[name] for name in flow.inputs})
    except PipelineError:
        raise
    except Exception as error:  # noqa: BLE001 - Spark and users raise all sorts
        raise flow_error(error, flow) from None
    if not hasattr(frame, "sparkSession"):
        returned = type(frame).__name__
        raise pipeline_error(flow.spot, f"'{flow.name}' returns {returned}, not a DataFrame")
    return frame


def flow_error(error: Exception, flow: Flow) -> PipelineError:
    """An error of a flow in one line, with the best known place in the user's file."""
    text = short_text(error)
    if isinstance(flow.body, Sql):
        match = _POSITION.search(str(error))
        spot = flow.body.spot
        if match is not None:
            spot = flow.body.spot_of(int(match[1]), int(match[2]) + 1)
        return pipeline_error(spot, f"'{flow.name}': {text}")
    code = getattr(flow.body, "__code__", None)
    inside = None if code is None else last_in(code.co_filename, error)
    return pipeline_error(flow.spot if inside is None else inside, f"'{flow.name}': {text}")
