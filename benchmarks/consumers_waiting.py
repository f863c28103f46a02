"""The cost of waiting consumers: the time of a record from its producer to them, and the memory of
a consumer that has nothing to read. `clients_consuming.py` shows it in addition to their rates.
"""

import asyncio
import gc
import multiprocessing
import struct
from collections.abc import Callable, Iterator
from itertools import count as numbers
from time import perf_counter
from typing import Any

import psutil

import moldau
import moldau.aio

PATIENCE_S = 30
IDLE_CONSUMERS = 20
_groups = numbers()
_stamp = struct.Struct("d")

Waiter = Callable[[str, str, int], Iterator[bytes]]
"""Bootstrap, topic, number of values: yields them as they arrive."""


def _settings(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"waiting-{next(_groups)}",
        "auto.offset.reset": "latest",
    }


def with_confluent(bootstrap: str, topic: str, count: int) -> Iterator[bytes]:
    from confluent_kafka import Consumer

    consumer = Consumer(_settings(bootstrap))
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    yield b""
    for _ in range(count):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        value = message.value()
        assert isinstance(value, bytes)
        yield value
    consumer.close()


def with_moldau(bootstrap: str, topic: str, count: int) -> Iterator[bytes]:
    with moldau.Consumer(config=_settings(bootstrap)) as consumer:
        consumer.subscribe(topic)
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.position((topic, 0))
        yield b""
        for _, record in zip(range(count), consumer, strict=False):
            yield record.value


WAITERS: dict[str, Waiter] = {"confluent-kafka": with_confluent, "moldau": with_moldau}


def send_paced(bootstrap: str, topic: str, rate: int, count: int) -> None:
    """Runs in a process of its own, the same for all consumers: each value is the time it
    was sent.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    began = perf_counter()
    for number in range(count):
        while (left := began + number / rate - perf_counter()) > 0:
            producer.poll(left)
        producer.produce(topic, _stamp.pack(perf_counter()).ljust(100))
    producer.flush(PATIENCE_S)


def latencies(bootstrap: str, topic: str, rate: int, seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds from a producer's call to the consumer's loop."""
    count = int(rate * seconds)
    spawned = multiprocessing.get_context("spawn")
    found = {}
    for name, wait in WAITERS.items():
        values = wait(bootstrap, topic, count)
        next(values)
        sender = spawned.Process(target=send_paced, args=(bootstrap, topic, rate, count))
        sender.start()
        # perf_counter counts for the whole machine, not for the process.
        took = sorted(perf_counter() - _stamp.unpack_from(value)[0] for value in values)
        sender.join()
        at = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
        found[name] = {
            key: round(took[int(len(took) * share)] * 1000, 3) for key, share in at.items()
        }
    return found


def _confluent(bootstrap: str, topic: str) -> tuple[Any, float]:
    from confluent_kafka import Consumer

    consumer = Consumer(_settings(bootstrap))
    consumer.subscribe([topic])
    return consumer, 0.01


def _kafka_python(bootstrap: str, topic: str) -> tuple[Any, float]:
    from kafka import KafkaConsumer

    group = f"waiting-{next(_groups)}"
    return KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group), 10


def _moldau(bootstrap: str, topic: str) -> tuple[Any, float]:
    consumer = moldau.Consumer(config=_settings(bootstrap))
    consumer.subscribe(topic)
    return consumer, 0.01


async def _aiokafka(bootstrap: str, topic: str) -> Any:
    from aiokafka import AIOKafkaConsumer

    group = f"waiting-{next(_groups)}"
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group)
    await consumer.start()
    return consumer.stop


async def _moldau_aio(bootstrap: str, topic: str) -> Any:
    consumer = moldau.aio.Consumer(config=_settings(bootstrap))
    consumer.subscribe(topic)
    while not consumer.assignment():
        await consumer.poll(0.1)
    return consumer.close


BLOCKING = {"confluent-kafka": _confluent, "kafka-python": _kafka_python, "moldau": _moldau}
ASYNC = {"aiokafka": _aiokafka, "moldau.aio": _moldau_aio}


def _rss() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def _measure_memory(name: str, bootstrap: str, topic: str, pipe: Any) -> None:
    """The first consumer loads the library; the growth by the others is the cost of one."""
    if name in BLOCKING:
        first, before = _held([BLOCKING[name](bootstrap, topic)])
        others, after = _held([BLOCKING[name](bootstrap, topic) for _ in range(IDLE_CONSUMERS)])
        pipe.send((after - before) / IDLE_CONSUMERS)
        for consumer in first + others:
            consumer.close()
    else:
        pipe.send(asyncio.run(_held_async(name, bootstrap, topic)))


def _held(made: list[tuple[Any, float]]) -> tuple[list[Any], int]:
    """All consumers are members; returns the resident memory then."""
    while not all(consumer.assignment() for consumer, _ in made):
        for consumer, pause in made:
            consumer.poll(pause)
    return [consumer for consumer, _ in made], _rss()


async def _held_async(name: str, bootstrap: str, topic: str) -> float:
    closers = [await ASYNC[name](bootstrap, topic)]
    before = _rss()
    others = (ASYNC[name](bootstrap, topic) for _ in range(IDLE_CONSUMERS))
    closers += await asyncio.gather(*others)
    found = (_rss() - before) / IDLE_CONSUMERS
    for close in closers:
        await close()
    return found


def idle_kilobytes(bootstrap: str, topic: str) -> dict[str, float]:
    """Resident memory of one more consumer that is a member and has nothing to read."""
    spawned = multiprocessing.get_context("spawn")
    found = {}
    for name in (*BLOCKING, *ASYNC):
        ours, theirs = spawned.Pipe()
        process = spawned.Process(target=_measure_memory, args=(name, bootstrap, topic, theirs))
        process.start()
        found[name] = round(ours.recv() / 1024, 1)
        process.join()
    return found
