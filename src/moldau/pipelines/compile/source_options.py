"""The options with which our data sources read a pipeline's sources."""

import json
import os
import re

from moldau.config.addresses import DEFAULT_BOOTSTRAP
from moldau.core.pipelines.graph import Http, Pipeline, Topic
from moldau.pipelines.compile.values import needed_columns
from moldau.pipelines.declare.arguments import pipeline_error


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
