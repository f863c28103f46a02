"""Members that never leave cannot fill the memory, and those with little metadata still join."""

from pathlib import Path

import pytest
from broker.group_node import running_groups

from moldau.broker.coordinators.member_memory import BYTES_MAX, SMALL_BYTES, MemberMemory
from moldau.core.groups.member import Caller, weight_of
from moldau.core.groups.settings import PROTOCOL_METADATA_BYTES_MAX, PROTOCOLS_MAX
from moldau.net.clock import ShiftedClock
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

# All of them share one object, so that the test itself takes little memory.
LARGE = {f"p{number}": bytes(PROTOCOL_METADATA_BYTES_MAX) for number in range(PROTOCOLS_MAX)}
CALLER = Caller(client_id="c", client_host="127.0.0.1", principal="User:c")


async def test_large_members_are_refused_beyond_a_limit_until_others_leave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_groups(tmp_path) as node:
        # In an old version, which needs no second request.
        answers = [
            await node.join(f"large{number}", protocols=LARGE, version=3) for number in range(8)
        ]
        joined = [answer for answer in answers if answer.error_code == ErrorCode.NONE]
        assert 0 < len(joined) <= BYTES_MAX // weight_of(tuple(LARGE.items()))
        refused = {answer.error_code for answer in answers[len(joined) :]}
        assert refused == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert caplog.text.count("may not join before others leave") == 1
        assert (await node.join("small", version=3)).error_code == ErrorCode.NONE
        rejoined = await node.join("large0", joined[0].member_id, protocols=LARGE, version=3)
        assert rejoined.error_code == ErrorCode.NONE
        leaving = [MemberIdentity(member_id=joined[0].member_id)]
        left = await node.ask(LeaveGroupRequest(group_id="large0", members=leaving), 3)
        assert left.members[0].error_code == ErrorCode.NONE
        node.clock.advance(1_000)
        again = await node.join("large again", protocols=LARGE, version=3)
        assert again.error_code == ErrorCode.NONE


async def test_too_many_protocols_are_refused_before_they_are_compared(tmp_path: Path) -> None:
    async with running_groups(tmp_path) as node:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="same")] * (PROTOCOLS_MAX + 1),
        )
        answer = await node.ask(request, 3)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        del request.protocols[0]
        assert (await node.ask(request, 3)).error_code == ErrorCode.NONE


def test_small_members_have_a_reserve_and_a_limit() -> None:
    clock = ShiftedClock()
    held = 0
    memory = MemberMemory(clock, lambda: held, bytes_max=10 * SMALL_BYTES)
    large, small = (("range", bytes(2 * SMALL_BYTES)),), (("range", bytes(SMALL_BYTES // 2)),)
    while memory.admits(CALLER, large):
        held += weight_of(large)
    assert held <= 5 * SMALL_BYTES
    assert memory.admits(CALLER, small)
    held += weight_of(small)
    while memory.admits(CALLER, small):
        held += weight_of(small)
    assert 9 * SMALL_BYTES < held <= 10 * SMALL_BYTES
    # A member that rejoins with what it has takes nothing more.
    assert memory.admits(CALLER, large, weight_of(large))
    held = 0
    clock.advance(1_000)
    assert memory.admits(CALLER, large)
