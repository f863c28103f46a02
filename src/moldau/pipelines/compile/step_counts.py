"""Counts while a batch is written: dead letters of steps, and rows that fail their expectations."""

from typing import Any

from pyspark.sql import Observation
from pyspark.sql import functions as sql

from moldau.core.pipelines.graph import Flow
from moldau.core.pipelines.query_progress import EXPECTED, StepCounts
from moldau.pipelines.compile.expectations import failures


class StepCounter:
    """Counts the rows of one batch."""

    def __init__(self) -> None:
        self._dead_letters: list[Observation] = []
        self._expectations: dict[str, Observation] = {}

    def counted(self, flow: Flow, rows: Any) -> Any:
        observation = self._expectations[flow.name] = Observation()
        return rows.observe(observation, *failures(flow.expect))

    def counted_dead_letters(self, rows: Any) -> Any:
        observation = Observation()
        self._dead_letters.append(observation)
        return rows.observe(observation, sql.count(sql.lit(1)).alias("rows"))

    def counts(self) -> StepCounts:
        """The counts, once all frames are written."""
        dead_letters = sum(int(observation.get["rows"]) for observation in self._dead_letters)
        expectations = {
            f"{flow}.{name.removeprefix(EXPECTED)}": int(count or 0)
            for flow, observation in self._expectations.items()
            for name, count in observation.get.items()
        }
        return StepCounts(dead_letters, expectations)
