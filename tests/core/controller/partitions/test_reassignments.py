"""Replicas move to other brokers, as Kafka's controller moves them."""

from collections.abc import Iterator
from typing import Any

import pytest
from core.controller.cluster import Cluster, uuid_of

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from moldau.types import NO_LEADER

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INVALID = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    yield cluster
    cluster.check()


def reassign(
    cluster: Cluster, replicas: list[int] | None, *, may_resize: bool = True, index: int = 0
) -> tuple[int, str | None]:
    requested = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[requested])],
        allow_replication_factor_change=may_resize,
    )
    (topic,) = cluster.send(request).responses
    (result,) = topic.partitions
    assert (topic.name, result.partition_index) == ("t", index)
    return result.error_code, result.error_message


def in_sync(cluster: Cluster, *brokers: int) -> Any:
    """The leader reports the in-sync replicas."""
    partition = cluster.partition("t")
    members = [
        BrokerState(broker_id=each, broker_epoch=cluster.image.brokers[each].epoch)
        for each in brokers
    ]
    requested = AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=members,
    )
    topic = AlterPartitionRequestTopicData(
        topic_id=cluster.image.topics["t"].topic_id, partitions=[requested]
    )
    leader = cluster.image.brokers[partition.leader]
    request = AlterPartitionRequest(
        broker_id=leader.broker_id, broker_epoch=leader.epoch, topics=[topic]
    )
    (answered,) = cluster.send(request).topics
    return answered.partitions[0]


def listed(cluster: Cluster, *names: str) -> dict[str, list[tuple[Any, ...]]]:
    requested = [
        ListPartitionReassignmentsTopics(name=each, partition_indexes=[0]) for each in names
    ]
    answer = cluster.send(ListPartitionReassignmentsRequest(topics=requested if names else None))
    return {
        topic.name: [
            (each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas)
            for each in topic.partitions
        ]
        for topic in answer.topics
    }


def test_a_new_replica_is_added_before_the_old_one_goes(cluster: Cluster) -> None:
    cluster.create("t", [1, 2])
    assert reassign(cluster, [3, 2]) == (0, None)
    partition = cluster.partition("t")
    assert (partition.replicas, partition.leader) == ((3, 2, 1), 1)
    assert (partition.adding_replicas, partition.removing_replicas) == ((3,), (1,))
    assert partition.directories == (uuid_of(4), uuid_of(3), uuid_of(2))
    assert partition.leader_epoch == 0, "no replica is removed yet"
    assert listed(cluster) == {"t": [(0, [3, 2, 1], [3], [1])]}

    answered = in_sync(cluster, 1, 2, 3)

    assert answered.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 2), (2, 3), 3)
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())
    assert partition.directories == (uuid_of(4), uuid_of(3))
    assert partition.leader_epoch == 1
    assert listed(cluster) == {}


def test_other_order_of_the_same_replicas_takes_effect_at_once(cluster: Cluster) -> None:
    cluster.create("t", [1, 2])
    assert reassign(cluster, [2, 1]) == (0, None)
    partition = cluster.partition("t")
    assert (partition.replicas, partition.leader) == ((2, 1), 1)
    assert partition.directories == (uuid_of(3), uuid_of(2))
    assert listed(cluster) == {}


def test_the_same_assignment_changes_nothing(cluster: Cluster) -> None:
    cluster.create("t", [1, 2])
    before = len(cluster.log)
    assert reassign(cluster, [1, 2]) == (0, None)
    assert len(cluster.log) == before


def test_a_replica_of_a_dead_broker_is_removed_at_once(cluster: Cluster) -> None:
    cluster.create("t", [1, 2])
    cluster.heartbeat(2, want_fence=True)
    assert reassign(cluster, [1]) == (0, None)
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
    assert partition.leader_epoch == 1, "a removed replica must be fenced"


def test_a_smaller_factor_waits_for_all_remaining_replicas(cluster: Cluster) -> None:
    """Completing it with one in-sync replica would leave fewer than before."""
    cluster.create("t", [1, 2, 3])
    cluster.heartbeat(3, want_fence=True)
    assert reassign(cluster, [1, 3]) == (0, None)
    assert listed(cluster) == {"t": [(0, [1, 3, 2], [], [2])]}
    cluster.heartbeat(3)
    assert in_sync(cluster, 1, 2, 3).error_code == 0
    assert cluster.partition("t").replicas == (1, 3)


def test_a_cancelled_reassignment_restores_the_old_replicas(cluster: Cluster) -> None:
    cluster.create("t", [1, 2])
    reassign(cluster, [2, 3])
    assert reassign(cluster, None) == (0, None)
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr) == ((2, 1), (1, 2))
    assert (partition.adding_replicas, partition.removing_replicas) == ((), ())
    assert listed(cluster) == {}


def test_cancelling_that_would_lose_records_is_refused(cluster: Cluster) -> None:
    cluster.create("t", [1])
    reassign(cluster, [2, 3])
    assert in_sync(cluster, 1, 2).error_code == 0
    cluster.heartbeat(1, want_fence=True)
    assert cluster.partition("t").isr == (2,)
    expected = (
        "Unable to revert partition assignment for t:0 because it would require an unclean leader "
        "election."
    )
    assert reassign(cluster, None) == (INVALID, expected)


def test_cancelling_may_lose_records_where_that_is_allowed(cluster: Cluster) -> None:
    cluster.create("t", [1], configs={"unclean.leader.election.enable": "true"})
    reassign(cluster, [2, 3])
    in_sync(cluster, 1, 2)
    cluster.heartbeat(1, want_fence=True)
    assert reassign(cluster, None) == (0, None)
    partition = cluster.partition("t")
    assert (partition.replicas, partition.isr) == ((1,), (1,))
    assert partition.leader == NO_LEADER


def test_a_reassignment_whose_last_added_broker_fails_keeps_its_old_replicas(
    cluster: Cluster,
) -> None:
    cluster.create("t", [1])
    reassign(cluster, [2])
    cluster.heartbeat(2, want_fence=True)
    assert listed(cluster) == {"t": [(0, [2, 1], [2], [1])]}
    assert cluster.partition("t").leader == 1


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([], "The manual partition assignment includes an empty replica list."),
        (
            [1, 7],
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        ([2, 2], "The manual partition assignment includes the broker 2 more than once."),
    ],
)
def test_impossible_replicas_are_refused(
    cluster: Cluster, replicas: list[int], expected: str
) -> None:
    cluster.create("t", [1, 2])
    assert reassign(cluster, replicas) == (INVALID, expected)


def test_another_factor_is_refused_unless_it_is_allowed(cluster: Cluster) -> None:
    cluster.create("t", [1])
    refused = (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 1 to 2",
    )
    assert reassign(cluster, [1, 2], may_resize=False) == refused
    assert reassign(cluster, [2], may_resize=False) == (0, None)
    # The reassignment under way counts as completed.
    assert reassign(cluster, [2, 3], may_resize=False) == refused


def test_missing_partitions_and_reassignments_are_reported(cluster: Cluster) -> None:
    assert reassign(cluster, [1]) == (UNKNOWN, "Unable to find a topic named t.")
    cluster.create("t", [1])
    assert reassign(cluster, [1], index=9) == (UNKNOWN, "Unable to find partition t:9.")
    assert reassign(cluster, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)


def test_only_requested_partitions_are_listed(cluster: Cluster) -> None:
    cluster.create("t", [1], [1])
    cluster.create("u", [1])
    reassign(cluster, [2])
    assert listed(cluster, "t", "u", "missing") == {"t": [(0, [2, 1], [2], [1])]}
    assert listed(cluster, "u") == {}
