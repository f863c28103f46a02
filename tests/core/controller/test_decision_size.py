"""Which decisions look at every partition. None of the others may: with a hundred thousand of them,
that takes tens of milliseconds.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from core.controller.cluster import Cluster, registration

from moldau.core.controller.decision_context import DecisionContext
from moldau.core.controller.decision_size import (
    PARTITIONS_AT_ONCE,
    is_large,
    walks_all_partitions,
)
from moldau.core.controller.decisions import decide
from moldau.core.controller.partitions.leadership import (
    preferred_leader_records,
    unclean_leader_records,
)
from moldau.core.metadata.image import TopicImage
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.wire.schema import Message

MANY = PARTITIONS_AT_ONCE + 1


class Unwalkable(dict[str, TopicImage]):
    """The topics of an image, which may be looked up only."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all topics are looked at")

    def values(self) -> NoReturn:
        raise AssertionError("all topics are looked at")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Broker 1 leads, 2 and 3 follow, 4 has no replica, and 5 is fenced."""
    cluster = Cluster()
    cluster.start(1, 2, 3, 4)
    cluster.register(5)
    cluster.create("t", *[[1, 2, 3]] * MANY)
    yield cluster
    cluster.check()


def unwalkable(cluster: Cluster) -> DecisionContext:
    image = replace(cluster.image, topics=Unwalkable(cluster.image.topics))
    return replace(cluster.context, image=image)


def heartbeat(cluster: Cluster, broker_id: int, **fields: Any) -> Message:
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.brokers[broker_id].epoch,
        current_metadata_offset=cluster.image.offset,
        **fields,
    )


def test_a_heartbeat_that_changes_nothing_looks_at_no_partition(cluster: Cluster) -> None:
    for broker_id in (1, 2, 4):
        request = heartbeat(cluster, broker_id)
        assert not walks_all_partitions(cluster.context, request)
        assert not decide(unwalkable(cluster), request, 1).records


def test_nor_does_one_of_a_broker_in_controlled_shutdown(cluster: Cluster) -> None:
    """It waits until the other brokers know the new leaders."""
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    request = heartbeat(cluster, 1, want_shut_down=True)
    assert not walks_all_partitions(cluster.context, request)
    assert not decide(unwalkable(cluster), request, 1).records


def test_periodic_elections_look_at_partitions_only_if_some_need_one(cluster: Cluster) -> None:
    assert preferred_leader_records(unwalkable(cluster)) == []
    assert unclean_leader_records(unwalkable(cluster)) == []
    cluster.heartbeat(1, want_fence=True)
    with pytest.raises(AssertionError, match="all topics"):
        preferred_leader_records(unwalkable(cluster))


def test_a_broker_that_was_fenced_registers_without_a_look_at_the_partitions(
    cluster: Cluster,
) -> None:
    request = registration(3, incarnation=1)
    assert walks_all_partitions(cluster.context, request)
    cluster.heartbeat(3, want_fence=True)
    cluster.now_ms += 10 * cluster.config.broker_session_timeout_ms
    assert not walks_all_partitions(cluster.context, request)
    assert len(decide(unwalkable(cluster), request, 4).records) == 1


@pytest.mark.parametrize("partitions", [1, MANY])
def test_requests_that_concern_all_partitions_are_long_if_there_are_many(partitions: int) -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create("t", *[[1, 2]] * partitions)
    requests: list[Message] = [
        heartbeat(cluster, 1, want_fence=True),
        heartbeat(cluster, 1, want_shut_down=True),
        heartbeat(cluster, 1, offline_log_dirs=list(cluster.image.brokers[1].log_directories)),
        UnregisterBrokerRequest(broker_id=1),
        registration(1, incarnation=1),
        ElectLeadersRequest(election_type=0, topic_partitions=None),
        ListPartitionReassignmentsRequest(topics=None),
    ]
    for request in requests:
        assert not is_large(request)
        assert walks_all_partitions(cluster.context, request) == (partitions == MANY)
    others: list[Message] = [
        ElectLeadersRequest(election_type=0, topic_partitions=[]),
        ListPartitionReassignmentsRequest(topics=[]),
        BrokerHeartbeatRequest(broker_id=1, broker_epoch=-1, want_fence=True),
        BrokerHeartbeatRequest(broker_id=9, want_fence=True),
    ]
    assert not any(walks_all_partitions(cluster.context, request) for request in others)
