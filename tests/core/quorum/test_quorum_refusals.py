"""Requests and responses that the quorum machine refuses, with the text that administrators see."""

from dataclasses import replace

import pytest
from core.quorum.scenario import Scenario, position, shown, voter

from moldau.core.quorum.events import (
    NotDelivered,
    Requested,
    Respond,
    Responded,
    RespondWithRecords,
)
from moldau.core.quorum.rpc import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ChangeVotersResponse,
    Failure,
    FetchRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
)
from moldau.core.quorum.voters import VoterEndpoint, VoterKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import BrokerId, LeaderEpoch, Uuid

NO_VOTER = VoterKey(BrokerId(-1), Uuid(b"d" * 16))
E = ErrorCode


def run(*commands: str) -> Scenario:
    scenario = Scenario()
    for command in commands:
        scenario.run(command)
    return scenario


def leader(*commands: str) -> Scenario:
    """The only voter, which has committed its first records."""
    return run("node 1", "voters 1", "start", "flush", *commands)


def leader_of_fixed_voters(*ids: int) -> Scenario:
    """Voters that the settings name: kraft.version 0."""
    named = " ".join(map(str, ids))
    won = ("after 1000", "answers 2 vote granted", "answers 2 vote granted epoch=1", "flush")
    fetches = ("asks 2 fetch epoch=1 end=1/1 knows=1 wait=0",) if len(ids) > 1 else ()
    return run(
        "node 1", f"static {named}", "start", *(won if len(ids) > 1 else ("flush",)), *fetches
    )


def answer(scenario: Scenario, request: Request) -> Response:
    """The response to a request that is answered at once."""
    assert scenario.machine is not None
    effects = scenario.machine.step(Requested("token", request), scenario.now_ms)
    responses = [each.response for each in effects if isinstance(each, Respond)]
    assert len(responses) == 1, list(map(shown, effects))
    return responses[0]


def change_answer(scenario: Scenario, request: Request) -> tuple[ErrorCode, str | None]:
    response = answer(scenario, request)
    assert isinstance(response, ChangeVotersResponse)
    return response.error, response.message


def add(node_id: int) -> AddVoterRequest:
    return AddVoterRequest(voter=voter(node_id).key, endpoints=voter(node_id).endpoints)


def update(node_id: int, *, supports: int = 1) -> UpdateVoterRequest:
    return UpdateVoterRequest(
        epoch=LeaderEpoch(1),
        voter=voter(node_id).key,
        endpoints=voter(node_id).endpoints,
        kraft_versions=(0, supports),
    )


# Adding and removing voters


@pytest.mark.parametrize("key", [NO_VOTER, voter(2, has_directory=False).key])
def test_a_voter_to_add_or_remove_has_an_id_and_a_directory(key: VoterKey) -> None:
    scenario = leader()
    adding = AddVoterRequest(voter=key, endpoints=voter(2).endpoints)
    code, text = change_answer(scenario, adding)
    assert (code, text) == (E.INVALID_REQUEST, "Add voter request didn't include a valid voter")
    code, text = change_answer(scenario, RemoveVoterRequest(voter=key))
    assert (code, text) == (E.INVALID_REQUEST, "Remove voter request didn't include a valid voter")


def test_a_voter_to_add_has_an_address_on_the_quorums_listener() -> None:
    request = replace(add(2), endpoints=(VoterEndpoint("OTHER", "host", 7),))
    code, text = change_answer(leader(), request)
    assert code is E.INVALID_REQUEST
    assert text is not None
    assert "ListenerName(OTHER)=host/<unresolved>:7" in text
    assert text.endswith("for the default listener ListenerName(CONTROLLER)")


def test_fixed_voters_cannot_be_added_or_removed() -> None:
    scenario = leader_of_fixed_voters(1)
    reason = "voter because the kraft.version feature is 0"
    code, text = change_answer(scenario, add(2))
    assert (code, text) == (E.UNSUPPORTED_VERSION, f"Cluster doesn't support adding {reason}")
    code, text = change_answer(scenario, RemoveVoterRequest(voter=voter(1).key))
    assert (code, text) == (E.UNSUPPORTED_VERSION, f"Cluster doesn't support removing {reason}")


def test_a_voter_that_just_failed_to_answer_is_not_added() -> None:
    scenario = leader("asks 2 add", "loses 2")
    code, text = change_answer(scenario, add(2))
    assert code is E.REQUEST_TIMED_OUT
    assert text is not None
    assert text.startswith("New voter ReplicaKey(id=2, ")
    assert text.endswith(" is not ready to receive requests")


