"""The work of `moldau consume`: records from a consumer to stdout, until the end of the partitions,
a count or a time-out.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any

import typer

from moldau.cli.records.record_formats import Formatter
from moldau.cli.shared.parsing import parse_partitions
from moldau.cli.shared.progress import Bar, progress_bar
from moldau.client.cluster.cluster import Cluster
from moldau.client.consumer.aio import Consumer
from moldau.client.errors import ClientError
from moldau.client.start_positions import StartAt, start_positions
from moldau.frozen import frozen
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.types import TopicPartition

# How long one poll waits for records before the other conditions are checked.
_POLL_MS = 500
_RECORDS_AT_ONCE = 5_000
_METADATA_MAX_AGE_MS = 2_000
_ONLY_IN_PATTERNS = re.compile(r"[][*+?(){}|^$\\]")


@frozen(kw_only=True)
class Reading:
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
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
        if bool(self.topics) == (self.pattern is not None):
            raise typer.BadParameter("name topics, or give a --pattern that matches their names.")
        for topic in filter(_ONLY_IN_PATTERNS.search, self.topics):
            raise typer.BadParameter(f"'{topic}' is not a topic name; give it as --pattern.")
        if self.group_id is not None and any(":" in topic for topic in self.topics):
            raise typer.BadParameter("a group assigns partitions itself; name topics only.")
        if self.group_id is None and (self.instance_id is not None or not self.is_committing):
            raise typer.BadParameter("--instance-id and --no-commit need --group.")

    @property
    def waits_for_topics(self) -> bool:
        """Whether topics that match the pattern may be created later."""
        return self.pattern is not None and self.group_id is not None and self.is_following

    def settings(self) -> dict[str, Any]:
        """Settings of the consumer."""
        watching = {"metadata_max_age_ms": _METADATA_MAX_AGE_MS} if self.waits_for_topics else {}
        return watching | {
            "group_id": self.group_id,
            "group_instance_id": self.instance_id,
            "enable_auto_commit": self.group_id is not None and self.is_committing,
            "isolation_level": "read_committed" if self.is_read_committed else "read_uncommitted",
            "auto_offset_reset": "earliest",
        }

    @property
    def stops_at_the_end(self) -> bool:
        return not self.is_following and self.timeout_ms is None


async def consume_all(cluster: Cluster, reading: Reading, settings: Mapping[str, Any]) -> int:
    """Returns how many records were printed."""
    names, partitions = parse_partitions(reading.topics)
    if reading.pattern is not None:
        names = await _matching(cluster, reading.pattern)
        if not names and not reading.waits_for_topics:
            raise ClientError(f"no topic matches '{reading.pattern.pattern}'")
    topics = await cluster.topics([*names, *(partition.topic for partition in partitions)])
    for partition in partitions:
        # Raises if the topic does not have it.
        topics[partition.topic].partition(partition.partition)
    async with Consumer(**settings) as consumer:
        assignment = _Assignment(cluster, consumer, reading.start, {*names})
        if reading.group_id is not None and reading.pattern is not None:
            consumer.subscribe(pattern=reading.pattern, listener=assignment)
        elif reading.group_id is not None:
            consumer.subscribe(names, listener=assignment)
        else:
            chosen = {*partitions}.union(*(topics[name].topic_partitions for name in names))
            consumer.assign(sorted(chosen))
            await assignment.begin(sorted(chosen))
        printer = _Printer(cluster, reading, consumer, assignment)
        # On a terminal the records themselves show the progress.
        is_shown = reading.stops_at_the_end and not sys.stdout.isatty()
        with progress_bar("consuming", reading.count_max, is_shown=is_shown) as bar:
            return await printer.run(bar)


async def _matching(cluster: Cluster, pattern: re.Pattern[str]) -> list[str]:
    topics = (await cluster.with_retries(lambda: cluster.metadata(None))).topics.values()
    names = (topic.name for topic in topics if not topic.is_internal)
    return sorted(name for name in names if pattern.fullmatch(name))


class _Assignment:
    """The consumer's assignment and where to start in it; also the listener of a group."""

    def __init__(
        self, cluster: Cluster, consumer: Consumer, start: StartAt, first_topics: set[str]
    ) -> None:
        """`first_topics` exist from the start; topics created later are read from the beginning."""
        self._cluster = cluster
        self._consumer = consumer
        self._start = start
        self._first_topics = first_topics
        self.version = 0
        self.is_known = False
        """False while a member waits for its assignment."""

    async def begin(self, partitions: list[TopicPartition]) -> None:
        positions = await start_positions(self._cluster, partitions, self._start)
        for partition, offset in positions.items():
            self._consumer.seek(partition, offset)
        self.version += 1
        self.is_known = True

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        committed = await self._consumer.committed(partitions)
        # A topic created later is read from its beginning, which is the consumer's default.
        first = [partition for partition in partitions if partition.topic in self._first_topics]
        await self.begin([partition for partition in first if committed[partition] is None])

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:  # noqa: ARG002
        """A new assignment follows."""
        self.is_known = False


class _Printer:
    def __init__(
        self, cluster: Cluster, reading: Reading, consumer: Consumer, assignment: _Assignment
    ) -> None:
        self._clock = cluster.clock
        self._reading = reading
        self._consumer = consumer
        self._assignment = assignment
        self._out = sys.stdout.buffer
        self._count = 0
        self._silent_since_ms = self._clock.mono_ms()
        self._unfinished: dict[TopicPartition, int] = {}
        """End offsets of the partitions that are not yet read to the end."""
        self._measured = 0
        """The version of the assignment for which the end offsets were fetched."""

    async def run(self, bar: Bar) -> int:
        while not await self._is_done():
            records = await self._consumer.poll(self._patience_ms() / 1000, self._count_left())
            if records:
                self._silent_since_ms = self._clock.mono_ms()
                self._print(records)
                bar.advance(len(records))
        return self._count

    def _count_left(self) -> int:
        if self._reading.count_max is None:
            return _RECORDS_AT_ONCE
        return min(self._reading.count_max - self._count, _RECORDS_AT_ONCE)

    def _patience_ms(self) -> float:
        if self._reading.timeout_ms is None:
            return _POLL_MS
        left_ms = self._silent_since_ms + self._reading.timeout_ms - self._clock.mono_ms()
        return max(min(left_ms, _POLL_MS), 0)

    async def _is_done(self) -> bool:
        if self._count == self._reading.count_max:
            return True
        if self._reading.timeout_ms is not None:
            return self._clock.mono_ms() - self._silent_since_ms >= self._reading.timeout_ms
        return self._reading.stops_at_the_end and await self._is_at_the_end()

    async def _is_at_the_end(self) -> bool:
        """The end when the partitions were assigned; it is fetched again for each assignment."""
        if not self._assignment.is_known:
            return False
        if self._measured != self._assignment.version:
            self._measured = self._assignment.version
            self._unfinished = await self._consumer.end_offsets(self._consumer.assignment())
        for partition, end in list(self._unfinished.items()):
            if partition not in self._consumer.assignment():
                return False
            # The position, not the last record's offset: aborted records may follow it.
            if await self._consumer.position(partition) >= end:
                del self._unfinished[partition]
        return not self._unfinished

    def _print(self, records: list[ConsumerRecord]) -> None:
        formatter = self._reading.formatter
        lines = [
            formatter(TopicPartition(record.topic, record.partition), record) for record in records
        ]
        self._out.write(b"".join(lines))
        self._out.flush()
        self._count += len(records)
