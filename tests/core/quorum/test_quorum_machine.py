"""The quorum machine by scenarios: what happens to one node, and below the line what it does."""

from dataclasses import replace
from pathlib import Path

import pytest
from core.quorum.scenario import Scenario, steps, voter

from moldau.core.quorum.leading import majority_offset
from moldau.core.quorum.voters import VoterEndpoint, VoterKey, VoterSet
from moldau.types import BrokerId, Uuid

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    scenario = Scenario()
    for command, expected in steps(path.read_text()):
        assert scenario.run(command) == expected, command


@pytest.mark.parametrize(
    ("reached", "committed"), [([5], 5), ([9, 3], 3), ([9, 3, 7], 7), ([1, 2, 3, 4], 2)]
)
def test_records_on_a_majority_of_voters_are_committed(reached: list[int], committed: int) -> None:
    assert majority_offset(reached) == committed


def test_a_voter_is_a_node_with_its_directory() -> None:
    voters = VoterSet.of([voter(1)])
    other = VoterKey(BrokerId(1), Uuid(b"e" * 16))
    assert voters.is_only(voter(1).key)
    assert not voters.is_only(other)
    # Settings name no directory.
    assert VoterSet.of([voter(1, has_directory=False)]).is_only(other)


def test_voters_survive_their_record() -> None:
    voters = VoterSet.of([voter(1, 9093), voter(2, 9094, has_directory=False)])
    assert VoterSet.decode(voters.encode()) == voters


def test_the_order_of_addresses_is_no_change() -> None:
    first, second = (VoterEndpoint(name, "host", 9093) for name in ("CONTROLLER", "SSL"))
    written = VoterSet.of([replace(voter(1), endpoints=(first, second))])
    assert not written.needs_update(replace(voter(1), endpoints=(second, first)))
    assert written.needs_update(replace(voter(1), endpoints=(first,)))
    assert written.needs_update(replace(voter(1), endpoints=(first, second), kraft_versions=(0, 2)))


def test_the_leader_knows_how_far_the_others_are() -> None:
    scenario = Scenario()
    commands = (
        "node 1",
        "voters 1 2 3",
        "start",
        "after 1000",
        "answers 2 vote granted",
        "answers 2 vote granted epoch=1",
        "flush",
        "asks 2 fetch epoch=1 end=1/3",
        "after 10",
        "asks 4 fetch epoch=1 end=0/0",
    )
    for command in commands:
        scenario.run(command)
    assert scenario.machine is not None
    status = scenario.machine.status(scenario.now_ms + 7, wall_ms=100_000)

    assert (status.leader_id, status.leader_epoch, status.high_watermark) == (1, 1, 3)
    assert [tuple(each)[1:] for each in status.voters] == [
        (3, 100_000, 100_000),
        (3, 99_983, 99_983),
        (-1, -1, -1),
    ]
    assert [(each.key.node_id, each.last_fetch_ms) for each in status.observers] == [(4, 99_993)]
