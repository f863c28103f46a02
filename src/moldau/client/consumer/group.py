"""Executes the effects that the membership's state machine decides. Requests run in the background,
and their responses are its events. Effects that concern the user wait for the next poll.
"""

import logging
from collections import deque
from collections.abc import Collection
from typing import Protocol

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import ClusterMetadata
from moldau.client.cluster.node_connection import NodeConnection
from moldau.client.consumer.counters import Counts
from moldau.client.consumer.offsets import GroupMetadata
from moldau.client.consumer.options import GroupOptions
from moldau.client.errors import ClientError
from moldau.core.consumer.assignors import Assignor, Shares, TopicRacks
from moldau.core.consumer.classic_membership import ClassicMembership
from moldau.core.consumer.consumer_protocol import write_assignment
from moldau.core.consumer.membership import (
    Assigned,
    AssignmentComputed,
    ComputeAssignment,
    Effect,
    Event,
    Fail,
    HeartbeatAnswered,
    Joined,
    Left,
    MemberState,
    Polled,
    PollExpired,
    Prepare,
    Prepared,
    RejoinNeeded,
    RequestFailed,
    SendRequest,
    SendWithoutReply,
    Synced,
)
from moldau.net.tasks import Tasks
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError, error_code
from moldau.protocol.messages.heartbeat import HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.protocol.versions import LEAVE_GROUP_MEMBERS
from moldau.protocol.wire.schema import Message

_log = logging.getLogger(__name__)

# Responses come in order, and joining may take minutes, so groups use a connection of their own.
_LANE = "group"
_JOIN_GRACE_MS = 5_000
_LEAVE_PATIENCE_MS = 3_000


class Owner(Protocol):
    """The consumer that is the member of the group."""

    async def revoke(self, effect: Prepare) -> None: ...

    async def accept_assignment(self, effect: Assigned) -> None: ...

    def changed(self) -> None: ...

    def watch_topics(self, topics: Collection[str]) -> None:
        """Watches the topics that this member assigned as leader."""

    def refresh_soon(self) -> None:
        """Refreshes metadata, because a topic could not be described."""

    @property
    def polled_ms(self) -> float:
        """The time of the last poll; the current time during one."""


