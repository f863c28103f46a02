"""A member of a classic group, step by step."""

from typing import Any

import pytest

from moldau.core.consumer.assignors import (
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
)
from moldau.core.consumer.classic_membership import (
    ClassicMembership,
    MemberOptions,
    common_protocol,
)
from moldau.core.consumer.consumer_protocol import read_subscription, write_assignment
from moldau.core.consumer.membership import (
    Assigned,
    AssignmentComputed,
    CommitRefused,
    ComputeAssignment,
    Effect,
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
    Subscribed,
    Synced,
)
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from moldau.protocol.messages.leave_group import LeaveGroupRequest
from moldau.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from moldau.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
NAMES = {
    RebalanceProtocol.EAGER: "range",
    RebalanceProtocol.COOPERATIVE: "cooperative-sticky",
}


def member(*, cooperative: bool = False, instance_id: str | None = None) -> ClassicMembership:
    options = MemberOptions(group_id="g", instance_id=instance_id)
    made = ClassicMembership(
        options, [CooperativeStickyAssignor() if cooperative else RangeAssignor()]
    )
    assert made.step(Subscribed(("a",))) == []
    return made


def joined(one: ClassicMembership, generation: int = 1, **changes: Any) -> Joined:
    answer: dict[str, Any] = {
        "generation_id": generation,
        "protocol_name": NAMES[one.protocol],
        "leader": "other",
        "member_id": "m",
    }
    return Joined(JoinGroupResponse(**(answer | changes)))


def refused(code: ErrorCode, **changes: Any) -> Joined:
    return Joined(JoinGroupResponse(error_code=code, **changes))


def sole(effects: list[Effect]) -> Any:
    (effect,) = effects
    return effect


def synced(generation: int, *share: TopicPartition) -> Synced:
    return Synced(generation, SyncGroupResponse(assignment=write_assignment(share)))


def rebalance(one: ClassicMembership, generation: int, *share: TopicPartition) -> Assigned:
    """Runs a whole rebalance as a follower."""
    assert isinstance(sole(one.step(Polled())), Prepare)
    assert isinstance(sole(one.step(Prepared())), SendRequest)
    assert isinstance(sole(one.step(joined(one, generation))), SendRequest)
    done: Assigned = sole(one.step(synced(generation, *share)))
    return done


def test_a_member_joins_when_the_user_polls() -> None:
    one = member()
    assert one.needs_user
    assert sole(one.step(Polled())) == Prepare((), False)
    sent = sole(one.step(Prepared()))
    assert isinstance(sent.request, JoinGroupRequest)
    assert [protocol.name for protocol in sent.request.protocols] == ["range"]
    again = sole(one.step(refused(ErrorCode.MEMBER_ID_REQUIRED, member_id="m")))
    assert again.request.member_id == "m"
    sync = sole(one.step(joined(one)))
    assert isinstance(sync.request, SyncGroupRequest)
    assert sole(one.step(synced(1, A0))) == Assigned((A0,), (A0,), ())
    assert (one.state, one.owned, one.must_send_heartbeats, one.needs_user) == (
        MemberState.STABLE,
        (A0,),
        True,
        False,
    )


def test_the_leader_assigns_partitions() -> None:
    one = member()
    one.step(Polled())
    sent = sole(one.step(Prepared()))
    metadata = sent.request.protocols[0].metadata
    rows = [JoinGroupResponseMember(member_id="m", metadata=metadata)]
    make = sole(one.step(joined(one, leader="m", members=rows)))
    assert make == ComputeAssignment(1, "range", {"m": read_subscription(metadata)})
    assert one.step(AssignmentComputed(0, {})) == []
    sync = sole(one.step(AssignmentComputed(1, {"m": b"share"})))
    assert [(row.member_id, row.assignment) for row in sync.request.assignments] == [
        ("m", b"share")
    ]


def test_an_eager_member_revokes_everything_before_it_rejoins() -> None:
    one = member()
    rebalance(one, 1, A0, A1)
    assert one.step(HeartbeatAnswered(1, "m", ErrorCode.REBALANCE_IN_PROGRESS)) == []
    assert one.needs_user
    assert sole(one.step(Polled())) == Prepare((A0, A1), False)
    one.step(Prepared())
    one.step(joined(one, 2))
    assert sole(one.step(synced(2, A1))) == Assigned((A1,), (A1,), ())


