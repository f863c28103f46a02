from collections.abc import Iterator
from typing import Any

import pytest
from core.controller.cluster import Cluster

from moldau.core.metadata.image import ConfigResource
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import ConfigRecord, PartitionRecord, TopicRecord
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.types import ZERO_UUID, Uuid


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    yield cluster
    cluster.check()


def topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


def create(cluster: Cluster, *topics: CreatableTopic, **fields: Any) -> dict[str, Any]:
    response = cluster.send(CreateTopicsRequest(topics=list(topics), **fields))
    return {result.name: result for result in response.topics}


def codes(results: dict[str, Any]) -> dict[str, ErrorCode]:
    return {name: ErrorCode(result.error_code) for name, result in results.items()}


def assigned(*replica_lists: list[int]) -> list[CreatableReplicaAssignment]:
    return [
        CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
        for index, replicas in enumerate(replica_lists)
    ]


def config(name: str, value: str | None) -> CreatableTopicConfig:
    return CreatableTopicConfig(name=name, value=value)


def test_a_new_topic_has_partitions_with_leaders_and_an_id(cluster: Cluster) -> None:
    result = create(cluster, topic("orders", 6, 3))["orders"]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 6, 3)
    made = cluster.image.topics["orders"]
    assert made.topic_id == result.topic_id != ZERO_UUID
    assert sorted(made.partitions) == list(range(6))
    for partition in made.partitions.values():
        assert set(partition.replicas) == set(partition.isr) == {1, 2, 3}
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        directories = [cluster.image.brokers[r].log_directories[0] for r in partition.replicas]
        assert list(partition.directories) == directories


def test_records_of_settings_come_between_the_topic_and_its_partitions(cluster: Cluster) -> None:
    configs = [config("retention.ms", "1000"), config("cleanup.policy", "compact")]
    result = create(cluster, topic("t", configs=configs))["t"]
    kinds = [type(record) for record in cluster.log[-4:]]
    assert kinds == [TopicRecord, ConfigRecord, ConfigRecord, PartitionRecord]
    resource = ConfigResource(ConfigResourceType.TOPIC, "t")
    assert cluster.image.configs[resource] == {"retention.ms": "1000", "cleanup.policy": "compact"}
    described = {each.name: each for each in result.configs}
    assert [each.name for each in result.configs] == sorted(described)
    assert (described["retention.ms"].value, described["retention.ms"].config_source) == ("1000", 1)
    assert described["segment.bytes"].config_source == 5
    assert "internal.segment.bytes" not in described


def test_numbers_default_to_the_controllers_settings() -> None:
    cluster = Cluster({"num.partitions": "4", "default.replication.factor": "2"})
    cluster.start(1, 2)
    result = create(cluster, topic("t", -1, -1))["t"]
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_a_topic_is_created_once(cluster: Cluster) -> None:
    assert codes(create(cluster, topic("a.b"))) == {"a.b": ErrorCode.NONE}
    again = create(cluster, topic("a.b"))["a.b"]
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert again.error_message == "Topic 'a.b' already exists."


