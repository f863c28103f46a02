"""Records that flow through a cluster while it is disturbed: a producer writes numbered values to
each partition, a consumer reads along, both blocking or both for asyncio.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from interop.peers.live_cluster import Disturbance, LiveCluster
from support.waiting import pause

from moldau import Consumer, Producer, aio
from moldau.types import TopicPartition

PATIENCE_S = 120.0
BURST = 20
QUICK: dict[str, Any] = {
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 500,
    "reconnect_backoff_ms": 50,
}

Read = dict[int, list[bytes]]


class Traffic:
    """`run` calls `disturb` once records flow, and returns when every record written is
    acknowledged and read: in order, none lost, none duplicated.
    """

    def __init__(self, cluster: LiveCluster, topic: str, partitions: int = 3) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._flows = threading.Event()
        self._stop = threading.Event()
        self._deliveries: list[tuple[int, bytes, Any]] = []
        self._read: Read = {number: [] for number in range(partitions)}
        self._number = 0

    def run(self, disturb: Callable[[], object], **settings: Any) -> None:
        self._go(disturb, self._write_blocking, self._read_blocking, settings)

    def run_in_loops(self, disturb: Callable[[], object], **settings: Any) -> None:
        def in_loop(work: Callable[..., Awaitable[None]]) -> Callable[..., None]:
            async def alone(*arguments: Any) -> None:
                await work(*arguments)
                assert asyncio.all_tasks() == {asyncio.current_task()}

            return lambda *arguments: asyncio.run(alone(*arguments))

        self._go(disturb, in_loop(self._write_async), in_loop(self._read_async), settings)

    def _go(self, disturb: Callable[[], object], write: Any, read: Any, settings: Any) -> None:
        writing = Disturbance(lambda: write(QUICK | settings))
        reading = Disturbance(lambda: read(QUICK))
        try:
            assert self._flows.wait(PATIENCE_S), "nothing flows"
            disturb()
        finally:
            self._stop.set()
            writing.finish()
            reading.finish()
        self._check()

    def _check(self) -> None:
        for number in range(self._partitions):
            mine = [(value, one) for place, value, one in self._deliveries if place == number]
            written = [value for value, _ in mine]
            assert written, f"nothing was written to partition {number}"
            assert self._read[number] == written
            # An acknowledged record is at the offset returned; a lost response proves nothing.
            for value, metadata in mine:
                if metadata.offset >= 0:
                    assert self._read[number][metadata.offset] == value

    # Writing

    def _burst(self) -> Iterator[tuple[int, bytes]]:
        for _ in range(BURST):
            for partition in range(self._partitions):
                yield partition, b"%08d" % self._number
            self._number += 1

    def _write_blocking(self, settings: Any) -> None:
        pending: list[tuple[int, bytes, Any]] = []
        with Producer(self._cluster.bootstrap, batch_size=1000, **settings) as producer:
            while not self._stop.is_set():
                for partition, value in self._burst():
                    sent = producer.send(self._topic, value, partition=partition)
                    pending.append((partition, value, sent))
                pause()
            producer.flush(PATIENCE_S)
        self._keep([(place, value, one.result(0)) for place, value, one in pending])

    async def _write_async(self, settings: Any) -> None:
        pending: list[tuple[int, bytes, Any]] = []
        async with aio.Producer(self._cluster.bootstrap, batch_size=1000, **settings) as producer:
            while not self._stop.is_set():
                for partition, value in self._burst():
                    sent = await producer.send(self._topic, value, partition=partition)
                    pending.append((partition, value, sent))
                await asyncio.sleep(0.02)
            await producer.flush(PATIENCE_S)
            self._keep([(place, value, await one) for place, value, one in pending])

    def _keep(self, deliveries: list[tuple[int, bytes, Any]]) -> None:
        self._deliveries = deliveries
        self._written = dict.fromkeys(range(self._partitions), 0)
        for place, _, _ in deliveries:
            self._written[place] += 1

    # Reading

    _written: dict[int, int] | None = None

    def _take(self, records: list[Any]) -> bool:
        """Whether more records are to come."""
        for record in records:
            self._read[record.partition].append(record.value)
        if records:
            self._flows.set()
        counts = self._written
        return counts is None or any(len(self._read[n]) < count for n, count in counts.items())

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in range(self._partitions)]

    def _read_blocking(self, settings: Any) -> None:
        deadline: float | None = None
        with Consumer(
            self._cluster.bootstrap, auto_offset_reset="earliest", **settings
        ) as consumer:
            consumer.assign(self._places())
            while self._take(consumer.poll(0.5)):
                deadline = self._deadline(deadline)

    async def _read_async(self, settings: Any) -> None:
        deadline: float | None = None
        async with aio.Consumer(
            self._cluster.bootstrap, auto_offset_reset="earliest", **settings
        ) as consumer:
            consumer.assign(self._places())
            while self._take(await consumer.poll(0.5)):
                deadline = self._deadline(deadline)

    def _deadline(self, deadline: float | None) -> float | None:
        if self._written is None:
            return None
        if deadline is None:
            return time.monotonic() + PATIENCE_S
        counts = {number: len(values) for number, values in self._read.items()}
        assert time.monotonic() < deadline, f"read {counts} of {self._written}"
        return deadline


@contextmanager
def nothing_stays() -> Iterator[None]:
    """No thread or socket of a client is left over."""
    before = _held()
    yield
    left = _held() - before
    assert not left, left


def _held() -> set[object]:
    sockets = {
        (one.fd, one.laddr, one.raddr)
        for one in psutil.Process().net_connections("inet")
        if one.status != psutil.CONN_LISTEN
    }
    threads = {one for one in threading.enumerate() if one.name.startswith("moldau")}
    return sockets | threads
