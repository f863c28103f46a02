"""A client that appends to hundreds of partitions at once does not make others wait until all of
them are on the disk.
"""

from contextlib import closing
from pathlib import Path

from broker.data_node import batch
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic
from system.node.disk_watch import DiskWatch, disk_watch

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.storage.log.flushing import ROUND_LOGS_MAX
from moldau.testing.thread_broker import ThreadBroker

__all__ = ["disk_watch"]

PARTITIONS = 3 * ROUND_LOGS_MAX
VERSION = 9


def produce(topic: str, partitions: int) -> ProduceRequest:
    data = [
        PartitionProduceData(index=number, records=batch(b"value")) for number in range(partitions)
    ]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics)


def assert_appended(client: WireClient) -> None:
    _, answer = client.receive(ApiKey.PRODUCE, VERSION)
    assert isinstance(answer, ProduceResponse)
    codes = {each.error_code for each in answer.responses[0].partition_responses}
    assert codes == {ErrorCode.NONE}


def bytes_in(path: Path, log: str) -> int:
    return sum(each.stat().st_size for each in path.glob(f"**/{log}/*.log"))


def test_others_wait_for_a_part_of_the_partitions_only(
    tmp_path: Path, disk_watch: DiskWatch
) -> None:
    broker = ThreadBroker({"moldau.flush.policy": "group"}, tmp_path)
    broker.start()
    with closing(broker):
        create_topic(broker.bootstrap, "wide", partitions=PARTITIONS)
        create_topic(broker.bootstrap, "other")
        with WireClient(broker.bootstrap) as wide, WireClient(broker.bootstrap) as other:
            disk_watch.block()
            other.send(produce("other", 1), VERSION)
            assert disk_watch.waiting.acquire(timeout=60)
            # A round is running. All of this is for the next ones.
            size = bytes_in(tmp_path, "other-0")
            wide.send(produce("wide", PARTITIONS), VERSION)
            wait_for(lambda: bytes_in(tmp_path, f"wide-{PARTITIONS - 1}") > 0, "all appends")
            other.send(produce("other", 1), VERSION)
            wait_for(lambda: bytes_in(tmp_path, "other-0") > size, "the other's append")
            disk_watch.syncs.clear()
            disk_watch.release()
            for client in (other, other, wide):
                assert_appended(client)
        synced = [path for _, path in disk_watch.syncs if path.endswith(".log")]
        first = next(number for number, path in enumerate(synced) if "other-0" in path)
        assert first <= ROUND_LOGS_MAX