@pytest.mark.parametrize(
    ("versions", "code", "detail"),
    [
        (
            ApiVersionsResponse(error=E.UNSUPPORTED_VERSION),
            E.REQUEST_TIMED_OUT,
            "returned an error UNSUPPORTED_VERSION",
        ),
        (
            ApiVersionsResponse(kraft_versions=(0, 0)),
            E.INVALID_REQUEST,
            "(min: 0, max: 0 doesn't support the finalized version 1",
        ),
        (ApiVersionsResponse(), E.INVALID_REQUEST, "(min: 0, max: 0 doesn't support"),
        (
            ApiVersionsResponse(kraft_versions=(0, 1)),
            E.REQUEST_TIMED_OUT,
            "since it is lagging behind",
        ),
    ],
)
def test_a_voter_that_does_not_fit_is_not_added(
    versions: ApiVersionsResponse, code: ErrorCode, detail: str
) -> None:
    scenario = leader("asks 2 add")
    assert scenario.machine is not None
    event = Responded(scenario.sent[2], versions)
    (response,) = [
        effect.response
        for effect in scenario.machine.step(event, scenario.now_ms)
        if isinstance(effect, Respond)
    ]
    assert isinstance(response, ChangeVotersResponse)
    assert response.error is code
    assert detail in str(response.message)
    # The next change is not held up.
    assert change_answer(scenario, RemoveVoterRequest(voter=voter(7).key))[0] is E.VOTER_NOT_FOUND


def test_a_voter_without_an_answer_is_not_added_and_a_late_one_changes_nothing() -> None:
    scenario = leader("asks 2 add")
    assert scenario.machine is not None
    correlation = scenario.sent[2]
    effects = scenario.machine.step(NotDelivered(correlation, Failure.LOST), scenario.now_ms)
    (line,) = filter(None, map(shown, effects))
    assert line.startswith("reply 2 add: REQUEST_TIMED_OUT")
    late = Responded(correlation, ApiVersionsResponse(kraft_versions=(0, 1)))
    assert scenario.machine.step(late, scenario.now_ms) == []


def test_a_change_waits_until_the_last_one_is_committed() -> None:
    """The record that moves voter 2 is in the log of one of two voters only."""
    scenario = run(
        "node 1", "voters 1 2", "start", "after 1000",
        "answers 2 vote granted", "answers 2 vote granted epoch=1", "flush",
        "asks 2 fetch epoch=1 end=1/3 knows=3 wait=0", "asks 2 update epoch=1 port=22",
    )  # fmt: skip
    code, text = change_answer(scenario, RemoveVoterRequest(voter=voter(2).key))
    assert code is E.REQUEST_TIMED_OUT
    assert text == (
        "Request timed out waiting for voters to commit the latest voter change at "
        "Optional[3] with HWM 3"
    )


def test_an_early_acknowledgement_does_not_wait_for_the_commit() -> None:
    scenario = leader("asks 2 fetch epoch=1 end=1/3 knows=3 wait=0", "asks 2 add early")
    assert scenario.run("answers 2 versions") == [
        "append KRAFT_VOTERS",
        "reply 2 add: leader=1 epoch=1",
    ]


# Updates of voters


def test_an_update_describes_a_voter_that_exists_and_fits() -> None:
    scenario = leader()
    assert change_answer(scenario, update(7))[0] is E.VOTER_NOT_FOUND
    assert change_answer(scenario, update(1, supports=0))[0] is E.INVALID_REQUEST
    nameless = replace(update(1), endpoints=(VoterEndpoint("OTHER", "host", 7),))
    assert change_answer(scenario, nameless)[0] is E.INVALID_REQUEST
    assert change_answer(scenario, replace(update(1), voter=NO_VOTER))[0] is E.INVALID_REQUEST
    assert change_answer(scenario, update(1))[0] is E.NONE


# kraft.version


def refusal_of_upgrade(scenario: Scenario, level: int) -> str:
    assert scenario.machine is not None
    with pytest.raises(KafkaError) as refused:
        scenario.machine.check_upgrade(level)
    assert refused.value.code is E.INVALID_UPDATE_VERSION
    return refused.value.detail


def test_the_version_is_raised_only_when_all_voters_are_known_to_support_it() -> None:
    scenario = leader_of_fixed_voters(1, 2)
    assert scenario.machine is not None
    scenario.machine.check_upgrade(0)
    assert "Directory id must be known for all of the voters: 1" in refusal_of_upgrade(scenario, 1)
    assert change_answer(scenario, update(2, supports=0))[0] is E.NONE
    assert "not all of the voters support it" in refusal_of_upgrade(scenario, 1)
    assert change_answer(scenario, update(2))[0] is E.NONE
    scenario.machine.check_upgrade(1)
    assert "append KRAFT_VERSION KRAFT_VOTERS" in scenario.run("upgrade 1")
    assert (
        scenario.machine.kraft_version,
        scenario.machine.kraft_version_at(scenario.log.end.offset),
    ) == (1, 1)


def test_the_version_is_never_lowered() -> None:
    scenario = leader()
    assert scenario.machine is not None
    assert (
        "from version KRAFT_VERSION_1 to KRAFT_VERSION_0 because the new version is a downgrade"
        in refusal_of_upgrade(scenario, 0)
    )
    scenario.machine.check_upgrade(1)
    assert scenario.run("upgrade 1") == []


# Fetches


