"""timeout_ms of requests that the controller decides, over a socket, on either listener."""

from collections.abc import Iterator

import pytest
from support.wire_client import WireClient

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.testing import broker

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


@pytest.fixture(scope="module")
def client() -> Iterator[WireClient]:
    with broker() as started, WireClient(started.bootstrap) as connected:
        yield connected


def create(client: WireClient, name: str, timeout_ms: int) -> int:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
    code: int = client.ask(request).topics[0].error_code
    return code


def partitions(client: WireClient, name: str) -> int:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    return len(client.ask(request).topics[0].partitions)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_time_nothing_is_done(client: WireClient, timeout_ms: int) -> None:
    assert create(client, "absent", timeout_ms) == TIMED_OUT
    assert partitions(client, "absent") == 0
    name = f"there{timeout_ms}"
    assert create(client, name, 30_000) == 0
    more = CreatePartitionsTopic(name=name, count=2)
    request = CreatePartitionsRequest(topics=[more], timeout_ms=timeout_ms)
    assert client.ask(request).results[0].error_code == TIMED_OUT
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=timeout_ms)
    assert client.ask(deletion).responses[0].error_code == TIMED_OUT
    assert client.ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=timeout_ms)).error_code
    assert partitions(client, name) == 1
