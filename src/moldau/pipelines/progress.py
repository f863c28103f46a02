"""How a query goes, in few numbers, of what Spark tells of its last batch."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from moldau.core.pipelines.offset_json import read_query_offsets
from moldau.pipelines.compiling import Query


class QueryProgress(NamedTuple):
    query: str
    targets: tuple[str, ...]
    state: str
    batch: int | None = None
    rows: int = 0
    """Of the last batch."""
    rows_per_s: float = 0.0
    batch_ms: int = 0
    lag: int | None = None
    """Records that are there and not read; None: not known of this source."""
    time: str = ""


def progress_of(query: Query, stream: Any) -> QueryProgress:
    targets = tuple(query.targets)
    state = "running" if stream.isActive else "stopped"
    if not stream.isActive and stream.exception() is not None:
        state = "failed"
    last = stream.lastProgress
    if last is None:
        return QueryProgress(query.name, targets, "starting" if stream.isActive else state)
    return from_report(query.name, targets, state, json.loads(last.json))


def from_report(
    name: str, targets: tuple[str, ...], state: str, report: Mapping[str, Any]
) -> QueryProgress:
    return QueryProgress(
        name,
        targets,
        state,
        int(report["batchId"]),
        int(report.get("numInputRows", 0)),
        round(float(report.get("processedRowsPerSecond", 0.0) or 0.0), 1),
        int(report.get("durationMs", {}).get("triggerExecution", 0)),
        lag_of(report.get("sources", [])),
        str(report.get("timestamp", "")),
    )


def lag_of(sources: list[Mapping[str, Any]]) -> int | None:
    total = None
    for source in sources:
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        behind = sum(max(0, at - end.get(one, 0)) for one, at in latest.items())
        total = behind if total is None else total + behind
    return total


def _offsets(given: Any) -> dict[Any, int] | None:
    try:
        found = json.loads(given) if isinstance(given, str) else given
        return dict(read_query_offsets(found).offsets)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
