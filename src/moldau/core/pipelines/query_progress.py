"""Progress figures of a query, computed from Spark's JSON reports of its batches."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from moldau.core.spark.offset_json import read_query_offsets

OBSERVED = "moldau.read."
"""Prefix of the name of a source's observed metrics."""


EXPECTED = "moldau_expect_"
"""Prefix of an expectation's metric: the number of rows that fail it."""


class QueryProgress(NamedTuple):
    query: str
    targets: tuple[str, ...]
    state: str
    batch: int | None = None
    rows: int = 0
    """Of the last batch, like bytes, rates and dead letters."""
    bytes: int = 0
    """The size of keys and values, as far as the query reads them."""
    dead_letters: int = 0
    """Malformed records and bad rows that were sent to dead letter topics."""
    rows_per_s: float = 0.0
    bytes_per_s: float = 0.0
    batch_ms: int = 0
    lag: int | None = None
    """Records that are not read yet; None if the source does not report it."""
    time: str = ""
    batches_total: int = 0
    """Since the run began, like the other totals."""
    rows_total: int = 0
    bytes_total: int = 0
    dead_letters_total: int = 0
    began: str = ""
    """When the query was started in this run."""
    expectations_total: dict[str, int] = {}  # noqa: RUF012 - replaced, never changed
    """Rows that failed an expectation, by `dataset.expectation`, with any handling."""


class StepCounts(NamedTuple):
    """Counts of a batch's rows by the pipeline's steps, which Spark does not report."""

    dead_letters: int = 0
    expectations: Mapping[str, int] = {}


_NOTHING = StepCounts()


def counted(
    before: QueryProgress, report: Mapping[str, Any], bad: int, steps: StepCounts = _NOTHING
) -> QueryProgress:
    """The progress after another batch with `bad` bad records."""
    rows = int(report.get("numInputRows", 0))
    batch_ms = int(report["durationMs"].get("triggerExecution", 0))
    size = observed(report, "bytes")
    bad += steps.dead_letters
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
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def failed_expectations(report: Mapping[str, Any]) -> dict[str, int]:
    """Failures by expectation of the sources, including zero, to show that they are checked."""
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
        lag = sum(max(0, at - end.get(partition, 0)) for partition, at in latest.items())
        total = lag if total is None else total + lag
    return total


def _offsets(given: Any) -> dict[Any, int] | None:
    try:
        found = json.loads(given) if isinstance(given, str) else given
        return dict(read_query_offsets(found).offsets)
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
