"""Consume, transform and produce in transactions: every record exactly once, despite any fault."""

from itertools import count

import pytest
from client.clusters import fresh_topic
from client.produced import PATIENCE_S, numbered, producer_of

from moldau import Consumer, Producer
from moldau.errors import MoldauError
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition

_numbers = count()


def copy_some(consumer: Consumer, producer: Producer, target: str, *, fails: bool = False) -> int:
    """One transaction: the records of a poll, and their positions."""
    records = consumer.poll(5, 100)
    ends: dict[TopicPartition, int] = {}
    with producer.transaction():
        for record in records:
            producer.send(target, record.value, record.key)
            ends[TopicPartition(record.topic, record.partition)] = record.offset + 1
        producer.send_offsets(ends, consumer.group_metadata())
        if fails:
            raise MoldauError("a mistake in between")
    return len(records)


def test_a_copy_has_every_record_once(node: ThreadBroker) -> None:
    source, target = fresh_topic(node, 2), fresh_topic(node, 3)
    group = f"copy-{next(_numbers)}"
    values = numbered(1_000)
    with producer_of(node) as writer:
        writer.send_many(source, values, values).result(PATIENCE_S)
    copied = 0
    for round_number in range(100):
        with (
            Consumer(
                node.bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as consumer,
            producer_of(node, transactional_id=group) as producer,
        ):
            consumer.subscribe([source])
            copied += copy_some(consumer, producer, target)
            if copied >= len(values):
                break
            if round_number % 2:
                node.drop_connections()
            with pytest.raises(MoldauError, match="in between"):
                copy_some(consumer, producer, target, fails=True)
    with Consumer(
        node.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as reader:
        places = reader.partitions_for(target)
        reader.assign(places)
        ends = reader.end_offsets(places)
        found = []
        while any(reader.position(place) < end for place, end in ends.items()):
            found += [record.value for record in reader.poll(1)]
    assert sorted(found, key=str) == values
