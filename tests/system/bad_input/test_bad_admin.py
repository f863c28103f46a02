"""Invalid topics, settings and groups.

The ids are the rows of the project's list of bad inputs, groups G and H.
"""

from typing import Any

import pytest
from support.running_node import KafkaUnderTest, fresh_name
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic

from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.wire.schema import Message

TOO_MANY_RECORDS = 44


TOPIC = 2
LONGEST_NAME = "a" * 32_767
SET = 0


def creating(*topics: CreatableTopic) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=30_000)


def topic(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def codes(response: Any) -> list[int]:
    return [each.error_code for each in response.topics]


BAD_TOPICS: dict[str, tuple[int, CreatableTopic]] = {
    "BI-115 empty": (17, topic("")),
    "BI-115 dot": (17, topic(".")),
    "BI-115 two dots": (17, topic("..")),
    "BI-115 250 characters": (17, topic("t" * 250)),
    "BI-116 path": (17, topic("../../etc/passwd")),
    "BI-116 slash": (17, topic("a/b")),
    "BI-116 zero byte": (17, topic("a\0b")),
    "BI-116 umlaut": (17, topic("ü")),
    "BI-116 blank": (17, topic("a b")),
    "BI-118 no partitions": (37, topic("t-none", 0)),
    "BI-118 minus five partitions": (37, topic("t-negative", -5)),
    "BI-118 no replicas": (38, topic("t-replicas", 1, 0)),
    "BI-118 minus two replicas": (38, topic("t-replicas", 1, -2)),
    "BI-118 more replicas than brokers": (38, topic("t-replicas", 1, 3)),
    "BI-119 a million partitions": (44, topic("t-million", 1_000_000)),
    "BI-121 the metadata log": (42, topic("__cluster_metadata")),
    "BI-124 nonsense value": (40, topic("t-config", retention_ms="abc")),
    "BI-124 nonsense name": (40, topic("t-config", retention_mss="1")),
    "BI-124 out of bounds": (40, topic("t-config", min_cleanable_dirty_ratio="7")),
}


@pytest.mark.parametrize(("code", "wanted"), BAD_TOPICS.values(), ids=list(BAD_TOPICS))
def test_a_topic_that_cannot_be_is_not_made(
    client: WireClient, code: int, wanted: CreatableTopic
) -> None:
    sibling = fresh_name("sibling")
    response = client.ask(creating(wanted, topic(sibling)), 7)
    answers = {each.name: each for each in response.topics}
    assert answers[wanted.name].error_code == code
    assert answers[wanted.name].error_message
    # Too many records are too many for the whole request.
    assert answers[sibling].error_code == (code if code == TOO_MANY_RECORDS else 0)


def test_bi_117_names_that_metrics_would_confuse(client: WireClient) -> None:
    stem = fresh_name("collides")
    assert codes(client.ask(creating(topic(f"{stem}.b")), 7)) == [0]
    assert codes(client.ask(creating(topic(f"{stem}_b")), 7)) == [17]


def test_many_topics_that_cannot_be_made_are_one_line_of_the_log(client: WireClient) -> None:
    """The fixture around each test counts the lines."""
    prefix = fresh_name("many")
    dotted = [f"{prefix}.{number}" for number in range(10)]
    assert set(codes(client.ask(creating(*map(topic, dotted)), 7))) == {0}
    requested = [MetadataRequestTopic(name=name.replace(".", "_")) for name in dotted]
    answer = client.ask(MetadataRequest(topics=requested, allow_auto_topic_creation=True))
    assert set(codes(answer)) == {3}


def test_bi_120_a_topic_twice(client: WireClient) -> None:
    name = fresh_name("twice")
    assert set(codes(client.ask(creating(topic(name), topic(name)), 7))) == {42}


def test_bi_120_assignments_that_cannot_be(client: WireClient) -> None:
    def assigned(*brokers: list[int], partitions: int = -1, start: int = 0) -> CreatableTopic:
        wanted = topic(fresh_name("assigned"), partitions, -1)
        wanted.assignments = [
            CreatableReplicaAssignment(partition_index=start + index, broker_ids=ids)
            for index, ids in enumerate(brokers)
        ]
        return wanted

    node = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["anybody"]), 4)
    own = max(node.coordinators[0].node_id, 1)
    both = assigned([own], partitions=1)
    gap = assigned([own], start=5)
    doubled = assigned([own, own])
    stranger = assigned([own + 4711])
    assert codes(client.ask(creating(both, gap, doubled, stranger), 7)) == [42, 39, 39, 39]


