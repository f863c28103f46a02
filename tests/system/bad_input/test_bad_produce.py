"""Batches that a leader must not accept: the partition gets its error, its neighbours their
records.

The ids are the rows of the project's list of bad inputs, group E.
"""

import gzip
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crc32c import crc32c
from support.running_node import KafkaUnderTest, fresh_name
from support.waiting import wait_for
from support.wire_client import HungUpError, WireClient, create_topic

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.frame import build_request
from moldau.types import ProducerEpoch

VERSION = 9
LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT = 8, 16, 17, 21
LAST_DELTA_AT, BASE_TIME_AT, MAX_TIME_AT = 23, 27, 35
PRODUCER_AT, EPOCH_AT, SEQUENCE_AT, COUNT_AT, RECORDS_AT = 43, 51, 53, 57, 61

NONE, OUT_OF_RANGE, CORRUPT, UNKNOWN_PARTITION, TOO_LARGE = 0, 1, 2, 3, 10
INVALID_TOPIC, LIST_TOO_LARGE, INVALID_ACKS, INVALID_TIMESTAMP = 17, 18, 21, 32
OUT_OF_ORDER, INVALID_EPOCH, NO_TXN_ID, BAD_CODEC = 45, 47, 53, 76
INVALID_REQUEST, INVALID_RECORD = 42, 87


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(*values: bytes, key: bytes | None = b"k", timestamp: int | None = None) -> bytearray:
    when = now_ms() if timestamp is None else timestamp
    records = [
        Record(offset=place, timestamp=when, key=key, value=value)
        for place, value in enumerate(values or (b"v",))
    ]
    return bytearray(build_batch(records))


def sealed(content: bytearray) -> bytearray:
    """The batch with a valid checksum."""
    struct.pack_into(">I", content, CRC_AT, crc32c(bytes(content[ATTRIBUTES_AT:])))
    return content


def patched(place: int, kind: str, value: int, content: bytearray | None = None) -> bytearray:
    changed = batch() if content is None else content
    struct.pack_into(kind, changed, place, value)
    return sealed(changed)


def with_body(body: bytes, *, codec: int = 0, count: int = 1) -> bytearray:
    content = batch()[:RECORDS_AT] + body
    struct.pack_into(">i", content, LENGTH_AT, len(content) - 12)
    struct.pack_into(">h", content, ATTRIBUTES_AT, codec)
    struct.pack_into(">i", content, COUNT_AT, count)
    struct.pack_into(">i", content, LAST_DELTA_AT, count - 1)
    return sealed(content)


