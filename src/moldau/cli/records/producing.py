"""The work of `moldau produce`: reads records from the input, sends them, sums up the outcomes.
Memory is bounded: when the producer has no room, the input waits.
"""

import asyncio
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from moldau.cli.records.line_source import read_lines
from moldau.cli.records.record_json import InputRecord, NotARecordError, parse_record
from moldau.cli.shared.progress import Bar, progress_bar
from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import Topic
from moldau.client.errors import ClientError, UnknownTopicError
from moldau.client.producer.aio import Producer
from moldau.core.producer.batching import Delivery
from moldau.frozen import frozen
from moldau.net.clock import Clock
from moldau.protocol.errors import MoldauError
from moldau.types import NO_OFFSET

_PROBLEMS_SHOWN_MAX = 5
# Records that are sent before the event loop handles the network.
_RECORDS_PER_TURN = 500
_CHECK_RETRIES_MS = 1_000
# How long an interrupted command waits for records that are already taken.
_LAST_SENDS_S = 1.0

OnRetry = Callable[[str], None]
"""Called with the error that keeps records from being written, while the producer retries."""


@frozen(kw_only=True)
class Shape:
    """The rules by which input lines become records."""

    is_json: bool = False
    key_separator: bytes | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    null: bytes | None = None
    partition: int | None = None

    def record(self, line: bytes) -> InputRecord:
        """Raises NotARecordError."""
        if self.is_json:
            parsed = parse_record(line)
            return parsed._replace(
                key=self.key if parsed.key is None else parsed.key,
                headers=(*self.headers, *parsed.headers),
                partition=parsed.partition if self.partition is None else self.partition,
            )
        key, value = self.key, line
        if self.key_separator is not None:
            first, separator, rest = line.partition(self.key_separator)
            if not separator:
                raise NotARecordError(f"no '{self.key_separator.decode()}' in the line")
            key, value = first, rest
        return InputRecord(
            None if key == self.null else key,
            None if value == self.null else value,
            self.headers,
            self.partition,
        )


@frozen(kw_only=True)
class Input:
    files: tuple[Path, ...] = ()
    is_whole: bool = False
    rate: float | None = None
    keep_going: bool = False

    def check(self) -> None:
        """Checks the files; called before a topic is created for them."""
        for path in self.files:
            try:
                is_folder = stat.S_ISDIR(path.stat().st_mode)
            except OSError as error:
                raise MoldauError(f"cannot read {path}: {error.strerror}") from None
            if is_folder:
                raise MoldauError(f"cannot read {path}: is a directory")

    @property
    def total_bytes(self) -> int | None:
        return sum(path.stat().st_size for path in self.files) if self.files else None


