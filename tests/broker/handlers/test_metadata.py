import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker.controller_bench import PORT, Bench, bench, register_controller
from support.waiting import until

from moldau.core.metadata.image import Endpoint
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.log_records import NoOpRecord
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
)
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.types import ZERO_UUID, Uuid

NOT_ASKED = -(2**31)


async def create(node: Bench, name: str, partitions: int = 1) -> Uuid:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    (made,) = (await node.ask(CreateTopicsRequest(topics=[topic]))).topics
    assert made.error_code == 0, made.error_message
    return Uuid(made.topic_id)


def named(*names: str | None, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


def with_ids(*ids: Uuid) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    return MetadataRequest(topics=topics)


def codes(response: Any) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


async def test_all_topics_or_none(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await create(node, "a", 2)
        await create(node, "b")
        for version in range(14):
            everything = MetadataRequest(topics=None) if version else MetadataRequest(topics=[])
            described = await node.serve(everything, version)
            assert set(codes(described)) == {"a", "b"}
            if version:
                assert (await node.serve(MetadataRequest(topics=[]), version)).topics == []
        described = await node.serve(MetadataRequest(topics=[]))
        assert [broker.node_id for broker in described.brokers] == [1]
        assert (described.brokers[0].host, described.brokers[0].port) == ("here", 9092)
        assert (described.controller_id, described.cluster_id) == (1, "MetadataTestCluster00Q")


async def test_partitions_are_described_with_leader_and_replicas(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        topic_id = await create(node, "t", 2)
        (topic,) = (await node.serve(named("t"))).topics
        assert (topic.topic_id, topic.is_internal) == (topic_id, False)
        assert [each.partition_index for each in topic.partitions] == [0, 1]
        for each in topic.partitions:
            assert (each.error_code, each.leader_id, each.leader_epoch) == (0, 1, 0)
            assert each.replica_nodes == each.isr_nodes == [1]
            assert each.offline_replicas == []


async def test_topics_are_found_by_id(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        topic_id, unknown = await create(node, "t"), Uuid(b"u" * 16)
        described = await node.serve(with_ids(topic_id, unknown))
        assert {topic.topic_id: (topic.name, topic.error_code) for topic in described.topics} == {
            topic_id: ("t", ErrorCode.NONE),
            unknown: (None, ErrorCode.UNKNOWN_TOPIC_ID),
        }
        for version in (10, 11):
            (refused,) = (await node.serve(with_ids(topic_id), version)).topics
            assert (refused.error_code, refused.name) == (ErrorCode.INVALID_REQUEST, "")


async def test_a_requested_topic_is_created(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", {"num.partitions": "3"}) as node:
        answers = await asyncio.gather(*(node.serve(named("new")) for _ in range(5)))
        ids = {topic.topic_id for answer in answers for topic in answer.topics}
        assert len(ids) == 1
        assert len(node.image.topics["new"].partitions) == 3
        assert codes(answers[0]) == {"new": ErrorCode.NONE}


async def test_old_versions_cannot_disable_topic_creation(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await node.serve(named("new"), 3)
        assert "new" in node.image.topics


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"auto.create.topics.enable": "false"}, {}),
        ({}, {"allow_auto_topic_creation": False}),
    ],
)
async def test_topics_are_not_created_unless_client_and_node_allow_it(
    tmp_path: Path, settings: dict[str, str], fields: dict[str, Any]
) -> None:
    async with bench(tmp_path / "data", settings) as node:
        described = await node.serve(named("new", "a/b", **fields))
        assert codes(described) == {
            "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert not node.image.topics


async def test_topics_that_cannot_be_made_are_unknown(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", {"default.replication.factor": "3"}) as node:
        assert codes(await node.serve(named("new", ".."))) == {
            "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }


async def test_internal_topics_are_made_with_their_own_settings(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", {"offsets.topic.num.partitions": "4"}) as node:
        (topic,) = (await node.serve(named("__consumer_offsets"))).topics
        assert (topic.is_internal, len(topic.partitions)) == (True, 4)
        outcomes = await node.topic_creation.ensure(["__transaction_state", "__share_group_state"])
        assert set(outcomes.values()) == {ErrorCode.NONE}
        from moldau.protocol.enums import ConfigResourceType

        configs = node.image.config_of(ConfigResourceType.TOPIC, "__consumer_offsets")
        assert configs == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        assert await node.topic_creation.ensure(["__consumer_offsets"]) == {
            "__consumer_offsets": ErrorCode.NONE
        }


async def test_authorized_operations_are_returned_on_request(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await create(node, "t")
        silent = await node.serve(named("t"), 8)
        assert silent.cluster_authorized_operations == NOT_ASKED
        assert silent.topics[0].topic_authorized_operations == NOT_ASKED
        wanted = named(
            "t",
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        described = await node.serve(wanted, 8)
        # Apache Kafka 4.3.1 returns these without an authorizer.
        assert described.cluster_authorized_operations == 0b1111110100000
        assert described.topics[0].topic_authorized_operations == 0b110111111000
        # One client's authorized operations do not leak into another's response.
        assert (await node.serve(named("t"), 8)).topics[0].topic_authorized_operations == NOT_ASKED


async def test_a_response_is_reused_until_something_changes(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await create(node, "t")
        first, second = [(await node.serve(named("t"))).topics[0] for _ in range(2)]
        assert first is second
        await node.quorum.wait_committed(node.quorum.append([NoOpRecord()], 1))
        assert (await node.serve(named("t"))).topics[0] is first
        more = CreatePartitionsTopic(name="t", count=2, assignments=None)
        grown = CreatePartitionsRequest(topics=[more], timeout_ms=60_000)
        assert (await node.ask(grown)).results[0].error_code == 0
        described = await node.serve(named("t"))
        assert len(described.topics[0].partitions) == 2
        node.lifecycle.advertise([Endpoint("PLAINTEXT", "there", PORT)])
        await until(lambda: node.image.brokers[1].endpoints["PLAINTEXT"].host == "there")
        assert (await node.serve(named("t"))).brokers[0].host == "there"


async def test_leaders_that_a_listener_does_not_reach(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await create(node, "t")
        for version, code in (
            (13, ErrorCode.LISTENER_NOT_FOUND),
            (6, ErrorCode.LISTENER_NOT_FOUND),
            (5, ErrorCode.LEADER_NOT_AVAILABLE),
        ):
            described = await node.serve(named("t"), version, listener="OTHER")
            (partition,) = described.topics[0].partitions
            assert (partition.error_code, partition.leader_id) == (code, -1)
            assert partition.offline_replicas == [1]
            assert partition.replica_nodes == [1]
            assert described.brokers == []
        oldest = await node.serve(named("t"), 0, listener="OTHER")
        assert oldest.topics[0].partitions[0].replica_nodes == []


async def test_partitions_without_a_leader(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await create(node, "t")
        await node.lifecycle.leave(10_000)
        described = await node.serve(named("t"))
        (partition,) = described.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        # Clients that receive an empty list would forget their broker.
        assert ([broker.node_id for broker in described.brokers], described.controller_id) == (
            [1],
            -1,
        )
        described = await node.serve(DescribeClusterRequest(include_fenced_brokers=True))
        assert [(each.broker_id, each.is_fenced) for each in described.brokers] == [(1, True)]


async def test_the_cluster_is_described(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        for version in range(3):
            described = await node.serve(DescribeClusterRequest(), version)
            assert (described.error_code, described.controller_id, described.endpoint_type) == (
                0,
                1,
                1,
            )
            assert [(each.broker_id, each.port) for each in described.brokers] == [(1, 9092)]
            assert described.cluster_authorized_operations == NOT_ASKED
        requested = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert (await node.serve(requested)).cluster_authorized_operations == 0b1111110100000
        wrong = await node.serve(DescribeClusterRequest(endpoint_type=2))
        assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        unknown = await node.serve(DescribeClusterRequest(endpoint_type=9))
        assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


async def test_controllers_are_described_on_their_own_listener(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        await register_controller(node)
        requested = DescribeClusterRequest(endpoint_type=2)
        described = await node.serve(requested, listener="CONTROLLER")
        assert (described.error_code, described.controller_id, described.endpoint_type) == (0, 1, 2)
        assert [each.broker_id for each in described.brokers] == [1]
        wrong = await node.serve(DescribeClusterRequest(), listener="CONTROLLER")
        assert wrong.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def describe(*names: str, limit: int = 2000, at: tuple[str, int] | None = None) -> Any:
    cursor = at and DescribeTopicPartitionsRequestCursor(topic_name=at[0], partition_index=at[1])
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


async def test_topics_are_described_page_by_page(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        for name, count in (("b", 3), ("a", 2), ("c", 1)):
            await create(node, name, count)
        pages, cursor = [], None
        for _ in range(10):
            described = await node.serve(describe(limit=2, at=cursor))
            pages.append(
                [
                    (t.name, [each.partition_index for each in t.partitions])
                    for t in described.topics
                ]
            )
            if described.next_cursor is None:
                break
            cursor = (described.next_cursor.topic_name, described.next_cursor.partition_index)
        assert pages == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]


async def test_described_topics_report_their_errors(tmp_path: Path) -> None:
    async with bench(tmp_path / "data", {"max.request.partition.size.limit": "1"}) as node:
        await create(node, "b", 2)
        described = await node.serve(describe("missing", "a/b"))
        assert {t.name: (t.error_code, t.topic_id) for t in described.topics} == {
            "a/b": (ErrorCode.INVALID_TOPIC_EXCEPTION, ZERO_UUID),
            "missing": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ZERO_UUID),
        }
        (topic,) = (await node.serve(describe("b"))).topics
        assert [each.partition_index for each in topic.partitions] == [0]
        assert topic.topic_authorized_operations == 0b110111111000
        from moldau.protocol.errors import KafkaError

        for wrong in (describe("b", at=("c", 0)), describe("b", at=("b", -1))):
            with pytest.raises(KafkaError) as refused:
                await node.serve(wrong)
            assert refused.value.code is ErrorCode.INVALID_REQUEST
