"""Many producers that compete for the same few transactional ids, older clients and newer ones:
each transaction is visible exactly as its producer was informed, and a fenced producer's is
never visible, with and without kills.
"""

import random
import secrets
from collections import defaultdict
from pathlib import Path

import pytest
from support.running_node import QUICK_SETTINGS, RunningNode
from support.waiting import wait_at_random
from support.wire_client import WireClient, create_topic
from system.node.questions import Place
from system.transactions.committed_view import read_committed, wait_until_stable
from system.transactions.decisions import check_all_decided
from system.transactions.transfers import Books, Outcome
from system.transactions.wire_producer import Style, WireProducer
from system.transactions.workers import Problems, Worker, finish, wait_for_more

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.testing import broker

TOPIC = "contested"
PLACES: list[Place] = [(TOPIC, index) for index in range(3)]
IDS = ("one", "two", "three")
CONTENDERS = 4
SETTINGS = QUICK_SETTINGS | {
    "moldau.reserve.bytes": "0",
    "transaction.state.log.num.partitions": "2",
}
SMALL_SEGMENTS = {"internal.segment.bytes": "2000"}
# Transient faults between a node's own parts, or between nodes.
PASSING_FAULTS = {
    "AddPartitionsToTxn": ("CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR"),
    "EndTxn": ("CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE"),
    "InitProducerId": ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS"),
    "WriteTxnMarkers": (
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "REQUEST_TIMED_OUT",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_SERVER_ERROR",
    ),
}
# The errors of a producer that has lost its id.
LOST = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
}


class Contender(Worker):
    """Takes an id, does a few transactions unless it is fenced, and goes for the next."""

    def __init__(
        self, name: str, address: str, styles: list[Style], books: Books, problems: Problems
    ) -> None:
        super().__init__(name, problems)
        self._address = address
        self._styles = styles
        self._books = books
        self._chance = random.Random(name)
        self._count = 0

    def work(self) -> None:
        while not self.stopped.is_set():
            style = self._chance.choice(self._styles)
            with WireProducer(self._address, self._chance.choice(IDS), style) as producer:
                try:
                    producer.init()
                    for _ in range(self._chance.randint(1, 4)):
                        self._transact(producer)
                except KafkaError as error:
                    if error.code not in LOST:
                        self.problems.add(f"{self.name} {style.name}: {error}")

    def _transact(self, producer: WireProducer) -> None:
        self._count += 1
        name = f"{self.name}-{self._count}"
        # No other producer can commit it: it is visible only if this one completes it.
        self._books.write(name, Outcome.ABORTED)
        places = self._chance.sample(PLACES, self._chance.randint(1, len(PLACES)))
        for place in places:
            producer.send(place, f"{name} {len(places)}".encode())
        choice = self._chance.random()
        if choice < 0.2:
            # It leaves everything as it is.
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "of its own accord")
        if choice < 0.4:
            producer.end(commits=False)
            return
        self._books.write(name, Outcome.UNKNOWN)
        try:
            producer.end(commits=True)
        except KafkaError:
            if not producer.has_hung_up:
                self._books.write(name, Outcome.ABORTED)
            raise
        self._books.write(name, Outcome.COMMITTED)


class Contest:
    def __init__(self, address: str, styles: list[Style]) -> None:
        self.seed = secrets.token_hex(4)
        self.chance = random.Random(self.seed)
        self._address = address
        self._problems, self._books = Problems(), Books()
        self._contenders = [
            Contender(f"{number}-{self.seed}", address, styles, self._books, self._problems)
            for number in range(CONTENDERS)
        ]

    def go_on(self, transactions: int) -> None:
        for contender in self._contenders:
            if contender.ident is None:
                contender.start()
        wait_for_more(self._books, transactions, self._problems)

    def end(self) -> set[str]:
        """The names of all visible records."""
        finish(self._contenders)
        self._problems.check()
        for transactional_id in IDS:
            # The last producer ends what is open.
            with WireProducer(self._address, transactional_id) as last:
                last.init()
        with WireClient(self._address) as client:
            wait_until_stable(client, PLACES)
            seen, sizes = defaultdict(list), {}
            for place in PLACES:
                for value in read_committed(client, place):
                    name, size = value.decode().split(" ")
                    seen[name].append(place)
                    sizes[name] = int(size)
        for name, places in seen.items():
            assert len(places) == len(set(places)) == sizes[name], f"{name} is seen at {places}"
        missing = self._books.named(Outcome.COMMITTED) - seen.keys()
        assert not missing, f"committed and not seen: {missing}"
        wrong = self._books.named(Outcome.ABORTED) & seen.keys()
        assert not wrong, f"aborted and seen: {wrong}"
        return set(seen)


def check_files(log_folder: Path, seen: set[str]) -> None:
    decisions = check_all_decided(log_folder, [TOPIC])
    assert sum(1 for each in decisions.decided if each.commits) == len(seen)


def contend(folder: Path, styles: list[Style], transactions: int, kills: int) -> None:
    with RunningNode(folder, SETTINGS) as node:
        node.start()
        create_topic(node.address, TOPIC, len(PLACES), SMALL_SEGMENTS)
        contest = Contest(node.address, styles)
        try:
            contest.go_on(transactions)
            for _ in range(kills):
                wait_at_random(contest.chance, 0.2)
                if contest.chance.random() < 0.3:
                    assert node.stop() == 0
                node.kill()
                node.start()
                contest.go_on(transactions)
            seen = contest.end()
            assert node.stop() == 0
            check_files(node.log_folder, seen)
        except AssertionError as error:
            error.add_note(f"seed {contest.seed}\n{node.errors[-3000:]}")
            raise


@pytest.mark.parametrize(
    "styles", [[Style.V1], [Style.V2], list(Style)], ids=["version-1", "version-2", "both"]
)
def test_only_the_owner_of_the_id_is_visible(tmp_path: Path, styles: list[Style]) -> None:
    contend(tmp_path, styles, transactions=80, kills=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "styles", [[Style.V1], [Style.V2], list(Style)], ids=["version-1", "version-2", "both"]
)
def test_only_the_owner_of_the_id_is_visible_after_kills(
    tmp_path: Path, styles: list[Style]
) -> None:
    contend(tmp_path, styles, transactions=30, kills=6)


@pytest.mark.parametrize("styles", [[Style.V1], [Style.V2]], ids=["version-1", "version-2"])
def test_only_the_owner_of_the_id_is_visible_despite_faults_between_brokers(
    tmp_path: Path, styles: list[Style]
) -> None:
    with broker(directory=tmp_path) as running:
        running.create_topic(TOPIC, len(PLACES), SMALL_SEGMENTS)
        contest = Contest(running.bootstrap, styles)
        try:
            for _ in range(10):
                contest.go_on(5)
                api = contest.chance.choice(list(PASSING_FAULTS))
                error = contest.chance.choice(PASSING_FAULTS[api])
                running.fail_next(api, error, contest.chance.randint(1, 3))
                running.delay("WriteTxnMarkers", contest.chance.randrange(20), 3)
            running.clear_faults()
            seen = contest.end()
        except AssertionError as error:
            error.add_note(f"seed {contest.seed}")
            raise
    check_files(tmp_path, seen)
