"""Controllers of several voters: nothing is acknowledged that no majority has, and none is active
whose leadership is over.
"""

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from broker.controller.controller_cluster import ControllerCluster, running_controllers
from broker.metadata_node import CLUSTER, RecordingListener, config
from broker.quorum.quorum_cluster import DATA, Member
from broker.quorum.test_slow_disks import SlowSync
from core.controller.cluster import registration
from support.waiting import take_turns, until

from moldau.broker.controller.controller_node import ControllerNode
from moldau.broker.quorum.listener import QuorumListener
from moldau.core.metadata.loader import CommittedBatch
from moldau.core.quorum.rpc import VoteRequest
from moldau.core.quorum.voters import VoterKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from moldau.storage.disk.reserve import Reserve
from moldau.testing.simulated_disk import Effect, SimulatedDisk
from moldau.types import BrokerId, LeaderEpoch, Uuid

BROKER = 100
NEWEST = {
    message: message.VERSIONS[1]
    for message in (BrokerRegistrationRequest, CreateTopicsRequest, DeleteTopicsRequest)
}
MANY = 200
LONG = "long" * 250
"""More than a read of committed records takes at once, that often."""


def new_broker() -> BrokerRegistrationRequest:
    request = registration(BROKER)
    request.cluster_id = CLUSTER
    return request


# A leadership that ends inside an append


async def test_what_is_appended_while_the_leadership_ends_is_not_acknowledged() -> None:
    """No other node has it. The append takes longer than the others wait for their leader."""
    async with running_controllers() as cluster:
        leader, controller = await cluster.wait_active()
        cluster.isolate(leader.id)
        before = leader.quorum.last_offset

        def pause(effect: Effect) -> None:
            if effect.kind == "append" and effect.path.endswith(".log"):
                leader.clock.ahead_ms = 60_000

        leader.disk.on_effect(pause)
        with pytest.raises(KafkaError) as refused:
            await controller.handle(new_broker(), NEWEST[BrokerRegistrationRequest])
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert leader.quorum.last_offset > before
        assert not controller.is_active
        cluster.heal()
        _, active = await cluster.wait_active()
        await cluster.wait_until_equal()
        assert BROKER not in active.image.brokers


class EndsLeadership(QuorumListener):
    """Appends when its node begins to lead: too late, as the append shows."""

    def __init__(self) -> None:
        self.member: Member | None = None
        self.epoch: int | None = None

    def on_leader_change(self, epoch: int, leader_id: BrokerId) -> None:
        if self.member is not None and leader_id == self.member.id and self.epoch is None:
            self.epoch = epoch
            self.member.clock.ahead_ms += 60_000
            self.member.quorum.append([config("late", "value")], 1)


@pytest.mark.usefixtures("tiny_slices")
async def test_a_leadership_that_one_listener_ends_is_not_reported_to_the_others() -> None:
    """They are notified after the last of several batches, between two steps of the quorum."""
    cluster = ControllerCluster()
    ending = {number: EndsLeadership() for number in (1, 2, 3)}
    after = {number: RecordingListener() for number in (1, 2, 3)}
    cluster.listeners = {number: [ending[number], after[number]] for number in (1, 2, 3)}
    try:
        await cluster.start_all()
        leader, _ = await cluster.wait_active()
        for number in range(20):
            await leader.commit(f"name-{number}")
        await cluster.wait_until_equal()
        for number in (1, 2, 3):
            await cluster.kill(number)
            after[number].events.clear()
        for number in (1, 2, 3):
            ending[number].member = await cluster.start(number)
        await until(lambda: any(each.epoch is not None for each in ending.values()))
        (number,) = (each for each in ending if ending[each].epoch is not None)
        epoch = ending[number].epoch
        await until(lambda: f"leader -1 epoch {epoch}" in after[number].events)
        await cluster.wait_active()
        assert f"leader {number} epoch {epoch}" not in after[number].events
    finally:
        await cluster.close()


# A leadership that ends before it begins


