"""The work of `moldau consume`: from a reader to stdout, until the end, a count or a silence."""

import sys
from typing import TYPE_CHECKING

import typer

from moldau.cli.parsing import parse_partitions
from moldau.cli.progress import Bar, progress_bar
from moldau.cli.record_formats import Formatter
from moldau.client.cluster import Cluster
from moldau.client.fetcher import FetchedPartition, FetchOptions
from moldau.client.group_member import GroupOptions
from moldau.client.readers import GroupReader, PartitionReader, Reader
from moldau.client.start_positions import StartAt, end_positions, start_positions
from moldau.frozen import frozen
from moldau.protocol.enums import IsolationLevel
from moldau.types import TopicPartition

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

# How long one look for records lasts, between looks at everything else.
_LOOK_MS = 500


@frozen(kw_only=True)
class Reading:
    topics: tuple[str, ...]
    group_id: str | None
    instance_id: str | None
    is_committing: bool
    start: StartAt
    count_max: int | None
    timeout_ms: float | None
    is_following: bool
    is_read_committed: bool
    formatter: Formatter

    def check(self) -> None:
        if self.group_id is not None and any(":" in topic for topic in self.topics):
            raise typer.BadParameter("a group shares out the partitions itself; name topics only.")
        if self.group_id is None and (self.instance_id is not None or not self.is_committing):
            raise typer.BadParameter("--instance-id and --no-commit go with --group.")

    @property
    def isolation(self) -> IsolationLevel:
        return IsolationLevel(self.is_read_committed)

    @property
    def stops_at_the_end(self) -> bool:
        return not self.is_following and self.timeout_ms is None


async def consume_all(cluster: Cluster, reading: Reading) -> int:
    """How many were printed."""
    names, partitions = parse_partitions(reading.topics)
    found = await cluster.topics([*names, *(one.topic for one in partitions)])
    for one in partitions:
        found[one.topic].partition(one.partition)
    async with await _reader(cluster, reading, names, partitions) as reader:
        printer = _Printer(cluster, reading, reader)
        # Where records are seen, nobody needs a bar.
        is_wanted = reading.stops_at_the_end and not sys.stdout.isatty()
        with progress_bar("consuming", reading.count_max, is_wanted=is_wanted) as bar:
            return await printer.run(bar)


async def _reader(
    cluster: Cluster, reading: Reading, names: list[str], partitions: list[TopicPartition]
) -> "AbstractAsyncContextManager[Reader]":
    options = FetchOptions(isolation=reading.isolation)
    if reading.group_id is not None:
        group = GroupOptions(
            group_id=reading.group_id, topics=names, instance_id=reading.instance_id
        )
        return GroupReader(
            cluster, group, reading.start, options, is_committing=reading.is_committing
        )
    chosen = set(partitions)
    for topic in (await cluster.topics(names)).values():
        chosen.update(topic.topic_partitions)
    positions = await start_positions(cluster, sorted(chosen), reading.start)
    return PartitionReader(cluster, positions, options)


class _Printer:
    def __init__(self, cluster: Cluster, reading: Reading, reader: Reader) -> None:
        self._cluster = cluster
        self._reading = reading
        self._reader = reader
        self._out = sys.stdout.buffer
        self._count = 0
        self._silent_since_ms = cluster.clock.mono_ms()
        self._unfinished: dict[TopicPartition, int] = {}
        """Ends that are still to be reached."""
        self._measured: dict[TopicPartition, int] | None = None
        """The assignment for which they were looked up."""

    async def run(self, bar: Bar) -> int:
        while not await self._is_done():
            fetched = await self._reader.next(self._patience_ms())
            if fetched is None:
                continue
            self._silent_since_ms = self._cluster.clock.mono_ms()
            before = self._count
            next_offset = self._print(fetched)
            bar.advance(self._count - before)
            await self._reader.consumed(fetched.partition, next_offset)
            if next_offset >= self._unfinished.get(fetched.partition, 0):
                self._unfinished.pop(fetched.partition, None)
        return self._count

    def _patience_ms(self) -> float:
        if self._reading.timeout_ms is None:
            return _LOOK_MS
        left_ms = self._silent_since_ms + self._reading.timeout_ms - self._cluster.clock.mono_ms()
        return max(min(left_ms, _LOOK_MS), 0)

    async def _is_done(self) -> bool:
        if self._count == self._reading.count_max:
            return True
        if self._reading.timeout_ms is not None:
            silence_ms = self._cluster.clock.mono_ms() - self._silent_since_ms
            return silence_ms >= self._reading.timeout_ms
        if not self._reading.stops_at_the_end:
            return False
        await self._look_up_ends()
        return self._measured is not None and not self._unfinished

    async def _look_up_ends(self) -> None:
        """Anew for each assignment; a member that has not joined yet has none."""
        assigned = dict(self._reader.assigned)
        if assigned == self._measured or not self._reader.is_assigned:
            return
        ends = await end_positions(self._cluster, assigned, self._reading.isolation)
        self._measured = assigned
        self._unfinished = {one: end for one, end in ends.items() if assigned[one] < end}

    def _print(self, fetched: FetchedPartition) -> int:
        """Gives the offset behind the last record that was printed."""
        formatter, left = self._reading.formatter, None
        if self._reading.count_max is not None:
            left = self._reading.count_max - self._count
        lines: list[bytes] = []
        next_offset = fetched.next_offset
        for record in fetched.records():
            lines.append(formatter(fetched.partition, record))
            if len(lines) == left:
                next_offset = record.offset + 1
                break
        self._out.write(b"".join(lines))
        self._out.flush()
        self._count += len(lines)
        return next_offset
