"""Our clients and others: each reads what the other writes, in every codec, and keys go to the same
partitions.
"""

import pytest
from support.running_node import fresh_name
from support.wire_client import create_topic
from third_party.conftest import LIBRARIES
from third_party.libraries import CODECS, Library, ProducerOptions, Received, Sent
from third_party.reading import read_topic
from third_party.test_produce_and_consume import as_received, every_kind_of_record

from moldau import Consumer, Producer
from moldau.types import TopicPartition

PATIENCE_S = 60
# The default partitioner of each library, by the name it has here.
PARTITIONERS = {"confluent-kafka": "consistent_random", "aiokafka": None, "kafka-python": None}
PARTITIONS = 7


def read_ours(address: str, topic: str, count: int, partitions: int = 1) -> list[Received]:
    with Consumer(address, auto_offset_reset="earliest", check_crcs=True) as consumer:
        consumer.assign([(topic, number) for number in range(partitions)])
        found: list[Received] = []
        while len(found) < count:
            for one in consumer.poll(PATIENCE_S):
                place = TopicPartition(one.topic, one.partition)
                found.append(
                    Received(place, one.offset, one.timestamp, one.key, one.value, one.headers)
                )
    return sorted(found, key=lambda one: (one.partition, one.offset))


@pytest.mark.parametrize("codec", CODECS)
def test_others_read_what_we_write(address: str, topic: str, codec: str) -> None:
    sent = every_kind_of_record(next(one for one in LIBRARIES if one.sends_every_null))
    with Producer(address, config={"compression.type": codec, "linger.ms": 50}) as producer:
        placed = [
            producer.send(
                topic,
                one.value,
                one.key,
                partition=one.partition,
                timestamp=one.timestamp,
                headers=one.headers,
            )
            for one in sent
        ]
        assert [one.result(PATIENCE_S).offset for one in placed] == list(range(len(sent)))
    for reader in LIBRARIES:
        assert read_topic(reader, address, topic, len(sent)) == as_received(topic, sent)
    assert read_ours(address, topic, len(sent)) == as_received(topic, sent)


def test_we_read_what_others_write(address: str, topic: str, library: Library) -> None:
    everything: list[Sent] = []
    for codec in CODECS:
        sent = every_kind_of_record(library)
        library.produce(address, topic, sent, ProducerOptions(codec=codec))
        everything += sent
    assert read_ours(address, topic, len(everything)) == as_received(topic, everything)


def test_keys_go_where_others_send_them(address: str, library: Library) -> None:
    keys = [b"key-%d" % number * (number % 5 + 1) for number in range(100)]
    theirs, ours = fresh_name("theirs"), fresh_name("ours")
    for topic in (theirs, ours):
        create_topic(address, topic, PARTITIONS)
    library.produce(address, theirs, [Sent(key=key, value=b"v") for key in keys], ProducerOptions())
    with Producer(address, partitioner_class=PARTITIONERS[library.name]) as producer:
        for key in keys:
            producer.send(ours, b"v", key)
    places = [
        {one.key: one.partition.partition for one in read_ours(address, topic, 100, PARTITIONS)}
        for topic in (theirs, ours)
    ]
    assert places[0] == places[1]
    assert len(set(places[0].values())) == PARTITIONS
