"""How a query goes, in few numbers, of what Spark tells of its batches as JSON."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from moldau.core.spark.offset_json import read_query_offsets

OBSERVED = "moldau.read."
"""Before a source's name: what Spark counts of its records in a stream."""


EXPECTED = "moldau_expect_"
"""Before an expectation's name: how many rows do not fulfil it."""


class QueryProgress(NamedTuple):
    query: str
    targets: tuple[str, ...]
    state: str
    batch: int | None = None
    rows: int = 0
    """Of the last batch, as are bytes, rates and dead letters."""
    bytes: int = 0
    """Keys and values, as far as they are read."""
    dead_letters: int = 0
    """Records of a wrong format, and rows that steps call bad, that were sent there."""
    rows_per_s: float = 0.0
    bytes_per_s: float = 0.0
    batch_ms: int = 0
    lag: int | None = None
    """Records that are there and not read; None: not known of this source."""
    time: str = ""
    batches_total: int = 0
    """Since the run began, as the other totals."""
    rows_total: int = 0
    bytes_total: int = 0
    dead_letters_total: int = 0
    began: str = ""
    """When the query was started in this run."""
    expectations_total: dict[str, int] = {}  # noqa: RUF012 - replaced, never changed
    """Rows that were not as expected, by `dataset.expectation`, whatever became of them."""


class StepCounts(NamedTuple):
    """Of what steps say of a batch's rows, which Spark's own reports do not have."""

    letters: int = 0
    expectations: Mapping[str, int] = {}


_NOTHING = StepCounts()


def counted(
    before: QueryProgress, report: Mapping[str, Any], bad: int, steps: StepCounts = _NOTHING
) -> QueryProgress:
    """With a batch more, of which so many records were bad."""
    rows = int(report.get("numInputRows", 0))
    batch_ms = int(report["durationMs"].get("triggerExecution", 0))
    size = observed(report, "bytes")
    bad += steps.letters
    return before._replace(
        batch=int(report["batchId"]),
        rows=rows,
        bytes=size,
        dead_letters=bad,
        rows_per_s=_rate(rows, batch_ms),
        bytes_per_s=_rate(size, batch_ms),
        batch_ms=batch_ms,
        lag=lag_of(report.get("sources", [])),
        time=str(report.get("timestamp", "")),
        batches_total=before.batches_total + 1,
        rows_total=before.rows_total + rows,
        bytes_total=before.bytes_total + size,
        dead_letters_total=before.dead_letters_total + bad,
        expectations_total=added(
            before.expectations_total, failed_expectations(report), steps.expectations
        ),
    )


def added(*counts: Mapping[str, int]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


def failed_expectations(report: Mapping[str, Any]) -> dict[str, int]:
    """Of sources; zero too, so that they are known to be looked at."""
    metrics: Mapping[str, Mapping[str, Any]] = report.get("observedMetrics") or {}
    return {
        f"{key.removeprefix(OBSERVED)}.{name.removeprefix(EXPECTED)}": int(count or 0)
        for key, found in metrics.items()
        if key.startswith(OBSERVED)
        for name, count in found.items()
        if name.startswith(EXPECTED)
    }


def _rate(amount: int, milliseconds: int) -> float:
    return round(amount * 1000 / milliseconds, 1) if milliseconds else 0.0


def observed(report: Mapping[str, Any], name: str) -> int:
    metrics: Mapping[str, Mapping[str, Any]] = report.get("observedMetrics") or {}
    return sum(
        int(found.get(name) or 0) for key, found in metrics.items() if key.startswith(OBSERVED)
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
