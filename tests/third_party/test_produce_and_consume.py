"""Each library reads what the others write, with every codec, acks setting and kind of record."""

import hashlib
import itertools

import pytest
from support.running_node import fresh_name
from support.wire_client import WireClient, create_topic
from third_party.conftest import LIBRARIES
from third_party.libraries import (
    CODECS,
    Acks,
    ConsumerOptions,
    Headers,
    Library,
    ProducerOptions,
    Received,
    Sent,
)
from third_party.reading import opened, read_count, read_topic

from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.types import TopicPartition

FIRST_MS = 1_700_000_000_000
HEADERS: Headers = (
    ("trace", b"\x00\xff"),
    ("empty", b""),
    ("trace", b"again"),
    ("příloha", b"unicode name"),
)
LARGE_BYTES = 3_000_000


def every_kind_of_record(library: Library) -> list[Sent]:
    kinds = [
        Sent(key=b"key", value=b"value"),
        Sent(key=None, value=b"no key"),
        Sent(key=b"no value", value=None),
        Sent(key=b"", value=b""),
        Sent(key=b"headers", value=b"value", headers=HEADERS),
        Sent(key=b"long", value=b"compressible " * 5_000),
        Sent(key=b"\x00\x80\xff" * 100, value=hashlib.sha512(b"not text").digest() * 50),
    ]
    if library.sends_every_null:
        kinds.append(Sent(key=None, value=None))
        kinds.append(Sent(key=b"null header", value=b"value", headers=(("none", None),)))
    return [
        Sent(
            key=one.key,
            value=one.value,
            headers=one.headers,
            partition=0,
            timestamp=FIRST_MS + 1_000 * number,
        )
        for number, one in enumerate(kinds * 3)
    ]