def test_a_cooperative_member_revokes_only_what_moves_and_rejoins() -> None:
    one = member(cooperative=True)
    rebalance(one, 1, A0, A1)
    one.step(RejoinNeeded("others came"))
    assert sole(one.step(Polled())) == Prepare((), False)
    sent = sole(one.step(Prepared()))
    subscription = read_subscription(sent.request.protocols[0].metadata)
    assert (subscription.owned, subscription.generation) == ((A0, A1), 1)
    one.step(joined(one, 2))
    assert sole(one.step(synced(2, A0))) == Assigned((A0,), (), (A1,))
    assert one.needs_user
    assert rebalance(one, 3, A0) == Assigned((A0,), (), ())
    assert not one.needs_user


def test_a_cooperative_member_revokes_unsubscribed_topics() -> None:
    one = member(cooperative=True)
    rebalance(one, 1, A0)
    one.step(Subscribed(("b",)))
    assert sole(one.step(Polled())) == Prepare((A0,), False)


@pytest.mark.parametrize("cooperative", [True, False])
def test_an_unknown_member_loses_its_partitions(cooperative: bool) -> None:
    one = member(cooperative=cooperative)
    rebalance(one, 1, A0)
    assert one.step(HeartbeatAnswered(1, "m", ErrorCode.UNKNOWN_MEMBER_ID)) == []
    assert not one.must_send_heartbeats
    assert sole(one.step(Polled())) == Prepare((A0,), True)
    sent = sole(one.step(Prepared()))
    assert sent.request.member_id == ""


def test_responses_to_a_former_member_id_are_ignored() -> None:
    one = member()
    rebalance(one, 2, A0)
    for event in (
        HeartbeatAnswered(1, "m", ErrorCode.UNKNOWN_MEMBER_ID),
        HeartbeatAnswered(2, "n", ErrorCode.UNKNOWN_MEMBER_ID),
        CommitRefused(1, ErrorCode.ILLEGAL_GENERATION),
        synced(2, A1),
        joined(one, 3),
        RequestFailed(),
        Prepared(),
        AssignmentComputed(2, {}),
    ):
        assert one.step(event) == []
    assert (one.state, one.owned, one.needs_user) == (MemberState.STABLE, (A0,), False)


@pytest.mark.parametrize(
    ("code", "finds"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
    ],
)
def test_joining_is_retried(code: ErrorCode, finds: bool) -> None:
    one = member()
    one.step(Polled())
    one.step(Prepared())
    sent = sole(one.step(refused(code)))
    assert (sent.after_failure, sent.find_coordinator) == (True, finds)
    one.step(joined(one))
    again = sole(one.step(Synced(1, SyncGroupResponse(error_code=code))))
    assert isinstance(again.request, JoinGroupRequest)


def test_a_lost_connection_restarts_the_rebalance() -> None:
    one = member()
    one.step(Polled())
    one.step(Prepared())
    sent = sole(one.step(RequestFailed()))
    assert isinstance(sent.request, JoinGroupRequest)
    assert sent.find_coordinator


def test_a_cooperative_member_that_is_unknown_while_it_joins_notifies_its_user() -> None:
    one = member(cooperative=True)
    rebalance(one, 1, A0)
    one.step(RejoinNeeded("x"))
    one.step(Polled())
    one.step(Prepared())
    assert one.step(refused(ErrorCode.UNKNOWN_MEMBER_ID)) == []
    assert sole(one.step(Polled())) == Prepare((A0,), True)


@pytest.mark.parametrize(
    "code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
)
def test_permanent_errors_are_raised_to_the_user(code: ErrorCode) -> None:
    one = member()
    one.step(Polled())
    one.step(Prepared())
    failed = sole(one.step(refused(code)))
    assert isinstance(failed, Fail)
    assert failed.error.code is code
    assert isinstance(sole(one.step(Polled())), Prepare)


def test_a_fenced_member_does_not_rejoin() -> None:
    one = member(instance_id="i")
    rebalance(one, 1, A0)
    failed = sole(one.step(HeartbeatAnswered(1, "m", ErrorCode.FENCED_INSTANCE_ID)))
    assert failed.error.code is ErrorCode.FENCED_INSTANCE_ID
    assert one.step(Polled()) == [failed]
    assert one.step(Polled()) == [failed]


def test_a_member_that_does_not_poll_leaves_and_rejoins() -> None:
    one = member()
    rebalance(one, 1, A0)
    effect = sole(one.step(PollExpired()))
    assert isinstance(effect, SendWithoutReply)
    assert isinstance(effect.request, LeaveGroupRequest)
    assert not one.must_send_heartbeats
    assert sole(one.step(Polled())) == Prepare((A0,), True)


def test_static_members_do_not_leave() -> None:
    one = member(instance_id="i")
    rebalance(one, 1, A0)
    assert one.step(Left()) == []
    other = member()
    rebalance(other, 1, A0)
    assert isinstance(sole(other.step(Left())), SendWithoutReply)