def test_bi_122_internal_topics_are_not_deleted(client: WireClient) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["anybody"])
    wait_for(lambda: client.ask(request, 4).coordinators[0].error_code == 0, "a coordinator")
    wanted = DeleteTopicsRequest(topics=[DeleteTopicState(name="__consumer_offsets")])
    wanted.timeout_ms = 10_000
    (answer,) = client.ask(wanted, 6).responses
    assert answer.error_code != 0
    assert client.ask(request, 4).coordinators[0].error_code == 0


def test_bi_123_a_topic_is_named_or_numbered(client: WireClient) -> None:
    both = DeleteTopicState(name="t", topic_id=bytes(range(16)))  # type: ignore[arg-type]
    neither = DeleteTopicState(name=None)
    wanted = DeleteTopicsRequest(topics=[both, neither], timeout_ms=10_000)
    assert {each.error_code for each in client.ask(wanted, 6).responses} <= {42, 100}


def test_bi_127_partitions_do_not_become_fewer(client: WireClient, victim: KafkaUnderTest) -> None:
    name = fresh_name("shrinking")
    create_topic(victim.address, name, partitions=3)
    wanted = CreatePartitionsTopic(name=name, count=2, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000)
    assert [each.error_code for each in client.ask(request, 3).results] == [37]


# Groups


def joining(group: str, member_id: str = "", **more: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=more.pop("metadata", b""))]
    options = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000} | more
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols,
        **options,
    )


@pytest.fixture
def group(client: WireClient) -> str:
    name = fresh_name("group")
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[name])
    wait_for(lambda: client.ask(request, 4).coordinators[0].error_code == 0, "a coordinator")
    wait_for(lambda: client.ask(joining(name), 9).error_code == 79, "a loaded coordinator")
    return name


def joined(client: WireClient, group: str, **more: Any) -> tuple[str, int]:
    """Member id and generation of a group's only member."""
    member_id = client.ask(joining(group, **more), 9).member_id
    answer = client.ask(joining(group, member_id, **more), 9)
    assert answer.error_code == 0
    sync = SyncGroupRequest(
        group_id=group, generation_id=answer.generation_id, member_id=answer.member_id
    )
    assert client.ask(sync, 3).error_code == 0
    return answer.member_id, answer.generation_id


def test_bi_128_a_group_has_a_name(client: WireClient, group: str) -> None:
    assert client.ask(joining(""), 9).error_code == 24


@pytest.mark.parametrize("session_timeout_ms", [0, -1, 5_999, 1_800_001, 2**31 - 1])
def test_bi_129_session_timeouts_have_bounds(
    client: WireClient, group: str, session_timeout_ms: int
) -> None:
    request = joining(group, session_timeout_ms=session_timeout_ms)
    assert client.ask(request, 9).error_code == 26


def test_bi_130_the_first_join_asks_for_a_member_id(client: WireClient, group: str) -> None:
    answer = client.ask(joining(group), 9)
    assert (answer.error_code, bool(answer.member_id)) == (79, True)


def test_bi_131_a_guessed_member_id(client: WireClient, group: str) -> None:
    joined(client, group)
    assert client.ask(joining(group, "guessed"), 9).error_code == 25
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="guessed")
    assert client.ask(beat, 4).error_code == 25


