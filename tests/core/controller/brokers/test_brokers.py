from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core.controller.cluster import Cluster, registration, uuid_of

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest
from moldau.protocol.messages.controller_registration import ControllerRegistrationRequest
from moldau.protocol.messages.controller_registration import Listener as ControllerListener
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.types import NO_LEADER, ZERO_UUID, Uuid

SESSION_MS = 9000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.check()


def refusal(attempt: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        attempt()
    return refused.value.code


def test_a_broker_registers_fenced_and_is_unfenced_once_it_has_caught_up(cluster: Cluster) -> None:
    cluster.idle(5)
    epoch = cluster.register(1, rack="r1")
    assert epoch == cluster.image.offset
    broker = cluster.image.brokers[1]
    assert (broker.is_fenced, broker.rack, broker.epoch) == (True, "r1", epoch)
    assert broker.endpoints["PLAINTEXT"].port == 9001

    behind = cluster.heartbeat(1, offset=epoch - 1)
    assert (behind.is_fenced, behind.is_caught_up) == (True, False)
    waiting = cluster.heartbeat(1, offset=epoch, want_fence=True)
    assert (waiting.is_fenced, waiting.is_caught_up) == (True, True)
    ready = cluster.heartbeat(1, offset=epoch)
    assert (ready.is_fenced, ready.is_caught_up, ready.should_shut_down) == (False, True, False)
    assert not cluster.image.brokers[1].is_fenced


def test_heartbeats_without_a_state_change_write_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    before = len(cluster.log)
    for _ in range(10):
        assert not cluster.heartbeat(1).is_fenced
    assert len(cluster.log) == before


def test_a_broker_in_an_old_epoch_is_refused(cluster: Cluster) -> None:
    cluster.start(1)
    stale = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0)
    assert refusal(lambda: cluster.send(stale)) is ErrorCode.STALE_BROKER_EPOCH
    unknown = BrokerHeartbeatRequest(broker_id=2, broker_epoch=0)
    assert refusal(lambda: cluster.send(unknown)) is ErrorCode.STALE_BROKER_EPOCH