class Group:
    def __init__(
        self, cluster: Cluster, options: GroupOptions, owner: Owner, counts: Counts
    ) -> None:
        self._cluster = cluster
        self._counts = counts
        self._options = options
        self._owner = owner
        self.machine = ClassicMembership(options.member, options.assignors)
        self._assignors: dict[str, Assignor] = {
            assignor.name: assignor for assignor in options.assignors
        }
        self._for_user: deque[Prepare | Assigned] = deque()
        self._error: MoldauError | None = None
        self._assigned_counts: dict[str, int] = {}
        """Number of partitions of each topic when this member assigned them as leader."""
        self._lacks_topics = False
        """Whether a topic could not be described at that time."""
        self._failures = 0
        self._tasks = Tasks()
        self._sends_heartbeats = False

    @property
    def group_id(self) -> str:
        return self._options.member.group_id

    @property
    def committer(self) -> GroupMetadata:
        machine = self.machine
        return GroupMetadata(
            self.group_id, machine.generation, machine.member_id, self._options.member.instance_id
        )

    @property
    def is_stable(self) -> bool:
        return self.machine.state is MemberState.STABLE and not self._for_user

    @property
    def needs_user(self) -> bool:
        return bool(self._for_user) or self._error is not None or self.machine.needs_user

    # In a poll.

    async def advance(self) -> None:
        """Does what a poll has to do for the group, without waiting for the coordinator. Raises
        errors that the user has to handle.
        """
        while True:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._for_user:
                await self._do_for_user(self._for_user.popleft())
            elif self.machine.needs_user:
                effects = self.machine.step(Polled())
                if not effects:
                    return
                self._apply(effects)
            else:
                return

    async def _do_for_user(self, effect: Prepare | Assigned) -> None:
        if isinstance(effect, Prepare):
            try:
                await self._owner.revoke(effect)
            finally:
                # An error of a listener is raised to the user; the rebalance continues.
                self.step(Prepared())
        else:
            self._counts.rebalances += 1
            if self._lacks_topics:
                # Not earlier: a change that is noticed during a rebalance must not cause another
                # one.
                self._lacks_topics = False
                self._owner.refresh_soon()
            await self._owner.accept_assignment(effect)

    async def leave(self) -> None:
        """Sends LeaveGroup, within a short time."""
        await self._tasks.close()
        self._tasks = Tasks()
        self._sends_heartbeats = False
        self._for_user.clear()
        for effect in self.machine.step(Left()):
            if isinstance(effect, SendWithoutReply):
                await self._leave_group(effect.request)

    async def drop(self) -> None:
        """Cancels everything at once."""
        await self._tasks.close()

    # Steps.

    def step(self, event: Event) -> None:
        self._apply(self.machine.step(event))

    def _apply(self, effects: Collection[Effect]) -> None:
        for effect in effects:
            match effect:
                case Prepare() | Assigned():
                    self._for_user.append(effect)
                case SendRequest():
                    _ = self._tasks.start(
                        self._send(effect), f"send a request to group {self.group_id}"
                    )
                case ComputeAssignment():
                    _ = self._tasks.start(
                        self._assign(effect), f"assign partitions of {self.group_id}"
                    )
                case SendWithoutReply(request):
                    _ = self._tasks.start(self._leave_group(request), f"leave {self.group_id}")
                case Fail(error):
                    self._error = error
        if effects:
            self._owner.changed()

    async def _send(self, effect: SendRequest) -> None:
        if effect.find_coordinator:
            self._cluster.forget_coordinator(self.group_id)
        if effect.after_failure:
            self._failures += 1
            await self._cluster.clock.sleep(self._cluster.pause_ms(self._failures))
        try:
            event = await self._answered(effect.request)
        except MoldauError as error:
            if self._is_retriable(error):
                self.step(RequestFailed())
            else:
                self._stop(error)
            return
        self._start_heartbeats()
        self.step(event)

    async def _answered(self, request: Message) -> Event:
        patience_ms = self._options.member.rebalance_timeout_ms + _JOIN_GRACE_MS
        patience_ms = max(patience_ms, self._cluster.settings.request_timeout_ms)
        connection = await self._connection()
        if isinstance(request, JoinGroupRequest):
            joined = await connection.send(request, JoinGroupResponse, timeout_ms=patience_ms)
            return Joined(joined)
        assert isinstance(request, SyncGroupRequest)
        synced = await connection.send(request, SyncGroupResponse, timeout_ms=patience_ms)
        self._failures = 0
        return Synced(request.generation_id, synced)

    async def _connection(self) -> NodeConnection:
        return await self._cluster.connection(await self._cluster.coordinator(self.group_id), _LANE)

    def _is_retriable(self, error: MoldauError) -> bool:
        is_away = isinstance(error, KafkaError) and error.code is ErrorCode.BROKER_NOT_AVAILABLE
        return is_away or self._cluster.is_retriable(error)

    def _stop(self, error: MoldauError) -> None:
        self._error = error
        self.machine.state = MemberState.FAILED
        self._owner.changed()

    async def _leave_group(self, request: Message) -> None:
        """Without an answer the coordinator removes the member when its session times out."""
        assert isinstance(request, LeaveGroupRequest)
        try:
            async with self._cluster.clock.timeout(_LEAVE_PATIENCE_MS):
                # Not on the group's lane, where a JoinGroup may still wait for its response.
                coordinator = await self._cluster.coordinator(self.group_id)
                connection = await self._cluster.connection(coordinator)
                if connection.newest_of(LeaveGroupRequest) < LEAVE_GROUP_MEMBERS:
                    (member,) = request.members
                    request = LeaveGroupRequest(
                        group_id=request.group_id, member_id=member.member_id
                    )
                await connection.send(request, LeaveGroupResponse)
        except (MoldauError, TimeoutError):
            return

    # Assigning partitions, as the leader.

    async def _assign(self, effect: ComputeAssignment) -> None:
        wanted = {topic for member in effect.members.values() for topic in member.topics}

        async def attempt() -> ClusterMetadata:
            return await self._cluster.metadata(wanted, is_lenient=True)

        try:
            found = await self._cluster.with_retries(
                attempt, patience_ms=self._options.max_poll_interval_ms
            )
            topics = _racks(found)
            shares: Shares = {member: [] for member in effect.members}
            shares |= self._assignors[effect.assignor].assign(topics, effect.members)
        except MoldauError as error:
            self._stop(error)
            return
        except Exception as error:  # noqa: BLE001 - an assignor may raise anything
            self._stop(ClientError(f"the assignor '{effect.assignor}' failed: {error!r}"))
            return
        self._assigned_counts = {topic: len(topics.get(topic, ())) for topic in wanted}
        self._lacks_topics = bool(found.failures)
        self._owner.watch_topics(wanted)
        contents = {member: write_assignment(share) for member, share in shares.items()}
        self.step(AssignmentComputed(effect.generation, contents))

    def note_metadata(self, found: ClusterMetadata) -> None:
        """As leader, rejoins when partitions were added, or topics were created or deleted."""
        if not self.machine.is_leader or self.machine.state is not MemberState.STABLE:
            return
        for topic, count in self._assigned_counts.items():
            now = found.topics.get(topic)
            is_gone = now is None and topic in found.missing and count > 0
            if is_gone or (now is not None and len(now.partitions) != count):
                self._assigned_counts = {}
                self.step(RejoinNeeded(f"the number of partitions of {topic} has changed"))
                self._owner.changed()
                return

    # Heartbeats.

    def _start_heartbeats(self) -> None:
        if not self._sends_heartbeats:
            self._sends_heartbeats = True
            _ = self._tasks.start(self._heartbeats(), f"heartbeats of {self.group_id}")

    async def _heartbeats(self) -> None:
        clock = self._cluster.clock
        interval_ms = self._options.heartbeat_interval_ms
        while True:
            left_ms = self._poll_deadline_ms() - clock.mono_ms()
            await clock.sleep(min(interval_ms, max(left_ms, 0) + 1))
            if not self.machine.must_send_heartbeats:
                continue
            if clock.mono_ms() >= self._poll_deadline_ms():
                self._counts.polls_late += 1
                _log.warning(
                    "group '%s': no poll within max.poll.interval.ms=%s; its partitions go to "
                    "other members until the next poll",
                    self.group_id,
                    self._options.max_poll_interval_ms,
                )
                self.step(PollExpired())
                self._owner.changed()
                # No heartbeats until the next poll.
                while not self.machine.must_send_heartbeats:
                    await clock.sleep(interval_ms)
                continue
            await self._send_heartbeat()

    def _poll_deadline_ms(self) -> float:
        return self._owner.polled_ms + self._options.max_poll_interval_ms

    async def _send_heartbeat(self) -> None:
        machine = self.machine
        generation, member_id = machine.generation, machine.member_id
        try:
            connection = await self._connection()
            answer = await connection.send(
                machine.heartbeat(),
                HeartbeatResponse,
                timeout_ms=self._options.member.session_timeout_ms,
            )
        except MoldauError:
            self._cluster.forget_coordinator(self.group_id)
            return
        self._counts.heartbeats += 1
        code = error_code(answer.error_code)
        if code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self._cluster.forget_coordinator(self.group_id)
        self.step(HeartbeatAnswered(generation, member_id, code))
        if self.machine.needs_user:
            self._owner.changed()


def _racks(found: ClusterMetadata) -> TopicRacks:
    rack_of = {broker.node_id: broker.rack for broker in found.brokers.values()}
    return {
        name: [
            frozenset(
                rack
                for node in topic.partitions[number].replicas
                if (rack := rack_of.get(node)) is not None
            )
            for number in sorted(topic.partitions)
        ]
        for name, topic in found.topics.items()
    }
