"""Flows as Spark's frames. What Spark says is wrong is told with the line of the user's file."""

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
from moldau.pipelines.arguments import wrong
from moldau.pipelines.spots import last_in

_POSITION = re.compile(r"line (\d+),? pos (\d+)")
_TEXT_MAX = 500


def frames_of(session: Any, pipeline: Pipeline, sources: Mapping[str, Any]) -> dict[str, Any]:
    """Of all flows that can be made of these sources, and the sources. Raises PipelineError."""
    frames = dict(sources)
    problems: list[Problem] = []
    for flow in order_of(pipeline):
        if any(name not in frames for name in flow.inputs):
            continue
        try:
            frames[flow.name] = frame_of(session, flow, frames)
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
        made = flow.body(**{name: frames[name] for name in flow.inputs})
    except PipelineError:
        raise
    except Exception as error:  # noqa: BLE001 - Spark and users raise all sorts
        raise told(error, flow) from None
    if not hasattr(made, "sparkSession"):
        raise wrong(flow.spot, f"'{flow.name}' returns {type(made).__name__}, not a DataFrame")
    return made


def told(error: Exception, flow: Flow) -> PipelineError:
    """In one line, with the best place that is known."""
    text = short_text(error)
    if isinstance(flow.body, Sql):
        match = _POSITION.search(str(error))
        spot = flow.body.spot
        if match is not None:
            spot = flow.body.spot_of(int(match[1]), int(match[2]) + 1)
        return wrong(spot, f"'{flow.name}': {text}")
    code = getattr(flow.body, "__code__", None)
    inside = None if code is None else last_in(code.co_filename, error)
    return wrong(flow.spot if inside is None else inside, f"'{flow.name}': {text}")


def short_text(error: BaseException) -> str:
    """What Spark says, without its plans and stacks."""
    text = str(error).strip()
    # A parser's message has its point on the second line.
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    first = re.split(r"\s*SQLSTATE: \w+|;? line \d+,? pos \d+", lines[0])[0]
    if not text.startswith("["):
        first = f"{type(error).__name__}: {first}" if type(error).__name__ not in first else first
    return first.rstrip(" ;")[:_TEXT_MAX]
