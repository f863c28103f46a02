"""The work of `moldau bench`: puts load on a broker and measures throughput and latency."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from moldau.cli.bench.latencies import Latencies
from moldau.cli.shared.progress import Bar, progress_bar
from moldau.client.admin.topics import NewTopic, create_topics, delete_topics
from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import Topic
from moldau.client.consumer.aio import Consumer
from moldau.client.errors import ClientError
from moldau.client.producer.aio import Producer
from moldau.client.start_positions import StartAt, StartPosition, end_positions, start_positions
from moldau.core.producer.batching import Delivery
from moldau.frozen import frozen
from moldau.protocol.errors import MoldauError

# Records that are sent before the event loop and the progress bar get their turn.
_BURST = 200
_SILENCE_MS = 10_000
_UPDATE_EVERY_MS = 200


@frozen(kw_only=True)
class Load:
    records: int
    size_bytes: int
    rate: float | None = None
    topic: str | None = None
    """None: a temporary topic, deleted afterwards."""
    partitions: int = 1


@dataclass(slots=True)
class Measured:
    records: int = 0
    value_bytes: int = 0
    seconds: float = 0.0
    failed: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    error: Exception | None = None

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def mib_per_s(self) -> float:
        return self.value_bytes / self.seconds / 2**20 if self.seconds else 0.0

    def as_json(self, benchmark: str) -> dict[str, Any]:
        document: dict[str, Any] = {
            "bench": benchmark,
            "records": self.records,
            "failed": self.failed,
            "valueBytes": self.value_bytes,
            "seconds": round(self.seconds, 3),
            "recordsPerSecond": round(self.records_per_s, 1),
            "mibPerSecond": round(self.mib_per_s, 2),
        }
        return document | (self.latencies.as_json() if len(self.latencies) else {})


@asynccontextmanager
async def bench_topic(cluster: Cluster, load: Load) -> AsyncIterator[Topic]:
    if load.topic is not None:
        yield await cluster.topic(load.topic)
        return
    name = f"moldau-bench-{os.urandom(4).hex()}"
    new_topic = NewTopic(name=name, partitions=load.partitions)
    # An interrupt during the creation must not leave the topic behind either.
    try:
        (created,) = (await create_topics(cluster, [new_topic])).values()
        if isinstance(created, MoldauError):
            raise created
        yield await cluster.topic(name)
    finally:
        # The outcome does not matter: the measurement is over.
        _ = await delete_topics(cluster, [name])


async def bench_produce(cluster: Cluster, load: Load, settings: Mapping[str, Any]) -> Measured:
    async with bench_topic(cluster, load) as topic:
        with progress_bar("producing", load.records) as bar:
            return await _produce(cluster, topic, load, settings, bar)


async def _produce(
    cluster: Cluster, topic: Topic, load: Load, settings: Mapping[str, Any], bar: Bar
) -> Measured:
    measured = Measured()
    clock = cluster.clock

    def count_batch(offered_ms: list[float], first: Delivery) -> None:
        """Counts a batch by its first record. Records are of one size, so no batch is split."""
        error = first.exception()
        if error is not None:
            measured.failed += len(offered_ms)
            measured.error = measured.error or error
            return
        now_ms = clock.mono_ms()
        measured.records += len(offered_ms)
        measured.value_bytes += len(offered_ms) * load.size_bytes
        for record_ms in offered_ms:
            measured.latencies.add(now_ms - record_ms)

    value = os.urandom(load.size_bytes)
    offered_ms: dict[int, list[float]] = {}
    started_ms = clock.mono_ms()
    progress = _Progress(bar, started_ms)
    async with Producer(**settings) as producer:
        for sent in range(load.records):
            if load.rate is not None:
                wait_ms = started_ms + 1000 * sent / load.rate - clock.mono_ms()
                if wait_ms > 1:
                    await clock.sleep(wait_ms)
            if sent % _BURST == 0:
                await clock.sleep(0)
                progress.update(measured, clock.mono_ms())
                if measured.error is not None:
                    break
            now_ms = clock.mono_ms()
            delivery = await producer.send(topic.name, value)
            if delivery.index == 0:
                times = offered_ms[delivery.batch.partition] = []
                delivery.add_callback(partial(count_batch, times))
            offered_ms[delivery.batch.partition].append(now_ms)
    measured.seconds = (clock.mono_ms() - started_ms) / 1000
    return measured


class _Progress:
    """Updates the progress bar a few times per second."""

    def __init__(self, bar: Bar, started_ms: float) -> None:
        self._bar = bar
        self._started_ms = started_ms
        self._updated_ms = started_ms
        self._shown_records = 0

    def update(self, measured: Measured, now_ms: float) -> None:
        if now_ms - self._updated_ms < _UPDATE_EVERY_MS:
            return
        rate = measured.records / (now_ms - self._started_ms) * 1000
        note = f"{rate:,.0f} records/s"
        if len(measured.latencies):
            note += f", p99 {measured.latencies.percentile_ms(99):.1f} ms"
        self._bar.advance(measured.records - self._shown_records, note)
        self._updated_ms, self._shown_records = now_ms, measured.records


async def bench_consume(
    cluster: Cluster, load: Load, producer: Mapping[str, Any], consumer: Mapping[str, Any]
) -> Measured:
    """Measures reading; fills a temporary topic first unless a topic is named."""
    async with bench_topic(cluster, load) as topic:
        if load.topic is None:
            with progress_bar("filling", load.records) as bar:
                filled = await _produce(cluster, topic, load, producer, bar)
            if filled.error is not None:
                raise filled.error
        start = await start_positions(
            cluster, topic.topic_partitions, StartAt(StartPosition.BEGINNING)
        )
        ends = await end_positions(cluster, topic.topic_partitions)
        available = sum(ends[partition] - start[partition] for partition in start)
        if not available:
            raise ClientError(f"topic '{topic.name}' is empty")
        count = min(load.records, available)
        with progress_bar("consuming", count) as bar:
            return await _consume(cluster, topic, count, consumer, bar)


async def _consume(
    cluster: Cluster, topic: Topic, count: int, settings: Mapping[str, Any], bar: Bar
) -> Measured:
    measured = Measured()
    clock = cluster.clock
    started_ms = clock.mono_ms()
    progress = _Progress(bar, started_ms)
    async with Consumer(**settings) as consumer:
        consumer.assign(topic.topic_partitions)
        consumer.seek_to_beginning()
        while measured.records < count:
            records = await consumer.poll(_SILENCE_MS / 1000)
            if not records:
                raise ClientError(f"no record arrived for {_SILENCE_MS // 1000} s")
            measured.records += len(records)
            measured.value_bytes += sum(len(record.value or b"") for record in records)
            progress.update(measured, clock.mono_ms())
    measured.seconds = (clock.mono_ms() - started_ms) / 1000
    return measured


class EndToEnd(NamedTuple):
    measured: Measured
    acknowledged: Latencies


async def bench_latency(
    cluster: Cluster, load: Load, sending: Mapping[str, Any], reading: Mapping[str, Any]
) -> EndToEnd:
    """Sends a record, waits for the acknowledgement, reads it; then the next."""
    measured, acknowledged = Measured(), Latencies()
    clock = cluster.clock
    async with bench_topic(cluster, load) as topic:
        value = os.urandom(load.size_bytes)
        began_ms = clock.mono_ms()
        with progress_bar("measuring", load.records) as bar:
            progress = _Progress(bar, began_ms)
            async with Producer(**sending) as producer, Consumer(**reading) as consumer:
                consumer.assign(topic.topic_partitions)
                consumer.seek_to_end()
                for partition in topic.topic_partitions:
                    await consumer.position(partition)
                for _ in range(load.records):
                    started_ms = clock.mono_ms()
                    await (await producer.send(topic.name, value))
                    acknowledged.add(clock.mono_ms() - started_ms)
                    if not await consumer.poll(_SILENCE_MS / 1000):
                        raise ClientError(f"a record did not arrive within {_SILENCE_MS // 1000} s")
                    measured.latencies.add(clock.mono_ms() - started_ms)
                    measured.records += 1
                    measured.value_bytes += load.size_bytes
                    progress.update(measured, clock.mono_ms())
        measured.seconds = (clock.mono_ms() - began_ms) / 1000
    return EndToEnd(measured, acknowledged)