@dataclass(slots=True)
class ProduceResult:
    topic: str
    records: int = 0
    failed: int = 0
    value_bytes: int = 0
    started_ms: float = 0
    ended_ms: float = 0
    partitions: dict[int, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    """Why records failed, and how many records each time."""
    was_stopped: bool = False
    first_failure: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_complete(self) -> bool:
        return not (self.failed or self.was_stopped)

    @property
    def problems(self) -> list[str]:
        """The first few reasons, one line each."""
        counts = list(self.reasons.items())[:_PROBLEMS_SHOWN_MAX]
        return [f"{counted(count)} failed: {reason}" for reason, count in counts]

    def take(self, value_bytes: int, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self.fail(str(error))
            return
        written = delivery.result()
        self.records += 1
        self.value_bytes += value_bytes
        row = self.partitions.setdefault(
            written.partition, {"records": 0, "firstOffset": None, "lastOffset": None}
        )
        row["records"] += 1
        if written.offset != NO_OFFSET:
            if row["firstOffset"] is None:
                row["firstOffset"] = written.offset
            row["lastOffset"] = written.offset

    def fail(self, reason: str, count: int = 1) -> None:
        self.failed += count
        self.first_failure.set()
        if reason in self.reasons or len(self.reasons) < _PROBLEMS_SHOWN_MAX:
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    @property
    def seconds(self) -> float:
        return max(self.ended_ms - self.started_ms, 0.0) / 1000

    def summary(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        stopped = "; stopped, the rest was not sent" if self.was_stopped else ""
        written = f"{counted(self.records)} written to {self.topic} in {self.seconds:.2f} s"
        return written + failed + stopped

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "records": self.records,
            "failed": self.failed,
            "valueBytes": self.value_bytes,
            "seconds": round(self.seconds, 3),
            "partitions": [
                {"partition": number, **row} for number, row in sorted(self.partitions.items())
            ],
            "complete": self.is_complete,
        }


def counted(records: int) -> str:
    return "1 record" if records == 1 else f"{records} records"


async def produce_all(
    cluster: Cluster,
    target: tuple[str, bool],
    shape: Shape,
    source: Input,
    settings: Mapping[str, Any],
    on_retry: OnRetry,
) -> ProduceResult:
    """Writes the input to `target`, a topic and whether to create it. Stops at the first failed
    record, unless the input says otherwise.
    """
    topic = await find_topic(cluster, *target)
    if shape.partition is not None:
        topic.partition(shape.partition)
    outcome = ProduceResult(topic.name, started_ms=cluster.clock.mono_ms())
    with progress_bar("producing", source.total_bytes, is_bytes=True) as bar:
        producer = Producer(**settings)
        sender = _Sender(cluster.clock, producer, outcome, source)
        watch = asyncio.ensure_future(_report_retries(producer, cluster.clock, on_retry))
        try:
            await sender.send_until_failure(shape, bar)
        finally:
            watch.cancel()
            # Also after an interrupt or a failed record: send what the producer holds already.
            await producer.close(_LAST_SENDS_S)
    outcome.ended_ms = cluster.clock.mono_ms()
    return outcome


async def _report_retries(producer: Producer, clock: Clock, on_retry: OnRetry) -> None:
    """Checks once a second, and reports the same problem only once."""
    reported = ""
    while True:
        await clock.sleep(_CHECK_RETRIES_MS)
        problem = "" if producer.retrying is None else str(producer.retrying)
        if problem and problem != reported:
            on_retry(problem)
        reported = problem


async def find_topic(cluster: Cluster, name: str, create: bool) -> Topic:
    from moldau.client.admin.topics import NewTopic, create_topics

    try:
        return await cluster.topic(name)
    except UnknownTopicError as error:
        if not create:
            known = str(error)
            separator = "" if known.endswith("?") else ";"
            raise ClientError(f"{known}{separator} use --create to create it") from None
    (created,) = (await create_topics(cluster, [NewTopic(name=name)])).values()
    if isinstance(created, MoldauError):
        raise created
    return await cluster.topic(name)


class _Sender:
    def __init__(
        self, clock: Clock, producer: Producer, outcome: ProduceResult, source: Input
    ) -> None:
        self._clock = clock
        self._producer = producer
        self._outcome = outcome
        self._source = source
        self._sent = 0
        self._line = 0

    async def send_until_failure(self, shape: Shape, bar: Bar) -> None:
        """Stops on a failure also while waiting for input or for room in the producer."""
        sending = asyncio.ensure_future(self._send_and_flush(shape, bar))
        failing = asyncio.ensure_future(self._outcome.first_failure.wait())
        try:
            waited_for = {sending} if self._source.keep_going else {sending, failing}
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            else:
                self._outcome.was_stopped = True
        finally:
            for task in (sending, failing):
                task.cancel()
            await asyncio.wait({sending, failing})

    async def _send_and_flush(self, shape: Shape, bar: Bar) -> None:
        await self._send_all(shape, bar)
        await self._producer.flush()

    async def _send_all(self, shape: Shape, bar: Bar) -> None:
        async for records, read_bytes in self._chunks(shape):
            for record in records:
                if self._outcome.failed and not self._source.keep_going:
                    self._outcome.was_stopped = True
                    return
                await self._send(record)
            bar.advance(read_bytes, f"{self._outcome.records} records")

    async def _chunks(self, shape: Shape) -> AsyncIterator[tuple[Iterator[InputRecord], int]]:
        if self._source.is_whole:
            for path in self._source.files:
                content = await asyncio.to_thread(path.read_bytes)
                yield iter([shape.record(content)]), len(content)
            return
        async for chunk in read_lines(self._source.files):
            yield self._records(shape, chunk.lines), chunk.read_bytes

    def _records(self, shape: Shape, lines: list[bytes]) -> Iterator[InputRecord]:
        for line in lines:
            self._line += 1
            try:
                yield shape.record(line)
            except NotARecordError as error:
                # Without --keep-going the sender stops here; the summary says how far it got.
                self._outcome.fail(f"line {self._line}: {error}")

    async def _send(self, record: InputRecord) -> None:
        if self._source.rate is not None:
            due_ms = self._outcome.started_ms + 1000 * self._sent / self._source.rate
            if (wait_ms := due_ms - self._clock.mono_ms()) > 1:
                await self._clock.sleep(wait_ms)
        elif self._sent % _RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)
        self._sent += 1
        try:
            delivery = await self._producer.send(
                self._outcome.topic,
                record.value,
                record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp=record.timestamp,
            )
        except MoldauError as error:
            self._outcome.fail(str(error))
            return
        delivery.add_callback(partial(self._outcome.take, len(record.value or b"")))