def test_names_that_metrics_cannot_tell_apart_collide(cluster: Cluster) -> None:
    create(cluster, topic("a.b"))
    result = create(cluster, topic("a_b"))["a_b"]
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message == "Topic 'a_b' collides with existing topic: a.b"
    assert codes(create(cluster, topic("c.d"), topic("c_d"))) == {
        "c.d": ErrorCode.NONE,
        "c_d": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", -5), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", configs=[config("retention.ms", "abc")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[config("no.such", "1")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[config("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, -1, assignments=assigned([1])), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, 1, assignments=assigned([1])), ErrorCode.INVALID_REQUEST),
        (topic("t", -1, -1, assignments=assigned([])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=assigned([9])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", -1, -1, assignments=assigned([1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            topic("t", -1, -1, assignments=assigned([1], [1, 2])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            topic("t", -1, -1, assignments=[*assigned([1]), *assigned([1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            topic(
                "t",
                -1,
                -1,
                assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_errors_of_one_topic_do_not_affect_the_others(
    cluster: Cluster, requested: CreatableTopic, code: ErrorCode
) -> None:
    results = create(cluster, requested, topic("good"))
    assert codes(results) == {requested.name: code, "good": ErrorCode.NONE}
    assert results[requested.name].error_message
    assert requested.name not in cluster.image.topics


def test_duplicates_and_the_metadata_log_are_refused(cluster: Cluster) -> None:
    requested = [topic("twice"), topic("__cluster_metadata"), topic("twice"), topic("once")]
    response = cluster.send(CreateTopicsRequest(topics=requested))
    assert [(r.name, r.error_code) for r in response.topics] == [
        ("once", ErrorCode.NONE),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
    ]
    assert set(cluster.image.topics) == {"once"}


def test_only_validating_writes_nothing(cluster: Cluster) -> None:
    before = len(cluster.log)
    results = create(cluster, topic("t", 3, 2), topic("bad", 0), validate_only=True)
    assert codes(results) == {"t": ErrorCode.NONE, "bad": ErrorCode.INVALID_PARTITIONS}
    assert results["t"].num_partitions == 3
    assert len(cluster.log) == before


@pytest.mark.parametrize(
    "requested",
    [[topic("t", 1_000_000)], [topic("t", 10_000)], [topic("a", 6_000), topic("b", 6_000)]],
)
def test_excessive_requests_are_refused_as_a_whole(
    cluster: Cluster, requested: list[CreatableTopic]
) -> None:
    before = len(cluster.log)
    results = create(cluster, *requested)
    assert set(codes(results).values()) == {ErrorCode.POLICY_VIOLATION}
    assert all(result.num_partitions == -1 for result in results.values())
    assert len(cluster.log) == before


def test_replicas_of_fenced_brokers_are_not_in_sync(cluster: Cluster) -> None:
    cluster.heartbeat(2, want_fence=True)
    cluster.create("t", [2, 1])
    assert cluster.partition("t").isr == (1,)
    assert cluster.partition("t").leader == 1
    dead = create(cluster, topic("dead", -1, -1, assignments=assigned([2])))["dead"]
    assert dead.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_nothing_is_placed_while_all_brokers_are_fenced(cluster: Cluster) -> None:
    for broker_id in (1, 2, 3):
        cluster.heartbeat(broker_id, want_fence=True)
    result = create(cluster, topic("t"))["t"]
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_brokers_with_several_directories_choose_for_themselves(cluster: Cluster) -> None:
    cluster.register(4, directories=(50, 51))
    cluster.heartbeat(4)
    cluster.create("t", [4])
    (directory,) = cluster.partition("t").directories
    assert directory == Uuid(bytes(15) + b"\x01")


def delete(cluster: Cluster, *states: DeleteTopicState) -> list[tuple[Any, Any, ErrorCode]]:
    response = cluster.send(DeleteTopicsRequest(topics=list(states)))
    return [(each.name, each.topic_id, ErrorCode(each.error_code)) for each in response.responses]


def test_topics_are_deleted_by_name_and_by_id(cluster: Cluster) -> None:
    first, second = (
        cluster.create("a", [1], configs={"retention.ms": "5"}),
        cluster.create("b", [1]),
    )
    assert delete(cluster, DeleteTopicState(name="a"), DeleteTopicState(topic_id=second)) == [
        ("b", second, ErrorCode.NONE),
        ("a", first, ErrorCode.NONE),
    ]
    assert not cluster.image.topics
    assert not cluster.image.config_of(ConfigResourceType.TOPIC, "a")
    assert cluster.create("a", [1]) != first


def test_deletion_reports_missing_topics(cluster: Cluster) -> None:
    unknown = Uuid(b"x" * 16)
    requested = [
        DeleteTopicState(name="missing"),
        DeleteTopicState(topic_id=unknown),
        DeleteTopicState(),
        DeleteTopicState(name="a", topic_id=unknown),
    ]
    assert delete(cluster, *requested) == [
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
        ("a", unknown, ErrorCode.INVALID_REQUEST),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
        ("missing", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_topics_that_are_named_twice_are_not_deleted(cluster: Cluster) -> None:
    first, second, third = (cluster.create(name, [1]) for name in "abc")
    requested = [
        DeleteTopicState(name="a"),
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=second),
        DeleteTopicState(topic_id=second),
        DeleteTopicState(name="c"),
        DeleteTopicState(topic_id=third),
    ]
    assert delete(cluster, *requested) == [
        (None, second, ErrorCode.INVALID_REQUEST),
        ("a", ZERO_UUID, ErrorCode.INVALID_REQUEST),
        ("c", third, ErrorCode.INVALID_REQUEST),
    ]
    assert set(cluster.image.topics_by_id) == {first, second, third}


def test_internal_topics_are_not_deleted(cluster: Cluster) -> None:
    topic_id = cluster.create("__consumer_offsets", [1])
    (answer,) = delete(cluster, DeleteTopicState(topic_id=topic_id))
    assert answer == ("__consumer_offsets", topic_id, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert "__consumer_offsets" in cluster.image.topics


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    cluster = Cluster({"delete.topic.enable": "false"})
    with pytest.raises(KafkaError) as refused:
        cluster.send(DeleteTopicsRequest(topic_names=["a"]), version)
    assert refused.value.code is code


def grow(cluster: Cluster, name: str, count: int, **fields: Any) -> Any:
    requested = CreatePartitionsTopic(name=name, count=count, **{"assignments": None, **fields})
    (result,) = cluster.send(CreatePartitionsRequest(topics=[requested])).results
    return result


def test_a_topic_gets_more_partitions(cluster: Cluster) -> None:
    cluster.create("t", [1, 2], [2, 3])
    assert grow(cluster, "t", 5).error_code == ErrorCode.NONE
    partitions = cluster.image.topics["t"].partitions
    assert sorted(partitions) == [0, 1, 2, 3, 4]
    assert all(len(partition.replicas) == 2 for partition in partitions.values())
    manual = [CreatePartitionsAssignment(broker_ids=[3, 1])]
    assert grow(cluster, "t", 6, assignments=manual).error_code == ErrorCode.NONE
    assert cluster.partition("t", 5).replicas == (3, 1)


@pytest.mark.parametrize(
    ("name", "count", "assignment", "code"),
    [
        ("missing", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_new_partitions_are_refused(
    cluster: Cluster, name: str, count: int, assignment: list[list[int]] | None, code: ErrorCode
) -> None:
    cluster.create("t", [1, 2], [2, 3])
    before = len(cluster.log)
    manual = None
    if assignment is not None:
        manual = [CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignment]
    assert grow(cluster, name, count, assignments=manual).error_code == code
    assert len(cluster.log) == before


def test_new_partitions_can_be_validated_only(cluster: Cluster) -> None:
    cluster.create("t", [1])
    twice = CreatePartitionsTopic(name="x", count=9, assignments=None)
    requested = [CreatePartitionsTopic(name="t", count=9, assignments=None), twice, twice]
    response = cluster.send(CreatePartitionsRequest(topics=requested, validate_only=True))
    assert {each.name: each.error_code for each in response.results} == {
        "x": ErrorCode.INVALID_REQUEST,
        "t": ErrorCode.NONE,
    }
    assert len(cluster.image.topics["t"].partitions) == 1
    with pytest.raises(KafkaError):
        grow(cluster, "t", 20_000)


def test_names_are_told_apart_in_linear_time(cluster: Cluster) -> None:
    """A hundred thousand names once kept a thread busy for more than a minute."""
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    requested = [
        CreatePartitionsTopic(name=Name(f"n-{number}"), count=9, assignments=None)
        for number in range(300)
    ]
    response = cluster.send(CreatePartitionsRequest(topics=requested))
    assert len(response.results) == 300
    assert compared < 3_000