def with_fields(**fields: Any) -> BrokerRegistrationRequest:
    request = registration(1)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (with_fields(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (with_fields(is_migrating_zk_broker=True), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (with_fields(log_dirs=[]), ErrorCode.INVALID_REGISTRATION),
        (with_fields(log_dirs=[ZERO_UUID]), ErrorCode.INVALID_REGISTRATION),
        (with_fields(log_dirs=[uuid_of(9), uuid_of(9)]), ErrorCode.INVALID_REGISTRATION),
        (with_fields(log_dirs=[uuid_of(3)]), ErrorCode.INVALID_REGISTRATION),
        (with_fields(features=[]), ErrorCode.INVALID_REGISTRATION),
        (with_fields(features=registration(1).features[:1]), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_registrations_are_refused(
    cluster: Cluster, request_: BrokerRegistrationRequest, code: ErrorCode
) -> None:
    cluster.register(2)
    assert refusal(lambda: cluster.send(request_)) is code
    assert 1 not in cluster.image.brokers


def test_a_broker_without_support_for_a_finalized_level_is_refused(cluster: Cluster) -> None:
    request = registration(1)
    for feature in request.features:
        if feature.name == "metadata.version":
            feature.max_supported_version = 29
    assert refusal(lambda: cluster.send(request)) is ErrorCode.UNSUPPORTED_VERSION


def test_two_processes_cannot_be_one_broker(cluster: Cluster) -> None:
    cluster.start(1)
    other = registration(1, incarnation=1)
    assert refusal(lambda: cluster.send(other)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += SESSION_MS + 1
    assert cluster.send(other).broker_epoch == cluster.image.offset


def test_a_broker_amends_its_registration_in_the_same_epoch(cluster: Cluster) -> None:
    cluster.start(1)
    epoch = cluster.image.brokers[1].epoch
    assert cluster.register(1, rack="moved") == epoch
    broker = cluster.image.brokers[1]
    assert (broker.rack, broker.is_fenced, broker.epoch) == ("moved", False, epoch)


def test_a_restart_is_a_new_epoch(cluster: Cluster) -> None:
    cluster.start(1)
    first = cluster.image.brokers[1].epoch
    cluster.now_ms += SESSION_MS + 1
    second = cluster.register(1, incarnation=1)
    assert second > first
    assert cluster.image.brokers[1].is_fenced


def test_a_silent_broker_is_fenced_when_its_session_expires(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.create("t", [1, 2])
    cluster.now_ms += SESSION_MS / 2
    cluster.heartbeat(2)
    cluster.now_ms += SESSION_MS / 2
    assert cluster.fence_stale() is None
    cluster.now_ms += 1
    assert cluster.fence_stale() == (1, cluster.image.brokers[1].epoch)
    assert cluster.image.brokers[1].is_fenced
    assert not cluster.image.brokers[2].is_fenced
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 1)
    assert cluster.fence_stale() is None


def test_a_stall_of_the_controller_extends_no_session_beyond_a_full_one(cluster: Cluster) -> None:
    """Broker 2's heartbeat waited for the stall to end, and was read before the late check."""
    cluster.start(1, 2)
    stall_ms = 4 * SESSION_MS
    cluster.now_ms += stall_ms
    cluster.heartbeat(2)
    cluster.controller.sessions.excuse(stall_ms, cluster.now_ms)
    assert cluster.fence_stale() is None
    cluster.now_ms += SESSION_MS
    assert cluster.fence_stale() is None
    cluster.now_ms += 1
    fenced = {cluster.fence_stale(), cluster.fence_stale()}
    assert fenced == {(broker_id, cluster.image.brokers[broker_id].epoch) for broker_id in (1, 2)}


def test_a_new_controller_waits_a_full_session_for_brokers_that_were_alive(
    cluster: Cluster,
) -> None:
    cluster.start(1)
    cluster.now_ms += 10 * SESSION_MS
    cluster.controller.activate(cluster.now_ms)
    assert cluster.fence_stale() is None
    cluster.now_ms += SESSION_MS + 1
    assert cluster.fence_stale() is not None


COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
}


def test_a_restarted_combined_node_need_not_wait_for_its_former_session() -> None:
    cluster = Cluster(COMBINED, own_incarnation=Uuid(bytes([9]) * 16))
    cluster.start(1, 2)
    cluster.controller.activate(cluster.now_ms)
    assert cluster.send(registration(1, incarnation=1)).error_code == ErrorCode.NONE
    other = registration(2, incarnation=1)
    assert refusal(lambda: cluster.send(other)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_combined_node_that_takes_over_keeps_the_session_of_its_running_broker() -> None:
    running = registration(1).incarnation_id
    cluster = Cluster(COMBINED, own_incarnation=running)
    cluster.start(1)
    cluster.now_ms += 10 * SESSION_MS
    cluster.controller.activate(cluster.now_ms)
    twin = registration(1, incarnation=1)
    assert refusal(lambda: cluster.send(twin)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.fence_stale() is None


def test_controlled_shutdown_moves_leadership_first(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.create("t", [1, 2])
    leaving = cluster.heartbeat(1, want_shut_down=True)
    assert (leaving.should_shut_down, leaving.is_fenced) == (False, False)
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))

    moved_at = cluster.image.offset
    still = cluster.heartbeat(1, want_shut_down=True)
    assert not still.should_shut_down, "broker 2 has not read yet that it leads"
    cluster.heartbeat(2, offset=moved_at)
    done = cluster.heartbeat(1, want_shut_down=True)
    assert (done.should_shut_down, done.is_fenced) == (True, True)
    assert cluster.image.brokers[1].is_fenced


def test_the_only_broker_stops_and_restarts_with_its_partitions(cluster: Cluster) -> None:
    """As a single node does at each clean restart."""
    cluster.start(1)
    cluster.create("t", [1])
    epoch = cluster.image.brokers[1].epoch
    cluster.heartbeat(1, want_shut_down=True)
    assert cluster.partition("t").leader == NO_LEADER
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.register(1, incarnation=1, previous_epoch=epoch)
    cluster.heartbeat(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), 0)
    assert partition.eligible_leader_replicas == partition.last_known_elr == ()
    assert partition.leader_epoch == 2


@pytest.mark.parametrize("eligible", [True, False])
def test_the_only_broker_leads_again_after_a_crash(*, eligible: bool) -> None:
    cluster = Cluster(eligible_replicas=eligible)
    cluster.start(1)
    cluster.create("t", [1])
    cluster.now_ms += SESSION_MS + 1
    cluster.register(1, incarnation=1)
    assert cluster.partition("t").leader == NO_LEADER
    cluster.heartbeat(1)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (1, (1,))
    # It may have lost acknowledged records, which the image records with eligible replicas.
    assert partition.leader_recovery_state == int(eligible)
    assert partition.last_known_elr == ()
    cluster.check()


def test_an_idle_broker_may_stop_at_once(cluster: Cluster) -> None:
    cluster.start(1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.start(2)
    assert cluster.heartbeat(2, want_shut_down=True, want_fence=True).should_shut_down
    assert all(broker.is_fenced for broker in cluster.image.brokers.values())


def test_brokers_in_shutdown_get_no_new_replicas(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.create("t", [1, 2])
    cluster.heartbeat(1, want_shut_down=True)
    usable = {broker.broker_id for broker in cluster.context.usable_brokers()}
    assert usable == {2}


def test_unregistering_removes_a_broker_from_every_partition(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.create("t", [1, 2])
    assert cluster.send(UnregisterBrokerRequest(broker_id=1)).error_code == ErrorCode.NONE
    assert 1 not in cluster.image.brokers
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    again = UnregisterBrokerRequest(broker_id=1)
    assert refusal(lambda: cluster.send(again)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_directory_that_fails_takes_its_partitions_offline(cluster: Cluster) -> None:
    cluster.start(2)
    cluster.register(1, directories=(50, 51))
    cluster.heartbeat(1)
    topic_id = cluster.create("t", [1, 2], [1, 2])
    assign(cluster, 1, uuid_of(50), topic_id, 0)
    assign(cluster, 1, uuid_of(51), topic_id, 1)
    cluster.heartbeat(1, offline_log_dirs=[uuid_of(50)])
    assert cluster.image.brokers[1].log_directories == (uuid_of(51),)
    assert (cluster.partition("t", 0).leader, cluster.partition("t", 0).isr) == (2, (2,))
    assert (cluster.partition("t", 1).leader, cluster.partition("t", 1).isr) == (1, (1, 2))
    before = len(cluster.log)
    cluster.heartbeat(1, offline_log_dirs=[uuid_of(50)])
    assert len(cluster.log) == before


def assign(
    cluster: Cluster, broker_id: int, directory: Uuid, topic_id: Uuid, *partitions: int
) -> list[ErrorCode]:
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=cluster.image.brokers[broker_id].epoch,
        directories=[
            AssignReplicasToDirsRequestDirectoryData(
                id=directory,
                topics=[
                    AssignReplicasToDirsRequestTopicData(
                        topic_id=topic_id,
                        partitions=[
                            AssignReplicasToDirsRequestPartitionData(partition_index=index)
                            for index in partitions
                        ],
                    )
                ],
            )
        ],
    )
    (result,) = cluster.send(request).directories
    (topic,) = result.topics
    return [ErrorCode(each.error_code) for each in topic.partitions]


def test_replicas_are_assigned_to_directories(cluster: Cluster) -> None:
    cluster.start(2)
    cluster.register(1, directories=(50, 51))
    cluster.heartbeat(1)
    topic_id, other_id = cluster.create("t", [1, 2]), cluster.create("other", [2])
    assert assign(cluster, 1, uuid_of(51), topic_id, 0, 9) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert cluster.partition("t").directories[0] == uuid_of(51)
    assert cluster.partition("t").leader_epoch == 0
    assert assign(cluster, 1, uuid_of(51), other_id, 0) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert assign(cluster, 1, uuid_of(51), uuid_of(77), 0) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert assign(cluster, 1, uuid_of(99), topic_id, 0) == [ErrorCode.NONE]


def test_cordoned_directories_get_no_new_replicas(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.heartbeat(1, cordoned_log_dirs=[uuid_of(2)])
    assert {broker.broker_id for broker in cluster.context.usable_brokers()} == {2}
    before = len(cluster.log)
    cluster.heartbeat(1, cordoned_log_dirs=[uuid_of(2)])
    assert len(cluster.log) == before
    cluster.heartbeat(1, cordoned_log_dirs=[])
    assert {broker.broker_id for broker in cluster.context.usable_brokers()} == {1, 2}


def test_producer_ids_are_allocated_once(cluster: Cluster) -> None:
    cluster.start(1, 2)
    blocks = []
    for broker_id in (1, 2, 1):
        epoch = cluster.image.brokers[broker_id].epoch
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
        response = cluster.send(request)
        blocks.append((response.producer_id_start, response.producer_id_len))
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)
    assert refusal(lambda: cluster.send(stale)) is ErrorCode.STALE_BROKER_EPOCH


def test_a_controller_registers(cluster: Cluster) -> None:
    listener = ControllerListener(name="CONTROLLER", host="h", port=9093)
    request = ControllerRegistrationRequest(
        controller_id=100, incarnation_id=uuid_of(7), listeners=[listener]
    )
    assert cluster.send(request).error_code == ErrorCode.NONE
    assert cluster.image.controllers[100].endpoints["CONTROLLER"].port == 9093
