"""A client that appends faster than the disk writes waits for the disk, whether or not it waits for
responses. Other clients are served meanwhile.
"""

import threading
from contextlib import closing
from pathlib import Path

import pytest
from broker.data_node import batch
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic
from system.node.disk_watch import DiskWatch, disk_watch

from moldau.broker.replicas.flush_backlog import BACKLOG_BYTES_MAX
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.testing.thread_broker import ThreadBroker

__all__ = ["disk_watch"]

BATCH_BYTES = 500_000
BATCHES = 100
VERSION = 9
FAST, OTHER = "fast", "other"


def produce(topic: str, acks: int, value: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=batch(value))
    topics = [TopicProduceData(name=topic, partition_data=[partition])]
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=topics)


def size_of(path: Path, topic: str) -> int:
    return sum(each.stat().st_size for each in path.glob(f"**/{topic}-0/*.log"))


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_waiting_for_the_disk_is_bounded_and_delays_no_other_client(
    tmp_path: Path, disk_watch: DiskWatch, acks: int
) -> None:
    whole = BATCHES * BATCH_BYTES
    broker = ThreadBroker({"moldau.flush.policy": "group"}, tmp_path)
    broker.start()
    with closing(broker):
        for topic in (FAST, OTHER):
            create_topic(broker.bootstrap, topic)
        with (
            WireClient(broker.bootstrap) as fast,
            WireClient(broker.bootstrap) as other,
            WireClient(broker.bootstrap) as reader,
        ):
            disk_watch.block()
            other.send(produce(OTHER, -1, b"first"), VERSION)
            assert disk_watch.waiting.acquire(timeout=60)
            flood = produce(FAST, acks, bytes(BATCH_BYTES))

            def send() -> None:
                for _ in range(BATCHES):
                    fast.send(flood, VERSION)

            sending = threading.Thread(target=send)
            sending.start()
            wait_for(lambda: size_of(tmp_path, FAST) >= BACKLOG_BYTES_MAX, "a full backlog")
            # Other clients append, and get their responses.
            reader.send(produce(OTHER, 1, b"second"), VERSION)
            _, answer = reader.receive(ApiKey.PRODUCE, VERSION)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert size_of(tmp_path, FAST) < BACKLOG_BYTES_MAX + 2 * BATCH_BYTES
            disk_watch.release()
            _, answer = other.receive(ApiKey.PRODUCE, VERSION)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            sending.join(60)
            wait_for(lambda: size_of(tmp_path, FAST) >= whole, "all records")