def test_bi_132_an_instance_that_was_replaced_is_fenced(client: WireClient, group: str) -> None:
    first = client.ask(joining(group, group_instance_id="one"), 9)
    assert first.error_code == 0
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=first.generation_id,
        member_id=first.member_id,
        group_instance_id="one",
    )
    client.ask(sync, 3)
    second = client.ask(joining(group, group_instance_id="one"), 9)
    assert second.error_code == 0
    beat = HeartbeatRequest(
        group_id=group,
        generation_id=first.generation_id,
        member_id=first.member_id,
        group_instance_id="one",
    )
    assert client.ask(beat, 4).error_code == 82


def test_bi_133_other_generations_and_protocols(client: WireClient, group: str) -> None:
    member_id, generation = joined(client, group)
    for wrong in (generation - 1, generation + 1):
        beat = HeartbeatRequest(group_id=group, generation_id=wrong, member_id=member_id)
        assert client.ask(beat, 4).error_code == 22
    other = joining(group)
    other.protocol_type = "connect"
    assert client.ask(other, 3).error_code == 23
    unnamed = joining(group)
    unnamed.protocols = []
    assert client.ask(unnamed, 3).error_code == 23


def committing(group: str, name: str, index: int = 0, **more: Any) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=1,
        committed_metadata=more.pop("committed_metadata", ""),
    )
    wanted = OffsetCommitRequestTopic(name=name, partitions=[part])
    options: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""} | more
    return OffsetCommitRequest(group_id=group, topics=[wanted], **options)


def only(response: Any) -> int:
    ((part,),) = [each.partitions for each in response.topics]
    return int(part.error_code)


def test_bi_134_a_live_group_takes_commits_of_members_only(
    client: WireClient, victim: KafkaUnderTest, group: str
) -> None:
    name = fresh_name("committed")
    create_topic(victim.address, name)
    member_id, generation = joined(client, group)
    assert only(client.ask(committing(group, name), 8)) == 25
    identified: dict[str, Any] = {
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
    }
    assert only(client.ask(committing(group, name, **identified), 8)) == 0


def test_bi_135_commits_have_bounds(client: WireClient, victim: KafkaUnderTest, group: str) -> None:
    name = fresh_name("committed")
    create_topic(victim.address, name)
    assert only(client.ask(committing(group, name, committed_metadata="m" * 4097), 8)) == 12
    assert only(client.ask(committing(group, name, committed_metadata="m" * 4096), 8)) == 0
    assert only(client.ask(committing(group, name, 99), 8)) == 3
    assert only(client.ask(committing(group, fresh_name("absent")), 8)) == 3


def test_bi_136_a_members_metadata_is_bounded(client: WireClient, group: str) -> None:
    member_id = client.ask(joining(group), 9).member_id
    answer = client.ask(joining(group, member_id, metadata=bytes(1 << 20)), 9)
    assert answer.error_code != 0


def test_bi_139_a_group_with_members_is_not_deleted(client: WireClient, group: str) -> None:
    joined(client, group)
    (answer,) = client.ask(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert answer.error_code == 68


QUOTING: dict[str, tuple[Message, int]] = {
    "settings of a topic": (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=LONGEST_NAME)]
        ),
        1,
    ),
    "the same, compact": (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name=LONGEST_NAME)]
        ),
        4,
    ),
    "a setting": (
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="t",
                    configs=[AlterableConfig(name=LONGEST_NAME, value="1", config_operation=SET)],
                )
            ]
        ),
        1,
    ),
    "a feature": (
        UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey(feature=LONGEST_NAME, max_version_level=1)]
        ),
        1,
    ),
    "a new topic": (creating(topic(LONGEST_NAME)), 5),
}


@pytest.mark.parametrize("case", QUOTING)
def test_a_refusal_may_quote_the_longest_name(client: WireClient, case: str) -> None:
    """Apache Kafka cannot encode its message either, and answers UNKNOWN_SERVER_ERROR."""
    request, version = QUOTING[case]
    answer = client.ask(request, version)
    lists = ("results", "responses", "topics")
    elements = next((found for name in lists if (found := getattr(answer, name, None))), [answer])
    assert [each.error_code != 0 for each in elements] == [True]