def test_assignors_need_a_protocol_in_common() -> None:
    class Odd(RangeAssignor):
        protocols: Any = ()

    with pytest.raises(ValueError, match="in common"):
        common_protocol([Odd(), RangeAssignor()])


def test_an_assignor_that_fails_before_joining_is_retried() -> None:
    class Hesitant(RangeAssignor):
        is_ready = False

        def user_data(self, view: Any) -> bytes | None:
            if not self.is_ready:
                raise RuntimeError("not yet")
            return super().user_data(view)

    assignor = Hesitant()
    one = ClassicMembership(MemberOptions(group_id="g"), [assignor])
    one.step(Subscribed(("a",)))
    one.step(Polled())
    with pytest.raises(RuntimeError):
        one.step(Prepared())
    assert one.needs_user
    assignor.is_ready = True
    one.step(Polled())
    assert isinstance(sole(one.step(Prepared())), SendRequest)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_heartbeats_that_succeed_or_may_be_repeated_change_nothing(code: ErrorCode) -> None:
    one = member()
    rebalance(one, 1, A0)
    assert one.step(HeartbeatAnswered(1, "m", code)) == []
    assert (one.state, one.needs_user) == (MemberState.STABLE, False)


def test_a_heartbeat_that_is_refused_for_good_is_raised_to_the_user() -> None:
    one = member()
    rebalance(one, 1, A0)
    failed = sole(one.step(HeartbeatAnswered(1, "m", ErrorCode.GROUP_AUTHORIZATION_FAILED)))
    assert isinstance(failed, Fail)
    assert failed.error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_second_heartbeat_that_announces_the_same_rebalance_changes_nothing() -> None:
    one = member()
    rebalance(one, 1, A0)
    for _ in range(2):
        assert one.step(HeartbeatAnswered(1, "m", ErrorCode.REBALANCE_IN_PROGRESS)) == []
    assert one.needs_user
    assert sole(one.step(Polled())) == Prepare((A0,), False)


def test_an_assignment_that_is_refused_for_good_is_raised_to_the_user() -> None:
    one = member()
    one.step(Polled())
    one.step(Prepared())
    one.step(joined(one))
    answer = SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    failed = sole(one.step(Synced(1, answer)))
    assert isinstance(failed, Fail)
    assert failed.error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_group_that_chose_an_assignor_that_the_member_lacks_is_an_error() -> None:
    one = member()
    one.step(Polled())
    one.step(Prepared())
    failed = sole(one.step(joined(one, protocol_name="other")))
    assert isinstance(failed, Fail)
    assert failed.error.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "'other'" in failed.error.detail


def test_a_refused_commit_ends_the_membership_of_its_own_generation_only() -> None:
    one = member()
    rebalance(one, 2, A0)
    assert one.step(CommitRefused(1, ErrorCode.UNKNOWN_MEMBER_ID)) == []
    assert one.state is MemberState.STABLE
    assert one.step(CommitRefused(2, ErrorCode.UNKNOWN_MEMBER_ID)) == []
    assert (one.needs_user, one.member_id) == (True, "")


def test_a_refused_commit_of_an_old_generation_keeps_the_member_id() -> None:
    one = member()
    rebalance(one, 2, A0)
    one.step(CommitRefused(2, ErrorCode.ILLEGAL_GENERATION))
    assert (one.needs_user, one.member_id) == (True, "m")


def test_while_it_rejoins_the_response_to_the_join_decides() -> None:
    one = member()
    rebalance(one, 1, A0)
    one.step(RejoinNeeded("the subscription changed"))
    one.step(Polled())
    one.step(Prepared())
    assert one.state is MemberState.JOINING
    generation = one.generation
    one.step(CommitRefused(generation, ErrorCode.UNKNOWN_MEMBER_ID))
    assert (one.state, one.member_id) == (MemberState.JOINING, "m")


def test_a_member_without_topics_does_not_join() -> None:
    one = member()
    assert one.step(Subscribed(())) == []
    assert one.step(Polled()) == []
    assert one.step(Subscribed(("a",))) == []
    assert isinstance(sole(one.step(Polled())), Prepare)


def test_the_same_subscription_in_another_order_is_no_change() -> None:
    one = member()
    one.step(Subscribed(("a", "b")))
    rebalance(one, 1, A0)
    one.step(Subscribed(("b", "a")))
    assert not one.needs_user
    one.step(Subscribed(("b",)))
    assert one.needs_user


def test_a_heartbeat_names_the_member_and_its_generation() -> None:
    one = member(instance_id="i")
    rebalance(one, 3, A0)
    sent = one.heartbeat()
    assert (sent.group_id, sent.member_id, sent.generation_id) == ("g", "m", 3)
    assert sent.group_instance_id == "i"
