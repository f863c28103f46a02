"""Shorthands for reading with a consumer, and for writing the records that it reads."""

import itertools
import os
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Producer as ConfluentProducer
from support.waiting import wait_for

from moldau import Consumer
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.testing import ThreadBroker

_numbers = itertools.count()
PATIENCE_S = 60.0


def fresh_name(what: str = "consumed") -> str:
    return f"{what}-{os.getpid()}-{next(_numbers)}"


def fresh_topic(node: ThreadBroker, partitions: int = 1, **config: str) -> str:
    name = fresh_name()
    node.create_topic(name, partitions, {k.replace("_", "."): v for k, v in config.items()})
    return name


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes],
    partition: int | None = None,
    **settings: Any,
) -> None:
    """Writes values with another library. Without a partition, each value is also the key."""
    producer = ConfluentProducer(
        {"bootstrap.servers": bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}}
    )
    for value in values:
        if partition is None:
            producer.produce(topic, value, key=value)
        else:
            producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def consumer_of(node: ThreadBroker, **settings: Any) -> Consumer:
    chosen = {"group_id": fresh_name("group"), "auto_offset_reset": "earliest"}
    return Consumer(node.bootstrap, **(chosen | settings))


def read(consumer: Consumer, count: int, patience_s: float = PATIENCE_S) -> list[ConsumerRecord]:
    """Exactly `count` records."""
    found: list[ConsumerRecord] = []
    wait_for(
        lambda: len(found) >= count,
        lambda: f"{count} records, {len(found)} came",
        patience_s,
        lambda: found.extend(consumer.poll(0.2, count - len(found))),
    )
    return found


def values(records: Iterable[ConsumerRecord]) -> list[Any]:
    return [record.value for record in records]


def poll_until(condition: Callable[[], bool], *polled: Any, patience_s: float = PATIENCE_S) -> None:
    """Polls the consumers until the condition holds. Their records are dropped."""

    def poll_all() -> None:
        for one in polled:
            one.poll(0.05)

    wait_for(condition, "the condition, while consumers are polled", patience_s, poll_all)
