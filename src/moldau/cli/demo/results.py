"""The results of `moldau demo`, read from its topics and table as any other reader would."""

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from moldau.aio import Admin, Consumer
from moldau.cli.demo.orders import PARTITIONS, TOPIC, ends_of
from moldau.core.pipelines.query_progress import QueryProgress

BIG, PER_USER, DEAD_LETTERS = "orders.big", "orders.per_user", "orders.dlq"
_COUNT_EVERY_S = 1.0
_RATES_MAX = 60
_WINDOWS_MAX = 30


@dataclass
class Results:
    published: int = 0
    in_table: int = 0
    dead_letters: int = 0
    big: int = 0
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=_RATES_MAX))
    """Orders published per second, one number for each second."""
    windows: dict[str, dict[str, float]] = field(default_factory=dict)
    """Start -> user -> sum, for the latest windows."""
    queries: dict[str, QueryProgress] = field(default_factory=dict)

    @property
    def in_flight(self) -> int:
        return self.published - self.in_table - self.dead_letters

    def count_record(self, topic: str, value: bytes | None) -> None:
        if topic == DEAD_LETTERS:
            self.dead_letters += 1
        elif topic == BIG:
            self.big += 1
        elif value is not None:
            row = json.loads(value)
            self.windows.setdefault(row["start"], {})[row["user"]] = row["total"]
            while len(self.windows) > _WINDOWS_MAX:
                del self.windows[min(self.windows)]

    def totals(self) -> list[tuple[str, float]]:
        """The sum of each window, the oldest first."""
        return [(start, sum(self.windows[start].values())) for start in sorted(self.windows)]

    def leaders(self, count: int) -> list[tuple[str, float]]:
        """Users with the largest sums in the latest window, the largest first."""
        if not self.windows:
            return []
        latest = self.windows[max(self.windows)]
        return sorted(latest.items(), key=lambda user_sum: -user_sum[1])[:count]


class Table:
    """A folder of Parquet files that never change."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[Path, int] = {}

    def files(self) -> list[Path]:
        """Committed files; those still being written are in another folder."""
        return sorted(self._folder.glob("day=*/*.parquet"))

    def count(self) -> int:
        from pyarrow.parquet import read_metadata

        for file in self.files():
            if file not in self._rows:
                self._rows[file] = read_metadata(file).num_rows
        return sum(self._rows.values())

    def count_distinct(self) -> int:
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        files = [str(file) for file in self.files()]
        if not files:
            return 0
        ids = ds.dataset(files, format="parquet").to_table(columns=["id"])["id"]
        return int(pc.count_distinct(ids).as_py())


async def follow_topics(bootstrap: str, results: Results) -> None:
    """Counts committed records until it is cancelled."""
    async with Consumer(
        bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        partitions = []
        for topic in (BIG, PER_USER, DEAD_LETTERS):
            partitions += await consumer.partitions_for(topic)
        consumer.assign(partitions)
        while True:
            for record in await consumer.poll():
                results.count_record(record.topic, record.value)


async def count_dead_letters(bootstrap: str) -> int:
    """Counts the dead letters that are committed now."""
    count = 0
    async with Consumer(
        bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        partitions = await consumer.partitions_for(DEAD_LETTERS)
        consumer.assign(partitions)
        for partition, end in (await consumer.end_offsets(partitions)).items():
            while await consumer.position(partition) < end:
                count += len(await consumer.poll())
    return count


async def follow_counts(bootstrap: str, table: Table, results: Results) -> None:
    """Updates the counts once a second until it is cancelled."""
    async with Admin(bootstrap) as admin:
        while True:
            await update_counts(admin, table, results)
            await asyncio.sleep(_COUNT_EVERY_S)


async def update_counts(admin: Admin, table: Table, results: Results) -> None:
    # The table first: it must never seem to hold more orders than are published.
    results.in_table = await asyncio.to_thread(table.count)
    published = sum(await ends_of(admin, TOPIC, PARTITIONS))
    if results.published:
        results.rates.append((published - results.published) / _COUNT_EVERY_S)
    results.published = published
