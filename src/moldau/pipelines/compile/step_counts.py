"""What is counted of a batch while its rows are written: dead letters of steps, and rows that are
not as steps expect.
"""

from typing import Any

from pyspark.sql import Observation
from pyspark.sql import functions as sql

from moldau.core.pipelines.graph import Flow
from moldau.core.pipelines.query_progress import EXPECTED, StepCounts
from moldau.pipelines.compile.expectations import failures


class Watcher:
    """Of one batch."""

    def __init__(self) -> None:
        self._letters: list[Observation] = []
        self._expectations: dict[str, Observation] = {}

    def watched(self, flow: Flow, rows: Any) -> Any:
        found = self._expectations[flow.name] = Observation()
        return rows.observe(found, *failures(flow.expect))

    def counted_letters(self, rows: Any) -> Any:
        found = Observation()
        self._letters.append(found)
        return rows.observe(found, sql.count(sql.lit(1)).alias("rows"))

    def counts(self) -> StepCounts:
        """When everything is written."""
        letters = sum(int(one.get["rows"]) for one in self._letters)
        expectations = {
            f"{flow}.{name.removeprefix(EXPECTED)}": int(count or 0)
            for flow, one in self._expectations.items()
            for name, count in one.get.items()
        }
        return StepCounts(letters, expectations)
