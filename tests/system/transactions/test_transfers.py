"""Money that moves in transactions does not get lost, despite readers, aborts, takeovers and kills:
a reader of committed data finds the same sum after every transfer.
"""

import random
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from support.running_node import QUICK_SETTINGS, RunningNode
from support.waiting import wait_at_random
from support.wire_client import WireClient, create_topic
from system.node.questions import Place, produce
from system.transactions.committed_view import wait_until_at_rest, wait_until_stable
from system.transactions.decisions import check_all_decided
from system.transactions.sessions import ConfluentSession, Session, WireSession
from system.transactions.transfers import Auditor, Books, Outcome, Teller
from system.transactions.wire_producer import Style
from system.transactions.workers import Problems, finish, wait_for_more

from moldau.testing import ThreadBroker

TOPIC = "accounts"
PLACES: list[Place] = [(TOPIC, index) for index in range(4)]
TELLERS = 3
POLICIES = ("group", "os", "strict")
SETTINGS = QUICK_SETTINGS | {
    "moldau.reserve.bytes": "0",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


# Open transactions reach over many files.
SMALL_SEGMENTS = {"internal.segment.bytes": "2000"}


class Bank:
    def __init__(self, folder: Path, seed: str, *, is_killed: bool) -> None:
        self.chance = random.Random(seed)
        self.node = RunningNode(folder, SETTINGS)
        self.problems = Problems()
        self.books = Books()
        address = self.node.address
        self.auditor = Auditor(address, PLACES, self.problems)
        open_session = self._wire_session if is_killed else self._confluent_session
        self.tellers = [
            Teller(f"teller-{number}-{seed}", open_session, PLACES, self.books, self.problems)
            for number in range(TELLERS)
        ]

    def _confluent_session(self, name: str) -> Session:
        return ConfluentSession(self.node.address, name)

    def _wire_session(self, name: str) -> Session:
        style = list(Style)[len(self.books) % len(Style)]
        return WireSession(self.node.address, name, style)

    def open(self) -> None:
        self.node.start()
        create_topic(self.node.address, TOPIC, len(PLACES), SMALL_SEGMENTS)
        for worker in (*self.tellers, self.auditor):
            worker.start()

    def kill(self) -> None:
        """At any time; nothing depends on how long this takes."""
        wait_at_random(self.chance, 0.3)
        if self.chance.random() < 0.2:
            assert self.node.stop() == 0
        self.node.kill()
        self.node.settings = SETTINGS | {"moldau.flush.policy": self.chance.choice(POLICIES)}
        self.node.start()

    def close(self) -> None:
        finish(self.tellers)
        with WireClient(self.node.address) as client:
            wait_until_stable(client, PLACES, 60)
            wait_until_at_rest(client, 60)
            finish([self.auditor])
            self.auditor.read(client)
        self.problems.check()
        self.auditor.check(self.books)
        assert self.node.stop() == 0
        decisions = check_all_decided(self.node.log_folder, [TOPIC])
        # Each of them once.
        committed = sum(1 for each in decisions.decided if each.commits)
        assert committed == len(self.auditor.seen)


def run_bank(folder: Path, transfers: int, kills: int) -> Bank:
    seed = secrets.token_hex(4)
    bank = Bank(folder, seed, is_killed=kills > 0)
    with bank.node:
        try:
            bank.open()
            wait_for_more(bank.books, transfers, bank.problems)
            for _ in range(kills):
                bank.kill()
                wait_for_more(bank.books, transfers, bank.problems)
            bank.close()
        except AssertionError as error:
            error.add_note(f"seed {seed}\n{bank.node.errors[-3000:]}")
            raise
    return bank


def test_the_sum_of_all_accounts_never_changes(tmp_path: Path) -> None:
    bank = run_bank(tmp_path, transfers=60, kills=0)
    books = bank.books
    assert books.fenced > 0
    # How many of each is chance.
    assert books.named(Outcome.COMMITTED)
    assert books.named(Outcome.ABORTED)
    # Nothing kept their responses from arriving.
    assert not books.named(Outcome.UNKNOWN)


def test_the_sum_survives_the_kill_of_the_node(tmp_path: Path) -> None:
    run_bank(tmp_path, transfers=15, kills=1)


@pytest.mark.slow
def test_the_sum_survives_many_kills(tmp_path: Path) -> None:
    run_bank(tmp_path, transfers=10, kills=15)


# Checks the checks


def _books(**outcomes: Outcome) -> Books:
    books = Books()
    for name, outcome in outcomes.items():
        books.write(name, outcome)
    return books


@pytest.mark.parametrize(
    ("values", "outcome", "complaint"),
    [
        (["a 2 1 5", "a 2 2 -5"], Outcome.COMMITTED, None),
        (["a 2 1 5", "a 2 2 -5"], Outcome.UNKNOWN, None),
        ([], Outcome.UNKNOWN, None),
        (["a 2 1 5"], Outcome.UNKNOWN, "seen in part"),
        (["a 2 1 5", "a 2 2 -4"], Outcome.COMMITTED, "changed the sum"),
        (["a 2 1 5", "a 2 1 5"], Outcome.COMMITTED, "is there twice"),
        (["a 2 1 5", "a 2 2 -5", "a 2 1 5"], Outcome.COMMITTED, "is seen again"),
        (["a 2 1 5", "a 2 2 -5"], Outcome.ABORTED, "aborted and seen"),
        ([], Outcome.COMMITTED, "committed and not seen"),
    ],
)
def test_wrong_books_are_noticed(
    moldau_broker: ThreadBroker,
    moldau_topic: str,
    values: list[str],
    outcome: Outcome,
    complaint: str | None,
) -> None:
    with WireClient(moldau_broker.bootstrap) as client:
        if values:
            produce(client, moldau_topic, *(value.encode() for value in values))
        auditor = Auditor(moldau_broker.bootstrap, [(moldau_topic, 0)], Problems())

        def audit() -> None:
            auditor.read(client)
            auditor.check(_books(a=outcome))

        _expect(audit, complaint)


def _expect(check: Callable[[], None], complaint: str | None) -> None:
    if complaint is None:
        check()
    else:
        with pytest.raises(AssertionError, match=complaint):
            check()