def test_a_replica_without_an_id_gets_records_and_counts_for_nothing() -> None:
    """As the tools that show a log do."""
    scenario = leader()
    assert scenario.machine is not None
    request = FetchRequest(
        replica=NO_VOTER, epoch=LeaderEpoch(1), position=position("0/0"), max_bytes=9, max_wait_ms=0
    )
    (found,) = scenario.machine.step(Requested("token", request), scenario.now_ms)
    assert isinstance(found, RespondWithRecords)
    assert scenario.machine.status(scenario.now_ms, wall_ms=0).observers == ()


def test_observers_that_are_silent_for_minutes_are_forgotten() -> None:
    scenario = leader("asks 4 fetch epoch=1 end=0/0 wait=0")
    assert scenario.machine is not None
    for later_ms, seen in ((299_999, [4]), (300_000, [])):
        status = scenario.machine.status(scenario.now_ms + later_ms, wall_ms=10**9)
        assert [each.key.node_id for each in status.observers] == seen


def test_made_up_observers_do_not_fill_the_memory() -> None:
    scenario = leader()
    assert scenario.machine is not None

    def fetch(node_id: int) -> None:
        key = VoterKey(BrokerId(node_id), Uuid(b"x" * 16))
        request = FetchRequest(
            replica=key, epoch=LeaderEpoch(1), position=position("0/0"), max_bytes=9, max_wait_ms=0
        )
        assert scenario.machine is not None
        (found,) = scenario.machine.step(Requested("token", request), scenario.now_ms)
        assert isinstance(found, RespondWithRecords), "all of them get their records"

    def seen() -> int:
        assert scenario.machine is not None
        return len(scenario.machine.status(scenario.now_ms, wall_ms=0).observers)

    for node_id in range(100, 10_105):
        fetch(node_id)
    assert seen() == 10_000
    scenario.run("after 300000")
    fetch(99_999)
    assert seen() == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"max_bytes": -1}, E.UNKNOWN_SERVER_ERROR),
        ({"replica": voter(1).key}, E.UNKNOWN_SERVER_ERROR),
        ({"snapshot": position("0/0")}, E.SNAPSHOT_NOT_FOUND),
        ({"snapshot": position("1/9")}, E.SNAPSHOT_NOT_FOUND),
        ({"position": -1}, E.POSITION_OUT_OF_RANGE),
        ({"position": 10**6}, E.POSITION_OUT_OF_RANGE),
        ({"epoch": LeaderEpoch(0)}, E.FENCED_LEADER_EPOCH),
        ({"epoch": LeaderEpoch(2)}, E.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_fetch_of_a_snapshot_must_fit_it(change: dict[str, object], code: ErrorCode) -> None:
    scenario = leader("append 3", "flush", "makes-snapshot 4")
    request = FetchSnapshotRequest(
        replica=voter(2).key,
        epoch=LeaderEpoch(1),
        snapshot=position("1/4"),
        position=0,
        max_bytes=10,
    )
    response = answer(scenario, replace(request, **change))  # type: ignore[arg-type]
    assert isinstance(response, FetchSnapshotResponse)
    assert response.error is code


def test_a_node_that_is_asked_for_its_versions_answers() -> None:
    assert answer(leader(), ApiVersionsRequest()) == ApiVersionsResponse()


# Responses that do not help


def follower() -> Scenario:
    return run("node 1", "voters 1 2 3", "log 1 1", "stored epoch=2 leader=2", "start")


def requests(scenario: Scenario, lines: list[str]) -> list[str]:
    assert scenario.machine is not None
    return [line for line in lines if line.startswith("to ")]


@pytest.mark.parametrize(
    "response",
    [
        "fetch epoch=2 leader=2 error=UNKNOWN_SERVER_ERROR",
        "fetch epoch=2 leader=2 snapshot=-1/9",
    ],
)
def test_a_fetch_that_failed_is_repeated_after_a_pause(response: str) -> None:
    scenario = follower()
    assert requests(scenario, scenario.run(f"answers 2 {response}")) == []
    later = scenario.run("after 100")
    assert requests(scenario, later), "the leader, or any other node while it pauses"


def test_a_transfer_that_fails_once_is_continued() -> None:
    scenario = follower()
    begun = scenario.run("answers 2 fetch epoch=2 leader=2 snapshot=2/9")
    assert begun == ["begin snapshot 2/9", "to 2: fetch snapshot 2/9 from 0"]
    refused = scenario.run("answers 2 snapshot epoch=2 leader=2 of=2/9 error=UNKNOWN_SERVER_ERROR")
    assert refused == []
    assert scenario.run("after 100") == ["to 2: fetch snapshot 2/9 from 0"]


def test_a_vote_with_an_unknown_error_does_not_count() -> None:
    scenario = run("node 1", "voters 1 2", "start", "after 1000")
    assert scenario.run("answers 2 vote granted error=UNKNOWN_SERVER_ERROR") == []
    assert type(scenario.machine and scenario.machine.role).__name__ == "Prospective"


def test_voters_are_named_with_their_directories() -> None:
    assert str(voter(3, has_directory=False).key) == "3"
    assert str(voter(3).key) == "3 (directory AwMDAwMDAwMDAwMDAwMDAw)"
