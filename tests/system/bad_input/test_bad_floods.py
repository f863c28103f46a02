"""Floods: of connections, and of unknown producers. Both are slowed down or forgotten, and the node
keeps serving.
"""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.running_node import RunningNode
from support.wire_client import WireClient, create_topic

from moldau.net.clock import Clock
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.codec import TRUSTED_ELEMENT_BUDGET
from moldau.protocol.wire.frame import read_response
from moldau.storage.producers.state import PRODUCER_IDS_MAX
from moldau.types import ProducerEpoch

CONNECTIONS, RATE = 40, 10
EXTRA_PRODUCERS = 100
IN_FLIGHT = 50
PRODUCE_VERSION = 9
MEMORY_MAX = 300 << 20
TOPIC = "flooded"


def test_connections_come_no_faster_than_allowed_and_all_are_served(tmp_path: Path) -> None:
    """BI-016."""
    settings = {"max.connection.creation.rate": str(RATE)}
    with RunningNode(tmp_path, settings) as node, ExitStack() as stack:
        node.start()
        began = time.monotonic()
        clients = [stack.enter_context(WireClient(node.address)) for _ in range(CONNECTIONS)]
        for client in clients:
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            assert client.ask(request, 3).error_code == 0
        # A second's worth may come at once.
        assert time.monotonic() - began > CONNECTIONS / RATE - 2
        assert node.stop() == 0


def first_write(producer_id: int) -> ProduceRequest:
    record = Record(offset=0, timestamp=Clock().wall_ms(), key=None, value=b"v")
    options = BatchOptions(
        producer_id=producer_id, producer_epoch=ProducerEpoch(0), base_sequence=0
    )
    data = PartitionProduceData(index=0, records=build_batch([record], options))
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])


def offsets_of_writes(client: WireClient, producer_ids: range) -> list[int]:
    for producer_id in producer_ids:
        client.send(first_write(producer_id), PRODUCE_VERSION)
    offsets = []
    for _ in producer_ids:
        _, answer = client.receive(ApiKey.PRODUCE, PRODUCE_VERSION)
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code == 0
        offsets.append(partition.base_offset)
    return offsets


@pytest.mark.slow
def test_producers_beyond_the_limit_replace_the_least_recently_used(
    tmp_path: Path,
) -> None:
    """BI-104."""
    total = PRODUCER_IDS_MAX + EXTRA_PRODUCERS
    with RunningNode(tmp_path) as node:
        node.start()
        create_topic(node.address, TOPIC)
        with WireClient(node.address) as client:
            for start in range(0, total, IN_FLIGHT):
                wanted = range(start, start + IN_FLIGHT)
                assert offsets_of_writes(client, wanted) == list(wanted)
            # A remembered producer is recognised, a replaced one is treated as new.
            assert offsets_of_writes(client, range(total - 1, total)) == [total - 1]
            assert offsets_of_writes(client, range(1)) == [total]
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=TOPIC, partition_indexes=[0])]
            )
            client.send(request, 0)
            _, answer = read_response(
                client.receive_frame(), DescribeProducersResponse, 0, budget=TRUSTED_ELEMENT_BUDGET
            )
            assert isinstance(answer, DescribeProducersResponse)
            (partition,) = answer.topics[0].partitions
            assert len(partition.active_producers) == PRODUCER_IDS_MAX
        assert node.resources.memory_info().rss < MEMORY_MAX
        assert node.stop() == 0
