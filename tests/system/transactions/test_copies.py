"""Consume, transform, produce: every record is copied exactly once, despite aborted transactions
and kills of the copiers or the node.
"""

import random
import secrets
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support.running_node import QUICK_SETTINGS, RunningNode
from support.waiting import wait_at_random, wait_for
from support.wire_client import WireClient, create_topic
from system.node.questions import Place, committed
from system.transactions.committed_view import (
    CommittedReader,
    fetch_committed,
    stable_offset,
    wait_until_at_rest,
    wait_until_stable,
)
from system.transactions.copier import (
    GROUP,
    SOURCE,
    TARGET,
    TARGET_PARTITIONS,
    start_copier,
    value_of,
)
from system.transactions.decisions import check_all_decided
from system.transactions.wire_producer import WireProducer

SOURCES: list[Place] = [(SOURCE, index) for index in range(3)]
TARGETS: list[Place] = [(TARGET, index) for index in range(TARGET_PARTITIONS)]
ROUND_RECORDS = 12
COPIERS = 2
PATIENCE_S = 120
SETTINGS = QUICK_SETTINGS | {
    "group.min.session.timeout.ms": "1000",
    "moldau.reserve.bytes": "0",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


class Copying:
    def __init__(self, folder: Path, seed: str) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.node = RunningNode(folder, SETTINGS)
        self._copiers: list[subprocess.Popen[bytes]] = []
        self._wanted: set[bytes] = set()
        self._copied: Counter[bytes] = Counter()
        self._readers = [CommittedReader(place) for place in TARGETS]

    def set_up(self, rounds: int) -> None:
        """A source with its own aborted transactions, which must not be copied."""
        self.node.start()
        create_topic(self.node.address, SOURCE, len(SOURCES))
        create_topic(self.node.address, TARGET, len(TARGETS))
        with WireProducer(self.node.address, "source") as producer:
            producer.init()
            for number in range(rounds):
                commits = number % 4 != 1
                for place in SOURCES:
                    first = producer.send(place, *(b"%d" % n for n in range(ROUND_RECORDS)))
                    if commits:
                        offsets = range(first, first + ROUND_RECORDS)
                        self._wanted |= {value_of(place[1], offset) for offset in offsets}
                producer.end(commits=commits)
        for number in range(COPIERS):
            self._copiers.append(self._start(number))

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        seed = str(self.chance.random())
        return start_copier(self.node.address, f"copier-{number}", seed, self.folder)

    def kill_copier(self) -> None:
        number = self.chance.randrange(COPIERS)
        self._kill(self._copiers[number])
        self._copiers[number] = self._start(number)

    def kill_node(self) -> None:
        self.node.kill()
        self.node.start()

    def wait_randomly(self) -> None:
        """Nothing depends on how long this takes."""
        wait_at_random(self.chance, 0.8)

    def look(self) -> None:
        """No record is ever there twice."""
        with WireClient(self.node.address) as client:
            for reader in self._readers:
                self._copied.update(reader.read_on(client))
        twice = [value for value, count in self._copied.items() if count > 1]
        assert not twice, f"copied twice: {twice[:5]}"
        assert self._copied.keys() <= self._wanted

    @property
    def is_complete(self) -> bool:
        for number, process in enumerate(self._copiers):
            if process.poll() is not None:
                # librdkafka 2.x fails an assertion of its own now and then when nodes are killed.
                assert process.returncode == -signal.SIGABRT, "a copier ended"
                self._copiers[number] = self._start(number)
        self.look()
        return len(self._copied) == len(self._wanted)

    def finish(self) -> None:
        wait_for(lambda: self.is_complete, "all copies", PATIENCE_S)
        with WireClient(self.node.address) as client:
            wait_for(lambda: self._is_everything_read(client), "the group's offsets", PATIENCE_S)
        self.kill_copiers()
        with WireClient(self.node.address) as client:
            # Their open transactions time out.
            wait_until_stable(client, [*SOURCES, *TARGETS], 60)
            wait_until_at_rest(client, 60)
        self.look()
        assert self.node.stop() == 0
        check_all_decided(self.node.log_folder, [SOURCE, TARGET, "__consumer_offsets"])

    def _is_everything_read(self, client: WireClient) -> bool:
        """Nothing after the last committed offset is a visible record."""
        code, offsets = committed(client, GROUP)
        return code == 0 and all(
            place in offsets
            and not fetch_committed(client, place, offsets[place]).records
            and offsets[place] <= stable_offset(client, place)
            for place in SOURCES
        )

    def kill_copiers(self) -> None:
        for process in self._copiers:
            self._kill(process)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def said(self) -> str:
        parts = [(self.folder / f"copier-{n}").read_text()[-1500:] for n in range(COPIERS)]
        return "\n".join([*parts, self.node.errors[-3000:]])


def copy(folder: Path, rounds: int, copier_kills: int, node_kills: int) -> None:
    seed = secrets.token_hex(4)
    copying = Copying(folder, seed)
    with copying.node:
        try:
            copying.set_up(rounds)
            deeds = [copying.kill_copier] * copier_kills + [copying.kill_node] * node_kills
            copying.chance.shuffle(deeds)
            for deed in deeds:
                copying.wait_randomly()
                deed()
                copying.look()
            copying.finish()
        except AssertionError as error:
            error.add_note(f"seed {seed}\n{copying.said()}")
            raise
        finally:
            copying.kill_copiers()


def test_records_are_copied_exactly_once(tmp_path: Path) -> None:
    copy(tmp_path, rounds=12, copier_kills=1, node_kills=0)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(2))
def test_records_are_copied_exactly_once_despite_kills(tmp_path: Path, attempt: int) -> None:
    copy(tmp_path, rounds=60, copier_kills=6, node_kills=3)
