"""Elections and the high watermark, as scenarios: events, and below the line their effects."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.core.quorum.election import Election
from moldau.core.quorum.machine import (
    AppendControlBatch,
    Appended,
    Commit,
    Effect,
    Event,
    Flushed,
    LeaderChanged,
    QuorumMachine,
    Started,
    StartEpoch,
    Stopping,
    StoreElection,
    VersionRaised,
    VotersError,
    encode_kraft_version,
    majority_offset,
)
from moldau.core.quorum.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from moldau.types import NO_LEADER, BrokerId, Offset, Uuid

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
DIRECTORY = Uuid(b"d" * 16)


def voter(node_id: int, port: int = 1, directory_id: Uuid | None = None) -> Voter:
    key = (
        VoterKey(BrokerId(node_id))
        if directory_id is None
        else VoterKey(BrokerId(node_id), directory_id)
    )
    return Voter(key=key, endpoints=(VoterEndpoint("CONTROLLER", "localhost", port),))


def steps(text: str) -> Iterator[tuple[str, list[str]]]:
    """Commands with their expected effects."""
    command, expected, below_the_line = "", [], False
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if line == "----":
            below_the_line = True
        elif below_the_line and line:
            expected.append(line)
        elif below_the_line:
            yield command, expected
            command, expected, below_the_line = "", [], False
        elif line:
            if command:
                yield command, []
            command = line


class Scenario:
    def __init__(self) -> None:
        self.machine = QuorumMachine(voter(0))
        self.voters = VoterSet({})

    def run(self, command: str) -> list[str]:
        verb, *words = command.split()
        facts = {
            name: int(value) for name, _, value in (word.partition("=") for word in words) if value
        }
        if verb == "node":
            self.machine = QuorumMachine(voter(int(words[0]), facts.get("port", 1)))
            return []
        if verb == "voters":
            self.voters = VoterSet.of(voter(int(word)) for word in words)
            return []
        try:
            return [
                shown(effect) for effect in self.machine.step(self.event(verb, words, facts), 0)
            ]
        except VotersError as error:
            return [f"refused {error}"]

    def event(self, verb: str, words: list[str], facts: dict[str, int]) -> Event:
        match verb:
            case "appended":
                return Appended(Offset(int(words[0])))
            case "flushed":
                return Flushed(Offset(int(words[0])))
            case "stop":
                return Stopping()
            case _:
                assert verb == "start", verb
                return self.started(facts)

    def started(self, facts: dict[str, int]) -> Started:
        election = None
        if "stored_epoch" in facts:
            voted = facts.get("stored_vote")
            election = Election(
                epoch=facts["stored_epoch"],
                leader_id=BrokerId(facts.get("stored_leader", NO_LEADER)),
                voted_for=None if voted is None else VoterKey(BrokerId(voted)),
            )
        return Started(
            log_end_offset=Offset(facts["end"]),
            last_epoch=facts["last_epoch"],
            election=election,
            voters=self.voters,
            voters_offset=Offset(facts["voters_at"]),
            kraft_version=facts["kraft_version"],
        )


def shown(effect: Effect) -> str:
    match effect:
        case StoreElection(Election(epoch=epoch, leader_id=leader_id, voted_for=None)):
            return f"store epoch={epoch} leader={leader_id}"
        case StoreElection(Election(epoch=epoch, voted_for=key)):
            return f"store epoch={epoch} voted={key}"
        case StartEpoch(epoch):
            return f"epoch {epoch}"
        case AppendControlBatch(epoch, values):
            return " ".join([f"append epoch={epoch}", *(kind.name for kind, _ in values)])
        case Commit(high_watermark):
            return f"commit {high_watermark}"
        case LeaderChanged(epoch, leader_id):
            return f"leader {'none' if leader_id == NO_LEADER else leader_id} epoch={epoch}"


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
    voters = VoterSet.of([voter(1, directory_id=DIRECTORY)])
    assert voters.is_only(VoterKey(BrokerId(1), DIRECTORY))
    assert not voters.is_only(VoterKey(BrokerId(1), Uuid(b"e" * 16)))
    # Settings name no directory.
    assert VoterSet.of([voter(1)]).is_only(VoterKey(BrokerId(1), DIRECTORY))

    machine = QuorumMachine(voter(1, directory_id=Uuid(b"e" * 16)))
    with pytest.raises(VotersError, match="replaced or formatted again"):
        machine.step(
            Started(
                log_end_offset=Offset(0),
                last_epoch=0,
                election=None,
                voters=voters,
                voters_offset=Offset(-1),
                kraft_version=1,
            ),
            0,
        )


def test_voters_survive_their_record() -> None:
    voters = VoterSet.of([voter(1, 9093, DIRECTORY), voter(2, 9094)])
    assert VoterSet.decode(voters.encode()) == voters


def test_a_leader_counts_as_caught_up_with_itself() -> None:
    scenario = Scenario()
    for command in ("node 1", "voters 1", "start end=0 last_epoch=0 voters_at=-1 kraft_version=1"):
        scenario.run(command)
    scenario.run("appended 3")
    status = scenario.machine.status(77)

    assert (status.leader_id, status.leader_epoch, status.high_watermark) == (1, 1, -1)
    assert [tuple(replica) for replica in status.voters] == [(VoterKey(BrokerId(1)), 3, 77, 77)]
    assert status.observers == ()


def test_a_raised_version_records_the_directory_of_a_static_voter() -> None:
    machine = QuorumMachine(voter(1, port=2, directory_id=DIRECTORY))
    machine.step(
        Started(
            log_end_offset=Offset(0),
            last_epoch=0,
            election=None,
            voters=VoterSet.of([voter(1)]),
            voters_offset=Offset(-1),
            kraft_version=0,
        ),
        0,
    )
    (_, version), (_, voters) = machine.version_records(1)
    assert version == encode_kraft_version(1)
    assert VoterSet.decode(voters) == VoterSet.of([voter(1, port=2, directory_id=DIRECTORY)])
    # Nothing changes before it is in the log.
    assert (machine.kraft_version, machine.voters) == (0, VoterSet.of([voter(1)]))
    assert machine.step(VersionRaised(1, Offset(5)), 0) == []
    assert (machine.kraft_version, machine.voters_written_offset) == (1, 5)
    assert machine.voters == VoterSet.decode(voters)
