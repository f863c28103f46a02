"""A classic group keeps its invariants under any behaviour of clients, clocks and logs.

Clients are well-behaved but unlucky: they lose responses, fall silent and return late, and the log
refuses appends or is slow. After every step the group's state is compared with a plain count.
"""

import pytest
from core.groups.bench import Bench, replay_log
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from moldau.core.coordinator.effects import AnyTicket
from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.group_shard import GroupShard
from moldau.core.groups.joining import Join
from moldau.core.groups.member import Caller, Protocols
from moldau.core.groups.settings import GroupSettings
from moldau.core.groups.states import GroupState
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.leave_group import MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

GROUP = "g"
INSTANCES = {1: "one", 3: "two", 5: "two"}
"""Static members; two processes were given the same instance id by mistake."""
PARTITIONS = 6
LOST = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
CALLER = Caller(client_id="c", client_host="/127.0.0.1", principal="User:ANONYMOUS")
NUMBERS = st.integers(0, 5)
PROTOCOLS = st.sampled_from(
    [
        (("range", b"r"),),
        (("range", b"r"), ("sticky", b"s")),
        (("sticky", b"s"), ("range", b"r")),
        (("range", b"other"), ("sticky", b"s")),
    ]
)


class Client:
    """A client's own view of its membership."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance_id = INSTANCES.get(number)
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []
        self.owns: set[int] = set()
        self.must_join = True
        self.is_synced = False
        self.tries = 0


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.clients = [Client(number) for number in range(6)]
        self.senders: dict[AnyTicket, tuple[Client, str]] = {}
        self.seen_generation = 0
        self.committed: dict[int, int] = {}
        self.tried: dict[int, set[int]] = {}
        self.owners: dict[int, dict[int, str]] = {}

    @initialize(delay=st.sampled_from([0, 3_000]), size=st.sampled_from([3, 100]))
    def begin(self, delay: int, size: int) -> None:
        self.bench = Bench(
            settings=GroupSettings(initial_rebalance_delay_ms=delay, members_max=size)
        )

    # Clients

    @rule(
        numbers=st.lists(NUMBERS, unique=True, min_size=1, max_size=5),
        rounds=st.integers(4, 8),
        protocols=PROTOCOLS,
        version=st.sampled_from([3, 5, 9]),
    )
    def some_work_for_a_while(
        self, numbers: list[int], rounds: int, protocols: Protocols, version: int
    ) -> None:
        """The requests of clients without failures."""
        self.bench.refuses = None
        self.commits_resume()
        for _ in range(rounds):
            for number in numbers:
                client = self.clients[number]
                if any(asker is client for asker, _ in self.senders.values()):
                    continue
                if client.must_join:
                    self.join(number, protocols, version)
                elif not client.is_synced:
                    self.sync(number)
                else:
                    self.heartbeat(number)
                    for partition in client.owns:
                        self.commit(number, partition, len(self.bench.log))
            self.time_passes(3_000)

    @rule(number=NUMBERS, protocols=PROTOCOLS, version=st.sampled_from([3, 5, 9]))
    def join(self, number: int, protocols: Protocols, version: int) -> None:
        client = self.clients[number]
        client.tries += 1
        ticket = self._sent(client, "join")
        self.bench.join(
            Join(
                ticket=ticket,
                version=version,
                caller=CALLER,
                group_id=GROUP,
                member_id=client.member_id,
                instance_id=client.instance_id,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=30_000,
                protocol_type="consumer",
                protocols=protocols,
                fresh_id=f"{number}.{client.tries}",
            )
        )
        self._take_answers()

    @rule(number=NUMBERS)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        assignments = [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=bytes(range(place, PARTITIONS, len(client.members))),
            )
            for place, member_id in enumerate(client.members)
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            assignments=assignments,
        )
        self.senders[self.bench.sync(request, CALLER)] = (client, "sync")
        self._take_answers()

    @rule(number=NUMBERS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
        )
        self.senders[self.bench.heartbeat(request, CALLER)] = (client, "heartbeat")
        self._take_answers()

    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        self.bench.leave(GROUP, [MemberIdentity(member_id=client.member_id)])
        self._forget(client)
        self._take_answers()

    @rule(
        number=NUMBERS,
        partition=st.integers(0, PARTITIONS - 1),
        offset=st.integers(0, 99),
    )
    def commit(self, number: int, partition: int, offset: int) -> None:
        """A commit of a partition that another member owns now must never be accepted."""
        client = self.clients[number]
        if partition not in client.owns:
            return
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        self.tried.setdefault(partition, set()).add(offset)
        try:
            ticket = self.bench.commit(request, CALLER)
        except KafkaError:
            return
        group = self.group()
        assert group is not None
        assert group.generation == client.generation
        self.senders[ticket] = (client, f"commit {partition} {offset}")
        self._take_answers()

    @rule(number=NUMBERS)
    def lose_memory(self, number: int) -> None:
        """The client's process restarts."""
        self._forget(self.clients[number])

    # Failures, time and restarts

    @rule(ms=st.sampled_from([0, 1, 2_999, 3_000, 9_999, 10_001, 30_001, 300_001]))
    def time_passes(self, ms: int) -> None:
        self.bench.advance(ms)
        self._take_answers()
        if self.group() is None:
            # The group has expired. The next group of its name counts generations from the start.
            self.owners = {}

    @rule(code=st.sampled_from([None, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def log_refuses(self, code: ErrorCode | None) -> None:
        self.bench.refuses = code

    @rule()
    def commits_wait(self) -> None:
        self.bench.holds_commits = True

    @rule()
    def commits_resume(self) -> None:
        self.bench.holds_commits = False
        self.bench.commit_all()
        self._take_answers()

    @precondition(lambda self: self.bench.waiting)
    @rule()
    def commits_time_out(self) -> None:
        self.bench.fail_all(ErrorCode.REQUEST_TIMED_OUT)
        self._take_answers()

    @rule()
    def coordinator_moves(self) -> None:
        """The next coordinator only has the log."""
        self.bench.unload()
        self._take_answers()
        assert not self.senders, "a request waits for the former coordinator"
        self.bench.load()
        group = self.group()
        # Generations that were never logged are used again.
        self.seen_generation = 0 if group is None else group.generation
        self.owners = {}

    # Responses

    def _sent(self, client: Client, what: str) -> AnyTicket:
        ticket = self.bench.ticket()
        self.senders[ticket] = (client, what)
        return ticket

    def _forget(self, client: Client) -> None:
        client.member_id, client.generation = "", -1
        client.members, client.owns = [], set()
        client.must_join, client.is_synced = True, False

    def _take_answers(self) -> None:
        for ticket, answer in self.bench.answers:
            client, what = self.senders.pop(ticket, (None, ""))
            if client is None:
                continue
            match answer:
                case JoinGroupResponse():
                    self._take_join_answer(client, answer)
                case SyncGroupResponse(error_code=0):
                    self._take_assignment(client, answer.assignment)
                case SyncGroupResponse() | HeartbeatResponse():
                    client.must_join |= answer.error_code != ErrorCode.NONE
                    if answer.error_code in LOST:
                        self._forget(client)
                case _ if what.startswith("commit") and not isinstance(answer, ErrorCode):
                    _, partition, offset = what.split()
                    self.committed[int(partition)] = int(offset)
                    self.tried[int(partition)] = {int(offset)}
        self.bench.answers = []

    def _take_join_answer(self, client: Client, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error_code in LOST:
            self._forget(client)
        elif answer.error_code == 0:
            client.member_id = answer.member_id
            client.generation = answer.generation_id
            client.members = [member.member_id for member in answer.members]
            # An eager client gives up its partitions.
            client.owns = set()
            client.must_join, client.is_synced = False, False

    def _take_assignment(self, client: Client, assignment: bytes) -> None:
        client.owns = set(assignment)
        client.is_synced = True
        owners = self.owners.setdefault(client.generation, {})
        for partition in client.owns:
            identity = client.instance_id or client.member_id
            assert owners.setdefault(partition, identity) == identity, "two owners"

    # Invariants

    def group(self) -> ClassicGroup | None:
        return self.bench.shard.registry.classic(GROUP)

    @invariant()
    def indexes_match_the_members(self) -> None:
        group = self.group()
        if group is None:
            return
        members = list(group.members.values())
        assert [m.member_id for m in members] == list(group.members)
        joined = [m for m in members if m.join_ticket is not None]
        assert group.joined_count == len(joined)
        assert group.weight >= sum(m.weight for m in members)
        if members:
            assert group.leader_id in group.members
            shared = set.intersection(*({name for name, _ in m.protocols} for m in members))
            assert shared, "no common protocol"
            for name in ("range", "sticky"):
                assert group.supports("consumer", ((name, b""),)) == (name in shared)
        assert group.static_ids == {m.instance_id: m.member_id for m in members if m.instance_id}
        assert group.pending_members.isdisjoint(group.members)
        assert group.pending_syncs <= set(group.members)

    @invariant()
    def states_fit_their_members(self) -> None:
        group = self.group()
        if group is None:
            return
        members = group.members.values()
        match group.state:
            case GroupState.EMPTY:
                assert not members
            case GroupState.PREPARING_REBALANCE:
                assert all(m.sync_ticket is None for m in members)
                assert ("join", GROUP) in self.bench.timers, "the rebalance would never end"
            case GroupState.COMPLETING_REBALANCE:
                assert members
                assert all(m.join_ticket is None for m in members)
            case GroupState.STABLE:
                assert members
                assert all(m.join_ticket is None and m.sync_ticket is None for m in members)
                assert group.protocol_name is not None
            case GroupState.DEAD:
                raise AssertionError("a dead group is not in the registry")

    @invariant()
    def every_member_has_a_timer(self) -> None:
        group = self.group()
        if group is None:
            return
        for member in group.members.values():
            waits = member.join_ticket is not None or member.sync_ticket is not None
            watched = ("session", GROUP, member.member_id) in self.bench.timers
            assert watched or waits, member
        for member_id in group.pending_members:
            assert ("session", GROUP, member_id) in self.bench.timers

    @invariant()
    def generations_only_grow(self) -> None:
        group = self.group()
        if group is not None:
            assert group.generation >= self.seen_generation
            self.seen_generation = group.generation
        else:
            self.seen_generation = 0

    @invariant()
    def waiting_requests_are_known(self) -> None:
        group = self.group()
        members = list(group.members.values()) if group is not None else []
        parked = {m.join_ticket for m in members} | {m.sync_ticket for m in members}
        for append in self.bench.waiting:
            parked |= {reply.ticket for reply in append.replies}
            join = getattr(append.sequel, "join", None)
            if join is not None:
                parked.add(join.ticket)
        assert set(self.senders) <= parked, "an answer was lost"

    @invariant()
    def acknowledged_offsets_are_there(self) -> None:
        offsets = self.bench.shard.store.of_group(GROUP).get("t", {})
        for partition, offset in self.committed.items():
            assert offsets[partition].offset in self.tried[partition] | {offset}

    @invariant()
    def the_log_alone_makes_the_same_groups(self) -> None:
        fresh = GroupShard(lambda: self.bench.settings)
        replay_log(fresh, self.bench.log, self.bench.producers)
        assert list(fresh.store) == list(self.bench.shard.store)
        group, loaded = self.group(), fresh.registry.classic(GROUP)
        assert (group is None) == (loaded is None)
        if group is None or loaded is None or self.bench.waiting:
            return
        if group.state is GroupState.STABLE:
            assert loaded.state is GroupState.STABLE
            assert loaded.generation == group.generation
            assert loaded.protocol_name == group.protocol_name
            assert loaded.leader_id == group.leader_id
            assert {m.member_id: m.assignment for m in loaded.members.values()} == {
                m.member_id: m.assignment for m in group.members.values()
            }


def test_a_group_keeps_its_promises() -> None:
    run_state_machine_as_test(
        GroupMachine, settings=settings(max_examples=40, stateful_step_count=40, deadline=None)
    )


@pytest.mark.slow
def test_a_group_keeps_its_promises_for_long() -> None:
    run_state_machine_as_test(
        GroupMachine, settings=settings(max_examples=600, stateful_step_count=60, deadline=None)
    )
