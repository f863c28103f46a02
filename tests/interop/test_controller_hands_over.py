"""One directory, under Moldau and under Apache Kafka in turns, stopped or killed in between: each
finds the topics, ids, settings and producer ids that the other's controller wrote, and continues.
"""

from functools import partial
from typing import TYPE_CHECKING

import pytest
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode
from support.waiting import wait_for
from support.wire_client import WireClient, has_leaders

from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.interop

PARTITIONS = 3
TIMEOUT_MS = 30_000
NEW_PRODUCER = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
PRODUCER_VERSION = 5
SETTINGS = {"num.partitions": "2"}


def administer(client: WireClient, name: str) -> None:
    """Leaves one topic with a setting and more partitions than it was created with."""
    configs = [CreatableTopicConfig(name="min.insync.replicas", value="1")]
    topics = [
        CreatableTopic(name=each, num_partitions=1, replication_factor=1, configs=configs)
        for each in (name, f"{name}-gone")
    ]
    assert all(t.error_code == 0 for t in client.ask(CreateTopicsRequest(topics=topics)).topics)
    grown = CreatePartitionsTopic(name=name, count=PARTITIONS, assignments=None)
    more = CreatePartitionsRequest(timeout_ms=TIMEOUT_MS, topics=[grown])
    assert client.ask(more).results[0].error_code == 0
    gone = DeleteTopicsRequest(
        timeout_ms=TIMEOUT_MS, topics=[DeleteTopicState(name=f"{name}-gone")]
    )
    assert client.ask(gone).responses[0].error_code == 0
    changed = AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC,
        resource_name=name,
        configs=[AlterableConfig(name="segment.ms", value="123456")],
    )
    (altered,) = client.ask(IncrementalAlterConfigsRequest(resources=[changed])).responses
    assert altered.error_code == 0
    wait_for(partial(has_leaders, client, name, PARTITIONS), f"leaders of {name}")
    wait_for(partial(is_gone, client, f"{name}-gone"), "the deletion")


def is_gone(client: WireClient, name: str) -> bool:
    return all(topic.name != name for topic in client.ask(MetadataRequest(topics=None)).topics)


def new_producer_id(client: WireClient) -> int:
    def is_given() -> bool:
        return bool(client.ask(NEW_PRODUCER, PRODUCER_VERSION).error_code == 0)

    wait_for(is_given, "a producer id")
    return int(client.ask(NEW_PRODUCER, PRODUCER_VERSION).producer_id)


def topic_ids(client: WireClient, names: list[str]) -> dict[str, bytes]:
    for name in names:
        wait_for(partial(has_leaders, client, name, PARTITIONS), f"leaders of {name}")
    everything = client.ask(MetadataRequest(topics=None)).topics
    return {topic.name: bytes(topic.topic_id) for topic in everything}


def segment_ms(client: WireClient, name: str) -> str | None:
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC,
        resource_name=name,
        configuration_keys=["segment.ms"],
    )
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource])).results
    return str(result.configs[0].value)


def test_each_continues_where_the_other_stopped(apache: ApacheOracle, tmp_path: "Path") -> None:
    def moldau() -> LiveNode:
        return LiveMoldau(tmp_path, SETTINGS)

    def kafka() -> LiveNode:
        return LiveBroker(apache, tmp_path, SETTINGS)

    turns: list[tuple[Callable[[], LiveNode], str]] = [
        (moldau, "stop"),
        (kafka, "stop"),
        (moldau, "kill"),
        (kafka, "kill"),
        (moldau, "stop"),
        (kafka, "stop"),
    ]
    known: dict[str, bytes] = {}
    producer_ids: list[int] = []
    for number, (make, ending) in enumerate(turns):
        with make() as node:
            if number == 0:
                node.format()
            node.start()
            with WireClient(node.address) as client:
                assert topic_ids(client, list(known)) == known
                assert all(segment_ms(client, name) == "123456" for name in known)
                administer(client, f"turn-{number}")
                producer_ids.append(new_producer_id(client))
                known = topic_ids(client, [*known, f"turn-{number}"])
            getattr(node, ending)()
    assert len(known) == len(turns)
    assert len(set(producer_ids)) == len(turns)
    assert producer_ids == sorted(producer_ids)
