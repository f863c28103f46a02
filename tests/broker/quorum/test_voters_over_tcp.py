"""Three voters in processes of their own, over TCP: they elect a leader, replicate, and survive the
loss of any one of them.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running_node import free_port
from support.waiting import wait_for

TESTS = Path(__file__).parents[2]


class Voter:
    """One process, and what it has said so far."""

    def __init__(self, folder: Path, node_id: int, voters: str) -> None:
        self.node_id = node_id
        self._folder = folder
        self._voters = voters
        self.start()

    def start(self) -> None:
        self.lines: list[str] = []
        arguments = [str(self._folder), str(self.node_id), self._voters]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "broker.voter_process", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process, self.lines))
        self._reader.start()

    @staticmethod
    def _read(process: "subprocess.Popen[str]", lines: list[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            lines.extend(map(str.strip, process.stdout))

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def said(self, line: str) -> bool:
        return line in self.lines

    @property
    def leader(self) -> tuple[int, int]:
        """The epoch and the leader that it reported last."""
        for line in reversed(self.lines):
            words = line.split()
            if words[0] == "leader":
                return int(words[3]), int(words[1])
        return -1, -1

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._process.wait(60)
        self._reader.join(60)
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()


class Quorum:
    def __init__(self, folder: Path) -> None:
        voters = ",".join(f"{node_id}@127.0.0.1:{free_port()}" for node_id in (1, 2, 3))
        self.voters = {
            node_id: Voter(folder / str(node_id), node_id, voters) for node_id in (1, 2, 3)
        }
        self.running = set(self.voters)

    @property
    def _running(self) -> list[Voter]:
        return [self.voters[node_id] for node_id in sorted(self.running)]

    def leader(self, *, after: int = -1) -> Voter:
        """Once all running voters agree on one of them, in a later epoch than `after`."""

        def agree() -> bool:
            found = {voter.leader for voter in self._running}
            if len(found) != 1:
                return False
            ((epoch, leader_id),) = found
            return epoch > after and leader_id in self.running

        wait_for(agree, f"a leader: {[voter.lines[-3:] for voter in self._running]}")
        return self.voters[self._running[0].leader[1]]

    def commit(self, leader: Voter, value: str) -> None:
        """Until every running voter has it."""
        leader.tell(f"append {value}")
        wait_for(lambda: leader.said(f"acknowledged {value}"), f"{value} to be committed")
        self.wait_for_all(value)

    def wait_for_all(self, *values: str) -> None:
        for voter in self._running:
            for value in values:
                line = f"committed {value}"
                wait_for(lambda voter=voter, line=line: voter.said(line), line)  # type: ignore[misc]


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    made = Quorum(tmp_path)
    yield made
    for node_id in made.running:
        made.voters[node_id].kill()


def test_a_quorum_survives_the_loss_of_each_leader(quorum: Quorum) -> None:
    epoch, values = -1, []
    for number in range(3):
        leader = quorum.leader(after=epoch)
        epoch = leader.leader[0]
        quorum.commit(leader, f"before-{number}")
        leader.kill()
        quorum.running.remove(leader.node_id)
        successor = quorum.leader(after=epoch)
        epoch = successor.leader[0] - 1
        quorum.commit(successor, f"after-{number}")
        leader.start()
        quorum.running.add(leader.node_id)
        values += [f"before-{number}", f"after-{number}"]
        quorum.wait_for_all(*values[-1:])
    # Each has all of it, in one order.
    orders = [
        [value for line in voter.lines if (value := line.removeprefix("committed ")) != line]
        for voter in quorum.voters.values()
    ]
    for order in orders:
        assert order == values[-len(order) :]


def test_a_leader_that_stops_leaves_a_successor(quorum: Quorum) -> None:
    leader = quorum.leader()
    quorum.commit(leader, "first")
    leader.stop()
    assert leader.said("stopped")
    quorum.running.remove(leader.node_id)
    successor = quorum.leader(after=leader.leader[0])
    quorum.commit(successor, "second")
