"""Each version of each API answers a valid request in the format of that version. Group members
need several requests in a row: they are one conversation per version.

Members of groups need several requests in a row: theirs are in one conversation per version.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from support.running_node import fresh_name
from support.waiting import wait_for
from support.wire_client import WireClient
from third_party.version_requests import (
    REQUESTS,
    World,
    api_versions,
    fitted,
    has_coordinator,
    make_world,
)

from moldau.protocol import messages as m
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages import request_class
from moldau.protocol.messages.join_group import JoinGroupRequestProtocol
from moldau.protocol.messages.leave_group import MemberIdentity
from moldau.protocol.messages.sync_group import SyncGroupRequestAssignment
from moldau.protocol.wire.schema import Struct

# Served by later issues, or only with accounts, other brokers or telemetry.
ELSEWHERE = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.UNREGISTER_BROKER,
}
CONVERSATION = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP}
# A response that is not an error of the request.
FINE = {0, ErrorCode.ELECTION_NOT_NEEDED}


def every_version() -> Iterator[Any]:
    for api_key in REQUESTS:
        first, last = request_class(api_key).VERSIONS
        served = API_VERSIONS[api_key].broker
        assert served is not None
        for version in range(max(first, served[0]), min(last, served[1]) + 1):
            yield pytest.param(api_key, version, id=f"{api_key.name}-{version}")


@pytest.fixture(scope="module")
def world(address: str) -> World:
    return make_world(address)


@pytest.mark.parametrize(("api_key", "version"), list(every_version()))
def test_a_good_request_is_answered_without_an_error(
    world: World, api_key: ApiKey, version: int
) -> None:
    request = fitted(REQUESTS[api_key](world), version)
    with WireClient(world.address) as client:
        answer = client.ask(request, version)
    assert [code for code in error_codes(answer) if code not in FINE] == []


def error_codes(struct: Struct) -> Iterator[int]:
    """All error codes in a response, at any depth."""
    for name, *_ in struct.FIELDS:
        value = getattr(struct, name)
        if name == "error_code":
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from error_codes(each)


def test_every_advertised_version_is_tried(address: str) -> None:
    with WireClient(address) as client:
        advertised = client.ask(api_versions()).api_keys
    found = {ApiKey(each.api_key) for each in advertised}
    known = set(REQUESTS) | CONVERSATION | ELSEWHERE
    assert known - found == set()
    for each in advertised:
        api_key = ApiKey(each.api_key)
        if api_key in known:
            assert (each.min_version, each.max_version) == API_VERSIONS[api_key].broker


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_and_leaves_in_every_version(address: str, version: int) -> None:
    """The other requests of the conversation use the versions of the same time."""
    group = fresh_name("talk")
    with WireClient(address) as client:
        wait_for(lambda: has_coordinator(client, group), "a coordinator")
        member = join(client, group, version)
        sync = m.SyncGroupRequest(
            group_id=group,
            generation_id=1,
            member_id=member,
            protocol_type="talk",
            protocol_name="any",
            assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"share")],
        )
        synced = client.ask(fitted(sync, min(version, 5)), min(version, 5))
        assert (synced.error_code, bytes(synced.assignment)) == (0, b"share")
        beat = m.HeartbeatRequest(group_id=group, generation_id=1, member_id=member)
        assert client.ask(beat, min(version, 4)).error_code == 0
        leave = m.LeaveGroupRequest(
            group_id=group, member_id=member, members=[MemberIdentity(member_id=member)]
        )
        left = client.ask(fitted(leave, min(version, 5)), min(version, 5))
        assert list(error_codes(left)) == ([0] if version < 3 else [0, 0])


def join(client: WireClient, group: str, version: int) -> str:
    """The member id that the group assigned."""
    request = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="talk",
        protocols=[JoinGroupRequestProtocol(name="any", metadata=b"anything")],
        reason="to see the world",
    )
    answer = client.ask(fitted(request, version), version)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = answer.member_id
        answer = client.ask(request, version)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.leader == answer.member_id
    assert [bytes(each.metadata) for each in answer.members] == [b"anything"]
    return str(answer.member_id)
