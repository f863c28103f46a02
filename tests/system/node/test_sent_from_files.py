"""Large fetches are sent from the page cache: with the same bytes as any other, despite changes of
the files meanwhile, and no matter how slowly a client reads.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running_node import QUICK_SETTINGS, RunningNode
from support.waiting import wait_for
from support.wire_client import HungUpError, WireClient, create_topic

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record, RecordBatch, iterate_batches

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sent from files on Linux alone")

TOPIC = "large"
VALUE_BYTES = 100_000
RECORDS = 80
FETCH_VERSION = 12
FETCH_BYTES = 1 << 20
ROUNDS = 30
RESIDENT_MB_MAX = 40
VALUES = [bytes([65 + number % 26]) * VALUE_BYTES for number in range(RECORDS)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path, QUICK_SETTINGS) as node:
        node.start()
        create_topic(node.address, TOPIC, configs={"internal.segment.bytes": "3000000"})
        with WireClient(node.address) as client:
            for value in VALUES:
                records = build_batch([Record(offset=0, timestamp=0, key=None, value=value)])
                data = PartitionProduceData(index=0, records=bytes(records))
                topic = TopicProduceData(name=TOPIC, partition_data=[data])
                answer = client.ask(
                    ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9
                )
                assert answer.responses[0].partition_responses[0].error_code == 0
        yield node
        assert node.stop() == 0
        assert "Traceback" not in node.errors


def fetch_from(offset: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
    )


def records_of(answer: object) -> list[tuple[int, bytes | None]]:
    (partition,) = answer.responses[0].partitions  # type: ignore[attr-defined]
    assert partition.error_code == 0
    batches: list[RecordBatch] = list(iterate_batches(partition.records))
    for batch in batches:
        batch.check_crc()
    return [(record.offset, record.value) for batch in batches for record in batch.records()]


def resident_mb(node: RunningNode) -> float:
    assert node.process is not None
    for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def segments(node: RunningNode) -> list[Path]:
    return sorted(node.folder.glob(f"**/{TOPIC}-0/*.log"))


def test_all_bytes_arrive_and_none_stay_counted_as_memory(node: RunningNode) -> None:
    with WireClient(node.address) as client:
        client.ask(fetch_from(0), FETCH_VERSION)
        before_mb = resident_mb(node)
        for _ in range(ROUNDS):
            offset, values = 0, []
            while offset < RECORDS:
                read = records_of(client.ask(fetch_from(offset), FETCH_VERSION))
                values += [value for _, value in read]
                offset = read[-1][0] + 1
            assert values == VALUES
        assert resident_mb(node) - before_mb < RESIDENT_MB_MAX


def test_a_client_that_reads_later_gets_the_same_though_the_topic_is_gone(
    node: RunningNode,
) -> None:
    with WireClient(node.address) as slow, WireClient(node.address) as other:
        requested = range(0, RECORDS, 10)
        for offset in requested:
            slow.send(fetch_from(offset), FETCH_VERSION)
        wait_for(slow.has_answer, "the first answer")
        answer = other.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000), 5)
        assert answer.responses[0].error_code == 0
        wait_for(lambda: not segments(node), "the topic's files to be renamed")
        first = records_of(slow.receive(ApiKey.FETCH, FETCH_VERSION)[1])
        assert [value for _, value in first] == VALUES[: len(first)]
        assert len(first) >= 9
        for _ in requested[1:]:
            # Partitions that were not begun before have an error, and no records.
            _, answer = slow.receive(ApiKey.FETCH, FETCH_VERSION)
            (partition,) = answer.responses[0].partitions
            assert partition.error_code or records_of(answer)


def test_requests_that_queue_are_answered_in_order(node: RunningNode) -> None:
    with WireClient(node.address) as client:
        requested = [0, 40, 20, 60, 10]
        for offset in requested:
            client.send(fetch_from(offset), FETCH_VERSION)
        for offset in requested:
            read = records_of(client.receive(ApiKey.FETCH, FETCH_VERSION)[1])
            assert read[0] == (offset, VALUES[offset])


def test_a_truncated_file_does_not_end_the_node(node: RunningNode) -> None:
    with WireClient(node.address) as client:
        client.ask(fetch_from(0), FETCH_VERSION)
        os.truncate(segments(node)[0], 500_000)
        try:
            answer = client.ask(fetch_from(0), FETCH_VERSION)
        except HungUpError:
            pass
        else:
            (partition,) = answer.responses[0].partitions
            assert partition.error_code or partition.records
    with WireClient(node.address) as client:
        assert client.ask(ApiVersionsRequest(), 2).error_code == 0
