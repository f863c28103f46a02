"""A live Apache Kafka 4.3.1 and our logs take turns on one directory without losing anything."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interop.apache import ApacheOracle
from interop.dump import faults
from interop.live_broker import CLIENT_TIMEOUT_S, LiveBroker, Served, ServedRecord
from interop.our_logs import Writer, read_all
from interop.our_node import NOW_MS, OurNode
from interop.workload import BASE_MS, CODECS, PARTITIONS, SEGMENT_BYTES, fill, read_everything

from moldau.config.log import LogConfig
from moldau.protocol.records.compression import Compression
from moldau.storage.log.log import Log
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop
# The topics' settings at creation that affect the files.
CONFIGS = {
    "segmented": LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1),
    "append-time": LogConfig(message_timestamp_type="LogAppendTime", retention_ms=-1),
    "compacted": LogConfig(cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES),
}
COMPACTED = TopicPartition("compacted", 0)


@pytest.fixture
def broker(apache: ApacheOracle, tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(apache, tmp_path) as broker:
        broker.format()
        broker.start()
        yield broker


def last_values(records: list[ServedRecord]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def extend(node: OurNode) -> None:
    """Append to every log what a broker would: each codec, a new segment, transactions."""
    for partition, codec in enumerate(CODECS):
        log = node[TopicPartition("codecs", partition)]
        writer = Writer(log, codec=Compression[codec.upper()])
        for batch in range(20):
            records = [(NOW_MS + n, b"%d" % n, b"ours %d " % n * batch) for n in range(10)]
            writer.append(records, NOW_MS, headers=(("ours", b"\x00"), ("none", None)))
    segmented = Writer(node[TopicPartition("segmented", 0)], producer_id=7000)
    chance = random.Random(7)
    for _ in range(40):
        segmented.append([(NOW_MS, b"ours", chance.randbytes(30_000))] * 2, NOW_MS)
    Writer(node[TopicPartition("append-time", 0)]).append([(5, b"k", b"v")] * 9, NOW_MS)
    for partition in range(2):
        log = node[TopicPartition("transactions", partition)]
        extend_with_transactions(log)
    compacted = Writer(node[COMPACTED], codec=Compression.GZIP)
    compacted.append([(NOW_MS, b"key-%d" % n, b"ours") for n in range(0, 30, 3)], NOW_MS)
    compacted.append([(NOW_MS, b"key-1", None)], NOW_MS)


def extend_with_transactions(log: Log) -> None:
    writers = [Writer(log, producer_id=8000 + n) for n in range(2)]
    for turn in range(12):
        writer = writers[turn % 2]
        writer.append([(NOW_MS, b"ours", b"turn %d" % turn)] * 4, NOW_MS, is_transactional=True)
        if turn % 4 >= 2:
            writer.end_transaction(NOW_MS, commit=turn % 4 == 2)


def our_view(node: OurNode) -> tuple[Served, Served]:
    """The records that our logs would return to consumers of either isolation level."""
    return (
        {name: read_all(node[name]) for name in PARTITIONS},
        {name: read_all(node[name], committed=True) for name in PARTITIONS},
    )


def produce_more(broker: LiveBroker) -> dict[TopicPartition, int]:
    """Let Apache append one record to every partition. Returns the offset of each."""
    offsets: dict[TopicPartition, int] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets[TopicPartition(message.topic(), message.partition())] = message.offset()

    producer = broker.producer(enable_idempotence=True)
    for name in PARTITIONS:
        producer.produce(
            name.topic, key=b"after", value=b"theirs", partition=name.partition,
            timestamp=BASE_MS, on_delivery=delivered,
        )  # fmt: skip
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    return offsets


@pytest.mark.parametrize(
    ("apache_ends", "we_end"), [("killed", "clean stop"), ("clean stop", "killed")]
)
def test_apache_writes_we_recover_extend_and_compact_and_apache_serves_the_result(
    apache: ApacheOracle, broker: LiveBroker, apache_ends: str, we_end: str
) -> None:
    open_producer = fill(broker)
    served = read_everything(broker)
    if apache_ends == "killed":
        broker.kill()
    else:
        broker.stop()
    del open_producer

    with OurNode(broker.log_folder, configs=CONFIGS) as node:
        assert our_view(node) == served
        extend(node)
        before = last_values(read_all(node[COMPACTED]))
        node[COMPACTED].roll(NOW_MS)
        node.compact(node[COMPACTED], NOW_MS)
        ours = our_view(node)
        ends = {name: node[name].log_end_offset for name in PARTITIONS}
        assert last_values(ours[0][COMPACTED]) == before
        assert len(ours[0][COMPACTED]) < len(served[0][COMPACTED]) // 4
        if we_end == "clean stop":
            node.stop()
        else:
            node.crash()

    broker.start()
    assert read_everything(broker) == ours
    assert produce_more(broker) == ends
    broker.stop()
    for name in PARTITIONS:
        gaps_allowed = name == COMPACTED
        assert faults(apache, broker.log_folder / str(name), gaps_allowed=gaps_allowed) == []


@pytest.mark.parametrize("we_end", ["clean stop", "killed"])
def test_logs_written_by_moldau_alone_are_served_by_apache(broker: LiveBroker, we_end: str) -> None:
    """Expected are the records appended to our log, not those it reads back."""
    broker.create_topic("ours", len(CODECS), retention_ms="-1", segment_bytes=str(SEGMENT_BYTES))
    broker.stop()
    config = LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=-1)
    chance = random.Random(9)
    names = [TopicPartition("ours", partition) for partition in range(len(CODECS))]
    with OurNode(broker.log_folder, configs={"ours": config}) as node:
        writers = {
            name: Writer(node[name], codec=Compression[codec.upper()], producer_id=600 + n)
            for n, (name, codec) in enumerate(zip(names, CODECS, strict=True))
        }
        for batch in range(60):
            now_ms = BASE_MS + batch * 60_000
            for writer in writers.values():
                records = [
                    (now_ms + n, chance.choice([None, b"k"]), chance.randbytes(n * 90))
                    for n in range(25)
                ]
                writer.append(records, now_ms, headers=(("batch", b"%d" % batch), ("none", None)))
        written = {name: writer.written for name, writer in writers.items()}
        found = {}
        for name in names:
            assert len(node[name].segments) > 1
            for minute in (0, 17, 59):
                time_ms = BASE_MS + minute * 60_000 + 3
                answer = node[name].offset_for_timestamp(time_ms)
                assert answer is not None
                found[name, time_ms] = answer.offset
        if we_end == "clean stop":
            node.stop()
        else:
            node.crash()

    broker.start()
    assert broker.read(names) == written
    assert broker.read(names, committed=True) == written
    assert {
        (name, time_ms): broker.offset_for_time(name, time_ms) for name, time_ms in found
    } == found