def producing(
    topic: str, *parts: tuple[int, bytes | bytearray | None], acks: int = -1
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def codes(response: Any) -> list[int]:
    """By partition: Kafka answers them in any order."""
    parts = [part for topic in response.responses for part in topic.partition_responses]
    return [part.error_code for part in sorted(parts, key=lambda part: part.index)]


@pytest.fixture(scope="module")
def topic(victim: KafkaUnderTest) -> str:
    name = fresh_name("bad-produce")
    create_topic(victim.address, name, partitions=2)
    return name


BAD_BATCHES: dict[str, tuple[int, Callable[[], bytes | bytearray | None]]] = {
    "BI-079 null": (INVALID_RECORD, lambda: None),
    "BI-079 empty": (INVALID_RECORD, lambda: b""),
    "BI-080 two batches": (INVALID_RECORD, lambda: bytes(batch() + batch())),
    "BI-081 magic 0": (INVALID_RECORD, lambda: patched(MAGIC_AT, ">b", 0)),
    "BI-081 magic 1": (INVALID_RECORD, lambda: patched(MAGIC_AT, ">b", 1)),
    "BI-081 magic 3": (CORRUPT, lambda: patched(MAGIC_AT, ">b", 3)),
    "BI-081 magic -1": (CORRUPT, lambda: patched(MAGIC_AT, ">b", -1)),
    "BI-082 length 13": (CORRUPT, lambda: patched(LENGTH_AT, ">i", 13)),
    "BI-082 length -1": (CORRUPT, lambda: patched(LENGTH_AT, ">i", -1)),
    "BI-083 longer than its bytes": (INVALID_RECORD, lambda: patched(LENGTH_AT, ">i", 5000)),
    "BI-083 a piece behind it": (INVALID_RECORD, lambda: bytes(batch() + batch()[:20])),
    "BI-084 checksum": (CORRUPT, lambda: batch()[:-1] + b"\xee"),
    "BI-085 larger than max.message.bytes": (TOO_LARGE, lambda: batch(bytes(1_100_000))),
    "BI-086 base offset": (INVALID_RECORD, lambda: patched(0, ">q", 5)),
    "BI-087 no records": (INVALID_RECORD, lambda: patched(COUNT_AT, ">i", 0)),
    "BI-087 minus one record": (INVALID_RECORD, lambda: patched(COUNT_AT, ">i", -1)),
    "BI-087 two of three": (
        INVALID_RECORD,
        lambda: patched(COUNT_AT, ">i", 2, batch(b"a", b"b", b"c")),
    ),
    "BI-087 last delta": (INVALID_RECORD, lambda: patched(LAST_DELTA_AT, ">i", -1)),
    "BI-088 record longer than the batch": (INVALID_RECORD, lambda: with_body(b"\x7e\0\0\0\1\1\0")),
    "BI-088 bytes left": (INVALID_RECORD, lambda: with_body(bytes(batch()[RECORDS_AT:]) + b"xx")),
    "BI-088 header count": (INVALID_RECORD, lambda: with_body(b"\x0e\0\0\0\1\1\x7e")),
    "BI-088 negative header key": (INVALID_RECORD, lambda: with_body(b"\x10\0\0\0\1\1\2\1")),
    "BI-089 control batch": (INVALID_RECORD, lambda: patched(ATTRIBUTES_AT, ">h", 0x20)),
    "BI-090 producer without sequence": (INVALID_RECORD, lambda: patched(PRODUCER_AT, ">q", 5)),
    "BI-091 codec 5": (BAD_CODEC, lambda: patched(ATTRIBUTES_AT, ">h", 5)),
    "BI-091 codec 7": (BAD_CODEC, lambda: patched(ATTRIBUTES_AT, ">h", 7)),
    "BI-093 garbage in gzip": (CORRUPT, lambda: with_body(b"garbage" * 9, codec=1)),
    "BI-093 garbage in snappy": (CORRUPT, lambda: with_body(b"garbage" * 9, codec=2)),
    "BI-093 garbage in lz4": (CORRUPT, lambda: with_body(b"garbage" * 9, codec=3)),
    "BI-093 garbage in zstd": (CORRUPT, lambda: with_body(b"garbage" * 9, codec=4)),
    "BI-095 tomorrow": (INVALID_TIMESTAMP, lambda: batch(timestamp=now_ms() + 86_400_000)),
    "BI-096 timestamp -5": (
        INVALID_TIMESTAMP,
        lambda: patched(BASE_TIME_AT, ">q", -5, patched(MAX_TIME_AT, ">q", -5)),
    ),
    "BI-097 append time": (INVALID_TIMESTAMP, lambda: patched(ATTRIBUTES_AT, ">h", 8)),
}


@pytest.mark.parametrize(("code", "make"), BAD_BATCHES.values(), ids=list(BAD_BATCHES))
def test_a_bad_batch_is_refused_and_its_neighbour_taken(
    client: WireClient, topic: str, code: int, make: Callable[[], bytes | bytearray | None]
) -> None:
    response = client.ask(producing(topic, (0, make()), (1, bytes(batch()))), VERSION)
    assert codes(response) == [code, NONE]


def test_bi_065_a_transactional_batch_needs_its_id(client: WireClient, topic: str) -> None:
    content = patched(ATTRIBUTES_AT, ">h", 0x10, sequenced(4000, 0, 0))
    assert codes(client.ask(producing(topic, (0, content)), VERSION)) == [NO_TXN_ID]


def test_bi_075_strange_acks(client: WireClient, topic: str) -> None:
    request = producing(topic, (0, bytes(batch())), acks=2)
    assert codes(client.ask(request, VERSION)) == [INVALID_ACKS]


def test_bi_076_an_error_without_acks_ends_the_connection(client: WireClient) -> None:
    client.send(producing(fresh_name("absent"), (0, bytes(batch())), acks=0), VERSION)
    assert client.hangs_up()


def test_acks_0_is_not_answered(client: WireClient, topic: str) -> None:
    client.send(producing(topic, (0, bytes(batch())), acks=0), VERSION)
    assert codes(client.ask(producing(topic, (0, bytes(batch()))), VERSION)) == [NONE]


@pytest.mark.parametrize("index", [-1, 2, 1_000_000])
def test_bi_078_unknown_partitions(client: WireClient, topic: str, index: int) -> None:
    response = client.ask(producing(topic, (index, bytes(batch()))), VERSION)
    assert codes(response) == [UNKNOWN_PARTITION]


def test_bi_085_larger_than_a_segment(client: WireClient, victim: KafkaUnderTest) -> None:
    name = fresh_name("small-segments")
    configs = {"segment.bytes": "1048576", "max.message.bytes": "5000000"}
    create_topic(victim.address, name, configs=configs)
    response = client.ask(producing(name, (0, bytes(batch(bytes(2_000_000))))), VERSION)
    assert codes(response) == [LIST_TOO_LARGE]


def test_bi_092_zstd_is_for_newer_clients(client: WireClient, topic: str) -> None:
    content = bytes(patched(ATTRIBUTES_AT, ">h", 4))
    assert codes(client.ask(producing(topic, (0, content)), 6)) == [BAD_CODEC]


def test_bi_094_a_decompression_bomb_is_not_inflated(client: WireClient, topic: str) -> None:
    # A gigabyte of zeros in one megabyte.
    bomb = gzip.compress(bytes(1 << 28), 9)
    content = with_body(bomb, codec=1)
    (code,) = codes(client.ask(producing(topic, (0, content)), VERSION))
    assert code in {CORRUPT, TOO_LARGE, INVALID_RECORD}


def test_bi_098_a_compacted_topic_wants_keys(client: WireClient, victim: KafkaUnderTest) -> None:
    name = fresh_name("compacted")
    create_topic(victim.address, name, configs={"cleanup.policy": "compact"})
    response = client.ask(producing(name, (0, bytes(batch(key=None)))), VERSION)
    assert codes(response) == [INVALID_RECORD]
    (answer,) = response.responses[0].partition_responses
    assert [error.batch_index for error in answer.record_errors] == [0]


@pytest.fixture(scope="module")
def offsets_topic(victim: KafkaUnderTest) -> Iterator[str]:
    with WireClient(victim.address) as client:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["anybody"])
        wait_for(lambda: client.ask(request, 4).coordinators[0].error_code == 0, "a coordinator")
        yield "__consumer_offsets"


