"""Collects Spark's reports about a running query, and counts each batch once."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from moldau.core.pipelines.query_progress import (
    QueryProgress,
    StepCounts,
    counted,
    lag_of,
    observed,
)
from moldau.pipelines.compile.queries import Query
from moldau.pipelines.run.micro_batch import StoppedError
from moldau.spark.runtime.recognised_errors import is_raised

_DONE = "addBatch"
"""Reports of processed batches have this time. Spark also reports that there was no data."""


class Progress:
    """The progress of one query during a run."""

    def __init__(
        self, query: Query, stream: Any, counts_up_to: Callable[[int], StepCounts]
    ) -> None:
        self._stream = stream
        self._counts_up_to = counts_up_to
        self._sends_dead_letters = query.sends_dead_letters
        self._counted = -1
        self._last_report = ""
        began = datetime.now(UTC).isoformat(timespec="seconds")
        self._shown = QueryProgress(query.name, tuple(query.targets), "starting", began=began)

    def update(self) -> QueryProgress:
        # The state first: when it says that the query has ended, all reports are there.
        state = self._state()
        last = self._stream.lastProgress
        if last is not None and last.json != self._last_report:
            self._last_report = last.json
            report = json.loads(last.json)
            if int(report["batchId"]) > self._counted + 1 and self._counted >= 0:
                self._count(json.loads(recent.json) for recent in self._stream.recentProgress)
            self._count([report])
        elif self._shown.batch is None and state == "running":
            state = "starting"
        self._shown = self._shown._replace(state=state)
        return self._shown

    def _state(self) -> str:
        if self._stream.isActive:
            return "running"
        failure = self._stream.exception()
        # A batch that started while the run was stopping is left to the next run.
        is_stopped = failure is None or is_raised(StoppedError, failure)
        return "stopped" if is_stopped else "failed"

    def _count(self, reports: Iterable[Mapping[str, Any]]) -> None:
        for report in reports:
            number = int(report["batchId"])
            if number <= self._counted:
                continue
            if _DONE in report.get("durationMs", {}):
                self._counted = number
                bad = observed(report, "bad") if self._sends_dead_letters else 0
                self._shown = counted(self._shown, report, bad, self._counts_up_to(number))
            else:
                lag, time = lag_of(report.get("sources", [])), str(report.get("timestamp", ""))
                self._shown = self._shown._replace(lag=lag, time=time)
