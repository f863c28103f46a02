from collections.abc import Iterator
from typing import Any

import pytest
from core.controller.cluster import Cluster

from moldau.core.controller.partitions.leadership import (
    preferred_leader_records,
    unclean_leader_records,
)
from moldau.core.decision import Decision
from moldau.protocol.enums import ElectionType, LeaderRecoveryState
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.types import NO_LEADER

UNCLEAN = {"unclean.leader.election.enable": "true"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.start(1, 2, 3)
    yield cluster
    cluster.check()


@pytest.fixture
def without_eligible() -> Iterator[Cluster]:
    cluster = Cluster(eligible_replicas=False)
    cluster.start(1, 2, 3)
    yield cluster
    cluster.check()


def fence(cluster: Cluster, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        cluster.heartbeat(broker_id, want_fence=True)


def state(cluster: Cluster, index: int = 0) -> tuple[int, tuple[int, ...]]:
    partition = cluster.partition("t", index)
    return partition.leader, partition.isr


def elect(cluster: Cluster, kind: int, *indexes: int) -> dict[int, ErrorCode]:
    requested = [TopicPartitions(topic="t", partitions=list(indexes))] if indexes else None
    response = cluster.send(ElectLeadersRequest(election_type=kind, topic_partitions=requested))
    (topic,) = response.replica_election_results
    return {each.partition_id: ErrorCode(each.error_code) for each in topic.partition_result}


def test_the_first_live_in_sync_replica_takes_over(cluster: Cluster) -> None:
    cluster.create("t", [1, 2, 3])
    fence(cluster, 1)
    assert state(cluster) == (2, (2, 3))
    assert cluster.partition("t").leader_epoch == 1
    fence(cluster, 3)
    assert state(cluster) == (2, (2,))
    assert cluster.partition("t").leader_epoch == 1, "the end of a follower begins no new epoch"
    assert cluster.partition("t").partition_epoch == 2


def test_the_last_in_sync_replica_stays_eligible(cluster: Cluster) -> None:
    cluster.create("t", [1, 2])
    fence(cluster, 1)
    fence(cluster, 2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (NO_LEADER, ())
    assert partition.eligible_leader_replicas == (2,)
    assert partition.last_known_elr == (2,)
    cluster.heartbeat(1)
    assert cluster.partition("t").leader == NO_LEADER, (
        "broker 1 lacks records that only broker 2 has"
    )
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.eligible_leader_replicas == partition.last_known_elr == ()


def test_the_last_in_sync_replica_stays_in_sync_without_eligible_replicas(
    without_eligible: Cluster,
) -> None:
    cluster = without_eligible
    cluster.create("t", [1, 2])
    fence(cluster, 1, 2)
    assert state(cluster) == (NO_LEADER, (2,))
    cluster.heartbeat(1)
    assert state(cluster) == (NO_LEADER, (2,))
    cluster.heartbeat(2)
    assert state(cluster) == (2, (2,))


def test_replicas_that_left_below_the_minimum_isr_stay_eligible(cluster: Cluster) -> None:
    cluster.create("t", [1, 2, 3], configs={"min.insync.replicas": "2"})
    fence(cluster, 1, 2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (3, (3,))
    assert partition.eligible_leader_replicas == (2,)
    fence(cluster, 3)
    assert cluster.partition("t").eligible_leader_replicas == (2, 3)
    cluster.heartbeat(2)
    assert state(cluster) == (2, (2,))
    assert cluster.partition("t").eligible_leader_replicas == (3,)


def test_topics_may_allow_unclean_elections(cluster: Cluster) -> None:
    cluster.create("t", [1, 2], configs=UNCLEAN)
    fence(cluster, 2, 1)
    cluster.heartbeat(2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.leader_recovery_state == LeaderRecoveryState.RECOVERING
    assert partition.eligible_leader_replicas == ()


def test_leaderless_partitions_get_an_unclean_leader_once_it_is_allowed(
    without_eligible: Cluster,
) -> None:
    cluster = without_eligible
    cluster.create("t", [1, 2])
    cluster.create("careful", [1, 2])
    fence(cluster, 2, 1)
    cluster.heartbeat(2)
    assert unclean_leader_records(cluster.context) == []
    cluster = without_eligible
    set_topic(cluster, "t", "unclean.leader.election.enable", "true")
    cluster.do(Decision(None, unclean_leader_records(cluster.context)))
    assert state(cluster) == (2, (2,))
    assert cluster.partition("careful").leader == NO_LEADER


def set_topic(cluster: Cluster, topic: str, name: str, value: str) -> None:
    from moldau.protocol.enums import ConfigResourceType
    from moldau.protocol.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC,
        resource_name=topic,
        configs=[AlterableConfig(name=name, value=value)],
    )
    (result,) = cluster.send(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert result.error_code == 0, result.error_message


def test_leadership_returns_to_the_preferred_replica(cluster: Cluster) -> None:
    cluster.create("t", [1, 2], [2, 1])
    fence(cluster, 1)
    cluster.heartbeat(1)
    assert elect(cluster, ElectionType.PREFERRED, 0, 1) == {
        0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        1: ErrorCode.ELECTION_NOT_NEEDED,
    }
    assert join(cluster, 0, 1, 2).error_code == ErrorCode.NONE
    assert preferred_leader_records(cluster.context)
    assert elect(cluster, ElectionType.PREFERRED) == {0: ErrorCode.NONE}
    assert state(cluster) == (1, (1, 2))
    assert preferred_leader_records(cluster.context) == []


def test_unclean_elections_on_demand(without_eligible: Cluster) -> None:
    cluster = without_eligible
    cluster.create("t", [1, 2])
    assert elect(cluster, ElectionType.UNCLEAN, 0) == {0: ErrorCode.ELECTION_NOT_NEEDED}
    fence(cluster, 2, 1)
    assert elect(cluster, ElectionType.UNCLEAN, 0) == {0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    cluster.heartbeat(2)
    assert elect(cluster, ElectionType.UNCLEAN, 0, 5) == {
        0: ErrorCode.NONE,
        5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert state(cluster) == (2, (2,))


def test_elections_of_an_unknown_kind_are_refused(cluster: Cluster) -> None:
    result = cluster.send(ElectLeadersRequest(election_type=7, topic_partitions=None))
    assert result.error_code == ErrorCode.INVALID_REQUEST


def propose(cluster: Cluster, broker_id: int, index: int = 0, **fields: Any) -> Any:
    partition = cluster.partition("t", index)
    requested = AlterPartitionRequestPartitionData(
        partition_index=index,
        leader_epoch=fields.pop("leader_epoch", partition.leader_epoch),
        partition_epoch=fields.pop("partition_epoch", partition.partition_epoch),
        new_isr_with_epochs=[
            BrokerState(broker_id=each, broker_epoch=epoch)
            for each, epoch in fields.pop("isr").items()
        ],
        **fields,
    )
    topic = AlterPartitionRequestTopicData(
        topic_id=cluster.image.topics["t"].topic_id, partitions=[requested]
    )
    request = AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.brokers[broker_id].epoch,
        topics=[topic],
    )
    (result,) = cluster.send(request).topics
    (answer,) = result.partitions
    return answer


def join(cluster: Cluster, index: int, *broker_ids: int) -> Any:
    """The leader proposes these brokers as the in-sync set."""
    epochs = {each: cluster.image.brokers[each].epoch for each in broker_ids}
    return propose(cluster, cluster.partition("t", index).leader, index, isr=epochs)


def test_a_leader_shrinks_and_grows_its_in_sync_set(cluster: Cluster) -> None:
    cluster.create("t", [1, 2, 3])
    shrunk = join(cluster, 0, 1, 3)
    assert (shrunk.error_code, shrunk.isr, shrunk.partition_epoch) == (0, [1, 3], 1)
    assert shrunk.leader_epoch == 0
    grown = join(cluster, 0, 1, 3, 2)
    assert (grown.error_code, grown.isr, grown.partition_epoch) == (0, [1, 3, 2], 2)
    unchanged = join(cluster, 0, 1, 3, 2)
    assert (unchanged.error_code, unchanged.partition_epoch) == (0, 2)


@pytest.mark.parametrize(
    ("broker_id", "fields", "code"),
    [
        (1, {"isr": {1: -1}, "leader_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        (1, {"isr": {1: -1}, "partition_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        (1, {"isr": {1: -1}, "leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        (1, {"isr": {1: -1}, "partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        (2, {"isr": {2: -1}}, ErrorCode.INVALID_REQUEST),
        (1, {"isr": {2: -1}}, ErrorCode.INVALID_REQUEST),
        (1, {"isr": {1: -1, 9: -1}}, ErrorCode.INVALID_REQUEST),
        (1, {"isr": {}}, ErrorCode.INVALID_REQUEST),
        (1, {"isr": {1: -1}, "leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        (1, {"isr": {1: -1}, "leader_recovery_state": 9}, ErrorCode.INVALID_REQUEST),
        (1, {"isr": {1: -1, 2: 0}}, ErrorCode.INELIGIBLE_REPLICA),
        (1, {"isr": {1: -1, 3: -1}}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_invalid_proposals_are_refused(
    cluster: Cluster, broker_id: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    cluster.create("t", [1, 2, 3])
    fence(cluster, 3)
    if fields.get("partition_epoch") == -1:
        fields = {**fields, "partition_epoch": cluster.partition("t").partition_epoch - 1}
    before = len(cluster.log)
    assert ErrorCode(propose(cluster, broker_id, **fields).error_code) is code
    assert len(cluster.log) == before


def test_unknown_partitions_are_reported(cluster: Cluster) -> None:
    cluster.create("t", [1])
    requested = AlterPartitionRequestPartitionData(partition_index=7)
    topic_id = cluster.image.topics["t"].topic_id
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=cluster.image.brokers[1].epoch,
        topics=[
            AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[requested]),
            AlterPartitionRequestTopicData(partitions=[requested]),
        ],
    )
    response = cluster.send(request)
    assert [topic.partitions[0].error_code for topic in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


def test_before_3_6_a_shrinking_in_sync_set_is_a_new_epoch() -> None:
    cluster = Cluster(level=11, eligible_replicas=False)
    cluster.start(1, 2)
    cluster.create("t", [1, 2])
    fence(cluster, 2)
    assert state(cluster) == (1, (1,))
    assert cluster.partition("t").leader_epoch == 1
    cluster.check()


def test_older_brokers_propose_in_sync_replicas_without_epochs(cluster: Cluster) -> None:
    cluster.create("t", [1, 2, 3])
    requested = AlterPartitionRequestPartitionData(
        partition_index=0, leader_epoch=0, new_isr=[1, 2], partition_epoch=0
    )
    topic_id = cluster.image.topics["t"].topic_id
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=cluster.image.brokers[1].epoch,
        topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[requested])],
    )
    (result,) = cluster.send(request, 2).topics
    assert (result.partitions[0].error_code, result.partitions[0].isr) == (0, [1, 2])
