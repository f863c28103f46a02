"""A member of a classic group: joins, assigns if it is the leader, sends heartbeats, leaves.

joined -> (heartbeat says REBALANCE_IN_PROGRESS) -> join again, same member id
joined -> (UNKNOWN_MEMBER_ID) -> join again as a new member
joined -> (FENCED_INSTANCE_ID) -> the error is for the user: somebody took the instance id
"""

from collections.abc import Callable, Collection, Sequence
from itertools import count

from moldau.client.admin.groups import CommitIdentity
from moldau.client.cluster import Cluster
from moldau.client.errors import ClientError, check, error_code
from moldau.client.group_protocol import (
    ASSIGNORS,
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from moldau.frozen import frozen
from moldau.net.tasks import Tasks
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from moldau.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from moldau.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from moldau.types import TopicPartition

# A list of members came with version 3; a single one is not spoken here.
_LEAVE_MEMBERS_VERSION = 3
_JOIN_GRACE_MS = 5_000
_LEAVE_PATIENCE_MS = 3_000
_LOOK_AT_TOPICS_EVERY_BEATS = 5
_REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
}


@frozen(kw_only=True)
class GroupOptions:
    group_id: str
    topics: Sequence[str]
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    heartbeat_ms: int = 3_000


class GroupMember:
    def __init__(
        self, cluster: Cluster, options: GroupOptions, on_rebalance: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._on_rebalance = on_rebalance
        self._member_id = ""
        self._generation = -1
        self._protocol = ""
        self._counts: dict[str, int] = {}
        """Partitions of each topic of the group, if this member shared them out."""
        self._tasks = Tasks()
        self._has_heartbeat = False
        self.error: MoldauError | None = None
        """Ends the membership; found by a heartbeat."""
        self.must_rejoin = True

    @property
    def identity(self) -> CommitIdentity:
        return CommitIdentity(self._generation, self._member_id, self._options.instance_id)

    async def join(self) -> tuple[TopicPartition, ...]:
        """Takes part in a rebalance, waits for its end, and gives what this member is to read."""
        while True:
            try:
                assigned = await self._cluster.with_patience(self._join_once)
            except KafkaError as error:
                if error.code not in _REJOIN:
                    raise
                self._note(error.code)
                continue
            self.must_rejoin = False
            if not self._has_heartbeat:
                self._has_heartbeat = True
                _ = self._tasks.start(self._beat(), f"heartbeats of {self._options.group_id}")
            return assigned

    async def leave(self) -> None:
        """Static members stay: their partitions wait for them."""
        await self._tasks.close()
        if not self._member_id or self._options.instance_id is not None:
            return

        async def attempt() -> None:
            request = LeaveGroupRequest(
                group_id=self._options.group_id,
                members=[MemberIdentity(member_id=self._member_id, reason="the reader closed")],
            )
            answer = await self._cluster.ask_coordinator(
                self._options.group_id,
                request,
                LeaveGroupResponse,
                oldest=_LEAVE_MEMBERS_VERSION,
                timeout_ms=_LEAVE_PATIENCE_MS,
            )
            if answer.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
                check(answer.error_code, "leaving the group")

        await self._cluster.with_patience(attempt, patience_ms=_LEAVE_PATIENCE_MS)
        self._member_id = ""

    def _note(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
            self._generation = -1

    async def _join_once(self) -> tuple[TopicPartition, ...]:
        joined = await self._ask_to_join()
        self._generation = joined.generation_id
        self._protocol = joined.protocol_name or ""
        self._counts = {}
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        shares = await self._assign(joined) if is_leader else []
        request = SyncGroupRequest(
            group_id=self._options.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=shares,
        )
        answer = await self._cluster.ask_coordinator(
            self._options.group_id,
            request,
            SyncGroupResponse,
            timeout_ms=self._options.rebalance_timeout_ms + _JOIN_GRACE_MS,
        )
        check(answer.error_code, f"group '{self._options.group_id}'")
        return read_assignment(answer.assignment)

    async def _ask_to_join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._options.group_id,
            session_timeout_ms=self._options.session_timeout_ms,
            rebalance_timeout_ms=self._options.rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=name, metadata=write_subscription(self._options.topics)
                )
                for name in ASSIGNORS
            ],
        )
        answer = await self._cluster.ask_coordinator(
            self._options.group_id,
            request,
            JoinGroupResponse,
            timeout_ms=self._options.rebalance_timeout_ms + _JOIN_GRACE_MS,
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return await self._ask_to_join()
        if answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            known = ", ".join(ASSIGNORS)
            raise ClientError(
                f"group '{self._options.group_id}' has members that share none of our assignors "
                f"({known}), or is no consumer group"
            )
        check(answer.error_code, f"group '{self._options.group_id}'")
        self._member_id = answer.member_id
        return answer

    async def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        subscriptions = {
            member.member_id: read_subscription(member.metadata) for member in joined.members
        }
        wanted = {topic for topics in subscriptions.values() for topic in topics}
        self._counts = await self._count_partitions(wanted)
        assignment = ASSIGNORS[self._protocol](subscriptions, self._counts)
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=write_assignment(partitions))
            for member, partitions in assignment.items()
        ]

    async def _beat(self) -> None:
        for beat in count(1):
            await self._cluster.clock.sleep(self._options.heartbeat_ms)
            if self.must_rejoin:
                continue
            try:
                await self._beat_once()
                if beat % _LOOK_AT_TOPICS_EVERY_BEATS == 0:
                    await self._look_at_topics()
            except MoldauError as error:
                if self._cluster.may_pass(error):
                    self._cluster.forget()
                    continue
                self.error = error
                self._on_rebalance()
                return

    async def _look_at_topics(self) -> None:
        """The leader has to notice partitions that were added."""
        if self._counts and await self._count_partitions(self._counts) != self._counts:
            self.must_rejoin = True
            self._on_rebalance()

    async def _count_partitions(self, topics: Collection[str]) -> dict[str, int]:
        found = (await self._cluster.metadata(topics)).topics
        return {name: len(found[name].partitions) if name in found else 0 for name in topics}

    async def _beat_once(self) -> None:
        request = HeartbeatRequest(
            group_id=self._options.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._options.instance_id,
        )
        answer = await self._cluster.ask_coordinator(
            self._options.group_id, request, HeartbeatResponse
        )
        code = error_code(answer.error_code)
        if code in _REJOIN and request.generation_id == self._generation:
            self._note(code)
            self.must_rejoin = True
            self._on_rebalance()
        elif code not in _REJOIN:
            check(code, f"group '{self._options.group_id}'")
