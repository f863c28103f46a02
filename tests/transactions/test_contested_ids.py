"""Many producers that all want the same few transactional ids, older clients and newer ones: each
transaction is seen as its producer was told, and who was shut out is never seen, kill or no kill.
"""

import random
import secrets
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from node.questions import Place
from running_node import QUICK_SETTINGS, RunningNode
from transactions.committed_view import read_committed, wait_until_stable
from transactions.decisions import check_all_decided
from transactions.transfers import Books, Outcome
from transactions.wire_producer import Style, WireProducer
from transactions.workers import Problems, Worker, finish, wait_for_more
from wire_client import WireClient, create_topic

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

TOPIC = "contested"
PLACES: list[Place] = [(TOPIC, index) for index in range(3)]
IDS = ("one", "two", "three")
CONTENDERS = 4
SETTINGS = QUICK_SETTINGS | {
    "moldau.reserve.bytes": "0",
    "transaction.state.log.num.partitions": "2",
}
# What a producer hears that has lost its id.
LOST = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
}


class Contender(Worker):
    """Takes an id, does a few transactions if nobody takes it away, and goes for the next."""

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
        # Nobody else can commit it: it is not seen unless it gets to its end.
        self._books.write(name, Outcome.ABORTED)
        places = self._chance.sample(PLACES, self._chance.randint(1, len(PLACES)))
        for place in places:
            producer.send(place, f"{name} {len(places)}".encode())
        choice = self._chance.random()
        if choice < 0.2:
            # It leaves everything as it is.
            raise KafkaError(ErrorCode.PRODUCER_FENCED, "by itself")
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


def contend(folder: Path, styles: list[Style], rounds: int, kills: int) -> None:
    seed = secrets.token_hex(4)
    chance = random.Random(seed)
    problems, books = Problems(), Books()
    with RunningNode(folder, SETTINGS) as node:
        node.start()
        create_topic(node.address, TOPIC, len(PLACES), {"internal.segment.bytes": "2000"})
        contenders = [
            Contender(f"{number}-{seed}", node.address, styles, books, problems)
            for number in range(CONTENDERS)
        ]
        for contender in contenders:
            contender.start()
        try:
            for number in range(kills + 1):
                wait_for_more(books, rounds, problems)
                if number < kills:
                    threading.Event().wait(chance.uniform(0, 0.2))
                    if chance.random() < 0.3:
                        assert node.stop() == 0
                    node.kill()
                    node.start()
            finish(contenders)
            problems.check()
            check(node, books)
        except AssertionError as error:
            error.add_note(f"seed {seed}\n{node.errors[-3000:]}")
            raise


def check(node: RunningNode, books: Books) -> None:
    for transactional_id in IDS:
        # Whoever comes last ends what is open.
        with WireProducer(node.address, transactional_id) as last:
            last.init()
    with WireClient(node.address) as client:
        wait_until_stable(client, PLACES)
        seen: dict[str, list[Place]] = defaultdict(list)
        sizes: dict[str, int] = {}
        for place in PLACES:
            for value in read_committed(client, place):
                name, size = value.decode().split(" ")
                seen[name].append(place)
                sizes[name] = int(size)
    for name, places in seen.items():
        assert len(places) == len(set(places)) == sizes[name], f"{name} is seen at {places}"
    assert books.named(Outcome.COMMITTED) <= seen.keys()
    wrong = books.named(Outcome.ABORTED) & seen.keys()
    assert not wrong, f"aborted and seen: {wrong}"
    assert node.stop() == 0
    decisions = check_all_decided(node.log_folder, [TOPIC])
    assert sum(1 for each in decisions.decided if each.commits) == len(seen)


@pytest.mark.parametrize(
    "styles", [[Style.V1], [Style.V2], list(Style)], ids=["version-1", "version-2", "both"]
)
def test_only_who_has_the_id_is_seen(tmp_path: Path, styles: list[Style]) -> None:
    contend(tmp_path, styles, rounds=80, kills=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "styles", [[Style.V1], [Style.V2], list(Style)], ids=["version-1", "version-2", "both"]
)
def test_only_who_has_the_id_is_seen_after_kills(tmp_path: Path, styles: list[Style]) -> None:
    contend(tmp_path, styles, rounds=30, kills=8)
