"""Which clients may act for a member, and limits on the coordinator's memory."""

from dataclasses import replace

from core.groups.bench import Bench

from moldau.core.groups.joining import Join
from moldau.core.groups.member import Caller, Protocols
from moldau.core.groups.settings import MEMBER_NAME_CHARS_MAX, PROTOCOLS_MAX, GroupSettings
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.sync_group import SyncGroupRequest

ALICE = Caller(client_id="c", client_host="/127.0.0.1", principal="User:alice")
MALLORY = replace(ALICE, principal="User:mallory")


class Group:
    def __init__(self, **settings: int) -> None:
        self.bench = Bench(settings=GroupSettings(initial_rebalance_delay_ms=0, **settings))
        self._count = 0

    def join(
        self,
        member_id: str = "",
        *,
        protocols: Protocols = (("range", b""),),
        version: int = 9,
        caller: Caller = ALICE,
        group_id: str = "g",
    ) -> JoinGroupResponse:
        self._count += 1
        ticket = self.bench.ticket()
        self.bench.join(
            Join(
                ticket=ticket,
                version=version,
                caller=caller,
                group_id=group_id,
                member_id=member_id,
                instance_id=None,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=protocols,
                fresh_id=str(self._count),
            )
        )
        self.bench.advance(0)
        answer = dict(self.bench.answers)[ticket]
        assert isinstance(answer, JoinGroupResponse)
        return answer

    def heartbeat(self, joined: JoinGroupResponse, caller: Caller) -> int:
        request = HeartbeatRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
        )
        return self.bench.shard.classic.heartbeat(request, caller, self.bench.turn()).error_code


def test_a_members_id_alone_does_not_authorize_requests() -> None:
    group = Group()
    member = group.join(version=3)
    assert group.heartbeat(member, ALICE) == ErrorCode.NONE
    assert group.heartbeat(member, MALLORY) == ErrorCode.UNKNOWN_MEMBER_ID
    stolen = group.join(member.member_id, caller=MALLORY)
    assert stolen.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_after_a_restart_the_first_to_rejoin_owns_the_id() -> None:
    """The log does not contain the owner."""
    group = Group()
    member = group.join(version=3)
    request = SyncGroupRequest(
        group_id="g", generation_id=member.generation_id, member_id=member.member_id
    )
    group.bench.sync(request, ALICE)
    group.bench.load()
    assert group.heartbeat(member, ALICE) == ErrorCode.NONE
    again = group.join(member.member_id)
    assert group.heartbeat(again, MALLORY) == ErrorCode.UNKNOWN_MEMBER_ID


def test_protocol_metadata_has_a_limit() -> None:
    group = Group(protocol_metadata_bytes_max=10)
    assert group.join(protocols=(("range", bytes(11)),)).error_code == ErrorCode.INVALID_REQUEST
    many = tuple((f"p{number}", b"") for number in range(PROTOCOLS_MAX + 1))
    assert group.join(protocols=many).error_code == ErrorCode.INVALID_REQUEST
    assert len(group.bench.shard.registry) == 0


def test_unused_member_ids_do_not_pile_up() -> None:
    group = Group(pending_members_max=3)
    given = [group.join() for _ in range(5)]
    assert {each.error_code for each in given} == {ErrorCode.MEMBER_ID_REQUIRED}
    classic = group.bench.shard.registry.classic("g")
    assert classic is not None
    assert classic.pending_members == {each.member_id for each in given[2:]}
    sessions = [key for key in group.bench.timers if key[0] == "session"]
    assert len(sessions) == 3
    # A client that is too late requests another id, as after any long absence.
    late = group.join(given[0].member_id)
    assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_ids_of_all_groups_together_have_a_limit() -> None:
    group = Group(pending_members_max=3)
    for name in "abcde":
        group.join(group_id=name)
    pending = [len(each.pending_members) for each in group.bench.shard.registry.classic_groups()]
    assert pending == [0, 0, 1, 1, 1]


def test_a_group_does_not_wait_for_a_dropped_member_id() -> None:
    group = Group(pending_members_max=1)
    abandoned = group.join().member_id
    member = group.join(group.join().member_id)
    assert member.error_code == ErrorCode.NONE
    assert [each.member_id for each in member.members] == [member.member_id]
    assert member.member_id != abandoned


def test_a_long_name_is_cut_in_member_ids() -> None:
    caller = replace(ALICE, client_id="n" * 32_767)
    given = Group().join(caller=caller)
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert given.member_id == "n" * MEMBER_NAME_CHARS_MAX + "-1"
