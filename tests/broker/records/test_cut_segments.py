"""Another process truncates a segment under a running node: that costs the truncated records, not
the partition and not the process.
"""

import os
from pathlib import Path

import pytest
from broker.data_node import batch, values_of
from support.wire_client import WireClient

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.testing import broker

VALUE = b"x" * 100_000


def produce(client: WireClient, topic: str, value: bytes) -> None:
    partition = PartitionProduceData(index=0, records=bytes(batch(value)))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    answer = client.ask(request, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def fetch(client: WireClient, topic: str, offset: int = 0) -> PartitionData:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_bytes=1 << 20, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    answer: PartitionData = client.ask(request, 12).responses[0].partitions[0]
    return answer


@pytest.mark.parametrize(("kept", "sound"), [(0, 0), (50, 0), (150_000, 1)])
def test_a_truncated_segment_costs_only_the_truncated_records(
    tmp_path: Path, kept: int, sound: int
) -> None:
    with broker(directory=tmp_path, process=True) as node:
        node.create_topic("cut", config={"segment.bytes": str(1 << 20)})
        node.create_topic("sound")
        with WireClient(node.bootstrap) as client:
            for _ in range(12):
                produce(client, "cut", VALUE)
            produce(client, "sound", b"here")
            assert len(values_of(fetch(client, "cut").records)) > 5
            sealed = min(tmp_path.rglob("cut-0/*.log"))
            os.truncate(sealed, kept)

            for _ in range(2):
                assert fetch(client, "cut", sound).error_code == ErrorCode.CORRUPT_MESSAGE
            assert sound == 0 or values_of(fetch(client, "cut").records) == [VALUE] * sound
            following = sorted(tmp_path.rglob("cut-0/*.log"))[1]
            assert values_of(fetch(client, "cut", int(following.stem)).records)
            produce(client, "cut", VALUE)
            assert values_of(fetch(client, "sound").records) == [b"here"]
            produce(client, "sound", b"still here")