class OnFirstBatch(QuorumListener):
    """After the first batch the log has to be read from the disk, which waits for `go`."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.reached = asyncio.Event()
        self.go = threading.Event()
        self._disk = disk

    def on_committed(self, _batch: CommittedBatch) -> None:
        if not self.reached.is_set():
            self._disk.is_cold = lambda path: path.suffix == ".log" and not self.go.is_set()
            self._disk.wait_for_disk = self._wait
            self.reached.set()

    def _wait(self, _path: Path) -> None:
        self.go.wait(30)


@pytest.mark.usefixtures("tiny_slices")
async def test_a_leadership_that_ended_while_its_activation_waited_never_becomes_active() -> None:
    """The node votes in a later epoch; the vote is on its way to the disk."""
    cluster = ControllerCluster(1)
    trigger = None
    try:
        await cluster.start(1)
        leader, _ = await cluster.wait_active()
        for number in range(MANY):
            leader.quorum.append([config(f"name-{number}", LONG)], 1)
        await leader.commit("last")
        await cluster.stop(1)
        trigger = OnFirstBatch(cluster.disks[1])
        cluster.listeners[1] = [trigger]
        member = await cluster.start(1)
        await trigger.reached.wait()
        epoch, offset = member.quorum.leader_epoch, member.quorum.last_offset
        slow = SlowSync(member.disk, "quorum-state.tmp", "sync")
        candidate = VoterKey(BrokerId(9), Uuid(bytes([9]) * 16))
        request = VoteRequest(
            epoch=LeaderEpoch(epoch + 5), candidate=candidate, last=member.quorum.log.end
        )
        voting = asyncio.ensure_future(member.quorum.answer(request))
        await until(lambda: slow.reached > 0)
        # Everything from before is delivered only now.
        assert "last" not in member.values
        trigger.go.set()
        await until(lambda: member.feed.image.offset >= offset)
        await take_turns()
        assert not cluster.controllers[1].is_active
        slow.release()
        await voting
        _, active = await cluster.wait_active()
        assert active is cluster.controllers[1]
        assert f"leader 1 epoch {epoch}" not in member.listener.events
    finally:
        if trigger is not None:
            trigger.go.set()
        await cluster.close()


# A full disk


async def with_topics(controller: ControllerNode, member: Member, *names: str) -> None:
    await controller.handle(new_broker(), NEWEST[BrokerRegistrationRequest])
    heartbeat = BrokerHeartbeatRequest(
        broker_id=BROKER,
        broker_epoch=controller.image.brokers[BROKER].epoch,
        current_metadata_offset=member.quorum.last_offset,
    )
    await controller.handle(heartbeat, 1)
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    await controller.handle(CreateTopicsRequest(topics=topics), NEWEST[CreateTopicsRequest])
    assert controller.image.topics.keys() == set(names)


async def delete(controller: ControllerNode, name: str) -> ErrorCode:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    response = await controller.handle(request, NEWEST[DeleteTopicsRequest])
    assert isinstance(response, DeleteTopicsResponse)
    return ErrorCode(response.responses[0].error_code)


def fill(member: Member, *, has_reserve: bool) -> None:
    """The disk takes records only after the reserve is given up, or none at all."""
    reserve = DATA / "moldau-reserve"
    if has_reserve:
        Reserve(member.disk, DATA).take(1_000)

    def refuse(effect: Effect) -> OSError | None:
        is_write = effect.kind == "append" and effect.path.endswith(".log")
        is_full = member.disk.exists(reserve) or not has_reserve
        return OSError(errno.ENOSPC, "full") if is_write and is_full else None

    member.disk.error_of = refuse


@pytest.mark.parametrize("voters", [1, 3])
async def test_topics_are_deleted_on_a_full_disk_without_a_new_controller(voters: int) -> None:
    async with running_controllers(voters) as cluster:
        leader, controller = await cluster.wait_active()
        await with_topics(controller, leader, "kept", "deleted")
        fill(leader, has_reserve=True)
        epoch = leader.quorum.leader_epoch
        assert await delete(controller, "deleted") is ErrorCode.NONE
        assert controller.is_active
        assert leader.quorum.leader_epoch == epoch
        await leader.feed.wait_for(leader.quorum.last_offset)
        assert leader.feed.image.topics.keys() == {"kept"}


async def test_a_controller_whose_disk_has_no_reserve_left_hands_over() -> None:
    """The client asks the next one."""
    async with running_controllers() as cluster:
        leader, controller = await cluster.wait_active()
        await with_topics(controller, leader, "kept", "deleted")
        await cluster.wait_until_equal()
        fill(leader, has_reserve=False)
        with pytest.raises(KafkaError) as refused:
            await delete(controller, "deleted")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        other, successor = await cluster.wait_active(other_than=leader.id)
        assert await delete(successor, "deleted") is ErrorCode.NONE
        assert other.feed.image.topics.keys() == {"kept"}
        assert leader.failures == []


# kraft.version


async def test_an_upgrade_of_kraft_version_is_answered_when_it_is_committed() -> None:
    upgrade = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature="kraft.version", max_version_level=1)]
    )
    async with running_controllers(is_static=True) as cluster:
        leader, controller = await cluster.wait_active()
        await cluster.wait_until_equal()
        slow = [
            SlowSync(each.disk, ".log", "sync")
            for each in cluster.members.values()
            if each is not leader
        ]
        while True:
            waiting = asyncio.ensure_future(controller.handle(upgrade, 2))
            await take_turns()
            if leader.quorum.kraft_version == 1:
                break
            # The leader does not know the directories of all voters yet.
            with pytest.raises(KafkaError, match="INVALID_UPDATE_VERSION"):
                await waiting
        await until(lambda: leader.quorum.log.flushed_offset > leader.quorum.last_offset)
        await take_turns()
        assert not waiting.done()
        for each in slow:
            each.release()
        response = await waiting
        assert isinstance(response, UpdateFeaturesResponse)
        assert response.error_code == ErrorCode.NONE
        await cluster.wait_until_equal()
        assert [each.quorum.kraft_version for each in cluster.members.values()] == [1, 1, 1]