@pytest.mark.parametrize("client_id", ["anybody", "__admin_client"])
def test_bi_099_internal_topics_are_not_for_clients(
    victim: KafkaUnderTest, offsets_topic: str, client_id: str
) -> None:
    with WireClient(victim.address, client_id) as client:
        response = client.ask(producing(offsets_topic, (0, bytes(batch()))), VERSION)
        assert codes(response) == [INVALID_TOPIC]


def sequenced(producer_id: int, epoch: int, sequence: int) -> bytearray:
    options = BatchOptions(
        producer_id=producer_id, producer_epoch=ProducerEpoch(epoch), base_sequence=sequence
    )
    record = Record(offset=0, timestamp=now_ms(), key=b"k", value=b"%d" % sequence)
    return bytearray(build_batch([record], options))


def test_bi_100_sequences_have_no_gaps_and_repeats_get_their_old_offset(
    client: WireClient, topic: str
) -> None:
    producer_id = client.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id

    def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
        content = bytes(sequenced(producer_id, epoch, sequence))
        response = client.ask(producing(topic, (0, content)), VERSION)
        (answer,) = response.responses[0].partition_responses
        return answer.error_code, answer.base_offset

    offsets = [send(sequence) for sequence in range(7)]
    assert [code for code, _ in offsets] == [NONE] * 7
    assert send(6) == offsets[6]
    assert send(2) == offsets[2]
    assert send(9)[0] == OUT_OF_ORDER
    assert send(1)[0] in {OUT_OF_ORDER, 46}
    assert send(0, epoch=1)[0] == NONE
    assert send(7)[0] == INVALID_EPOCH


def test_bi_140_a_transactional_id_is_not_empty(client: WireClient) -> None:
    assert client.ask(InitProducerIdRequest(transactional_id=""), 4).error_code == INVALID_REQUEST


def test_bi_142_a_producer_id_has_an_epoch(client: WireClient) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=5)
    assert client.ask(request, 4).error_code == INVALID_REQUEST


def test_a_hang_up_in_the_middle_of_a_batch_appends_nothing(
    victim: KafkaUnderTest, topic: str, client: WireClient
) -> None:
    before = client.ask(producing(topic, (1, bytes(batch()))), VERSION)
    with WireClient(victim.address) as leaving:
        request = producing(topic, (1, bytes(batch(bytes(500_000)))))
        whole = b"".join(build_request(request, VERSION, correlation_id=1, client_id=None))
        leaving.send_raw(whole[:300_000])
        leaving.finish_sending()
        with pytest.raises(HungUpError):
            leaving.receive(ApiKey.PRODUCE, VERSION)
    after = client.ask(producing(topic, (1, bytes(batch()))), VERSION)
    first, second = (each.responses[0].partition_responses[0] for each in (before, after))
    assert second.base_offset == first.base_offset + 1
