"""What Spark tells of a query while it runs, each batch counted once."""

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

_DONE = "addBatch"
"""Of a batch that was run: Spark also reports that there was nothing to do."""


class Progress:
    """Of one query, during a run."""

    def __init__(
        self, query: Query, stream: Any, counts_up_to: Callable[[int], StepCounts]
    ) -> None:
        self._stream = stream
        self._counts_up_to = counts_up_to
        self._sends_dead_letters = query.sends_dead_letters
        self._counted = -1
        self._said = ""
        began = datetime.now(UTC).isoformat(timespec="seconds")
        self._shown = QueryProgress(query.name, tuple(query.targets), "starting", began=began)

    def look(self) -> QueryProgress:
        # Asked first: what is reported before the end is counted then.
        state = self._state()
        last = self._stream.lastProgress
        if last is not None and last.json != self._said:
            self._said = last.json
            report = json.loads(last.json)
            if int(report["batchId"]) > self._counted + 1 and self._counted >= 0:
                self._take(json.loads(one.json) for one in self._stream.recentProgress)
            self._take([report])
        elif self._shown.batch is None and state == "running":
            state = "starting"
        self._shown = self._shown._replace(state=state)
        return self._shown

    def _state(self) -> str:
        if self._stream.isActive:
            return "running"
        failure = self._stream.exception()
        # A batch that came when the run was ending is left to the next one.
        is_well = failure is None or StoppedError.__name__ in str(failure)
        return "stopped" if is_well else "failed"

    def _take(self, reports: Iterable[Mapping[str, Any]]) -> None:
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