def as_received(topic: str, sent: list[Sent], first_offset: int = 0) -> list[Received]:
    return [
        Received(
            TopicPartition(topic, one.partition or 0),
            first_offset + number,
            one.timestamp or 0,
            one.key,
            one.value,
            one.headers,
        )
        for number, one in enumerate(sent)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_every_kind_of_record_comes_back_unchanged_in_every_library(
    address: str, topic: str, library: Library, codec: str
) -> None:
    sent = every_kind_of_record(library)
    placed = library.produce(address, topic, sent, ProducerOptions(codec=codec))
    assert placed == list(range(len(sent)))
    for reader in LIBRARIES:
        assert read_topic(reader, address, topic, len(sent)) == as_received(topic, sent)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_acks(
    address: str, topic: str, library: Library, acks: Acks
) -> None:
    sent = every_kind_of_record(library)
    placed = library.produce(address, topic, sent, ProducerOptions(acks=acks))
    assert placed == ([None] * len(sent) if acks == "0" else list(range(len(sent))))
    assert read_topic(library, address, topic, len(sent)) == as_received(topic, sent)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_an_idempotent_producer_writes_each_record_once_and_in_order(
    address: str, topic: str, library: Library, codec: str
) -> None:
    sent = [
        Sent(value=b"%06d" % number, partition=0, timestamp=FIRST_MS + number)
        for number in range(2_000)
    ]
    options = ProducerOptions(is_idempotent=True, codec=codec)
    assert library.produce(address, topic, sent, options) == list(range(len(sent)))
    assert read_topic(library, address, topic, len(sent)) == as_received(topic, sent)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_value_of_megabytes_passes_where_the_topic_allows_it(
    address: str, library: Library, codec: str
) -> None:
    topic = fresh_name("large")
    create_topic(address, topic, configs={"max.message.bytes": str(LARGE_BYTES + 100_000)})
    noise = hashlib.shake_256(b"incompressible").digest(LARGE_BYTES)
    sent = [
        Sent(key=b"large", value=noise, partition=0, timestamp=FIRST_MS),
        Sent(key=b"small", value=b"after it", partition=0, timestamp=FIRST_MS + 1),
    ]
    options = ProducerOptions(codec=codec, request_bytes_max=LARGE_BYTES + 100_000)
    library.produce(address, topic, sent, options)
    for reader in LIBRARIES:
        assert read_topic(reader, address, topic, len(sent)) == as_received(topic, sent)


def test_a_value_above_the_topics_limit_is_refused(
    address: str, topic: str, library: Library
) -> None:
    too_large = [Sent(value=bytes(1_100_000), partition=0)]
    with pytest.raises(Exception, match=r"(?i)too.*large|MSG_SIZE_TOO_LARGE"):
        library.produce(address, topic, too_large, ProducerOptions(request_bytes_max=LARGE_BYTES))
    assert library.produce(address, topic, [Sent(value=b"fine")], ProducerOptions()) == [0]


def test_keyed_records_spread_over_partitions_and_keep_their_order(
    address: str, library: Library
) -> None:
    topic = fresh_name("spread")
    create_topic(address, topic, partitions=5)
    sent = [
        Sent(key=b"key-%d" % (number % 40), value=b"%d" % number, timestamp=FIRST_MS + number)
        for number in range(1_000)
    ]
    library.produce(address, topic, sent, ProducerOptions(is_idempotent=True))
    received = read_topic(library, address, topic, len(sent), partitions=5)
    by_partition = {
        index: list(records)
        for index, records in itertools.groupby(received, lambda one: one.partition.partition)
    }
    assert len(by_partition) == 5
    for records in by_partition.values():
        assert [one.offset for one in records] == list(range(len(records)))
        assert [int(one.value or b"") for one in records] == sorted(
            int(one.value or b"") for one in records
        )


def test_log_append_time_replaces_the_producers_timestamp(address: str, library: Library) -> None:
    topic = fresh_name("append-time")
    create_topic(address, topic, configs={"message.timestamp.type": "LogAppendTime"})
    library.produce(address, topic, [Sent(value=b"now", timestamp=FIRST_MS)], ProducerOptions())
    (received,) = read_topic(library, address, topic, 1)
    assert received.timestamp > FIRST_MS


@pytest.mark.parametrize("writer", LIBRARIES, ids=lambda each: each.name)
def test_libraries_take_turns_on_one_partition(
    address: str, topic: str, writer: Library, library: Library
) -> None:
    turns = [writer, library, writer]
    sent = []
    for number, (each, codec) in enumerate(zip(turns, ("gzip", "zstd", "snappy"), strict=True)):
        records = [
            Sent(value=b"%d-%d" % (number, i), partition=0, timestamp=FIRST_MS) for i in range(50)
        ]
        placed = each.produce(address, topic, records, ProducerOptions(codec=codec))
        assert placed == list(range(50 * number, 50 * (number + 1)))
        sent += records
    assert read_topic(library, address, topic, len(sent)) == as_received(topic, sent)


def test_a_topic_is_created_when_a_record_is_sent_to_it(address: str, library: Library) -> None:
    topic = fresh_name("made-on-demand")
    library.produce(address, topic, [Sent(value=b"first")], ProducerOptions())
    assert [one.value for one in read_topic(library, address, topic, 1)] == [b"first"]


def test_a_waiting_consumer_gets_records_as_they_arrive(
    address: str, topic: str, library: Library
) -> None:
    with opened(library, address, ConsumerOptions()) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.poll() == []
        for number in range(5):
            library.produce(address, topic, [Sent(value=b"%d" % number)], ProducerOptions())
            (received,) = read_count(consumer, 1)
            assert (received.offset, received.value) == (number, b"%d" % number)


def test_the_end_of_a_partition_is_what_was_acknowledged(
    address: str, topic: str, library: Library
) -> None:
    library.produce(address, topic, [Sent(value=b"x")] * 7, ProducerOptions(is_idempotent=True))
    query = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    with WireClient(address) as client:
        answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=[query]))
    assert answer.topics[0].partitions[0].offset == 7
