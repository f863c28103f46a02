"""Money that moves between accounts in transactions, and a reader that keeps the books. A record is
one leg of a transfer: `transfer legs account amount`; the amounts of a transfer add up to zero.
"""

import random
import threading
from collections import defaultdict
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from support.wire_client import WireClient
from system.node.questions import Place
from system.transactions.committed_view import CommittedReader
from system.transactions.sessions import LostError, MustAbortError, OpenSession, Session
from system.transactions.workers import Problems, Worker

ACCOUNTS = 12
_LOOK_S = 0.02


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Its producer got no response."""


class Leg(NamedTuple):
    place: Place
    account: int
    amount: int

    def value(self, transfer: str, legs: int) -> bytes:
        return f"{transfer} {legs} {self.account} {self.amount}".encode()


class Books:
    """The outcomes of transfers as far as their producers know them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.outcomes: dict[str, Outcome] = {}
        self.fenced = 0

    def write(self, transfer: str, outcome: Outcome) -> None:
        with self._lock:
            self.outcomes[transfer] = outcome

    def write_fenced(self) -> None:
        with self._lock:
            self.fenced += 1

    def named(self, outcome: Outcome) -> set[str]:
        with self._lock:
            return {name for name, known in self.outcomes.items() if known is outcome}

    def __len__(self) -> int:
        return len(self.outcomes)


class Teller(Worker):
    """Makes transfers with one transactional id. Some are aborted; and now and then another
    producer takes the id over in the middle of one.
    """

    def __init__(
        self,
        name: str,
        open_session: OpenSession,
        places: list[Place],
        books: Books,
        problems: Problems,
    ) -> None:
        super().__init__(name, problems)
        self._open_session = open_session
        self._places = places
        self._books = books
        self._chance = random.Random(name)
        self._count = 0

    def work(self) -> None:
        session = self._open()
        while not self.stopped.is_set():
            self._count += 1
            transfer = f"{self.name}-{self._count}"
            # Until the outcome is known.
            self._books.write(transfer, Outcome.UNKNOWN)
            try:
                session = self._transfer(session, transfer)
            except LostError:
                # The outcome cannot be known; a new producer begins.
                session.close()
                session = self._open()
        session.close()

    def _open(self) -> Session:
        return self._open_session(self.name)

    def _transfer(self, session: Session, transfer: str) -> Session:
        """The producer to continue with."""
        session.begin()
        choice = self._chance.random()
        try:
            self._write(session, transfer)
            if choice < 0.1:
                return self._taken_over(session, transfer)
            if choice >= 0.35:
                session.commit()
                self._books.write(transfer, Outcome.COMMITTED)
                return session
        except MustAbortError:
            pass
        session.abort()
        self._books.write(transfer, Outcome.ABORTED)
        return session

    def _write(self, session: Session, transfer: str) -> None:
        legs = self._legs()
        for leg in legs:
            session.send(leg.place, leg.value(transfer, len(legs)))
        if self._chance.random() < 0.5:
            session.flush()

    def _legs(self) -> list[Leg]:
        count = self._chance.randint(2, 4)
        amounts = [self._chance.randint(-100, 100) for _ in range(count - 1)]
        accounts = self._chance.sample(range(ACCOUNTS), count)
        return [
            Leg(self._places[account % len(self._places)], account, amount)
            for account, amount in zip(accounts, [*amounts, -sum(amounts)], strict=True)
        ]

    def _taken_over(self, zombie: Session, transfer: str) -> Session:
        zombie.flush()
        heir = self._open()
        try:
            zombie.commit()
        except (MustAbortError, LostError) as error:
            if isinstance(error, LostError) and error.is_fenced:
                self._books.write_fenced()
            self._books.write(transfer, Outcome.ABORTED)
        else:
            self.problems.add(f"{transfer} was committed by a producer without its id")
        zombie.close()
        return heir


class Auditor(Worker):
    """Reads all the time. The sum of all accounts is the same after every transfer."""

    def __init__(self, address: str, places: list[Place], problems: Problems) -> None:
        super().__init__("auditor", problems)
        self._address = address
        self._readers = [CommittedReader(place) for place in places]
        self._partial: dict[str, set[Leg]] = defaultdict(set)
        self.balances = [0] * ACCOUNTS
        self.seen: set[str] = set()
        """Transfers whose legs were all seen."""
        self.reads = 0

    def work(self) -> None:
        while not self.stopped.wait(_LOOK_S):
            # The node may be down.
            with suppress(ConnectionError), WireClient(self._address) as client:
                while not self.stopped.wait(_LOOK_S):
                    self.read(client)

    def read(self, client: WireClient) -> None:
        for reader in self._readers:
            for value in reader.read_on(client):
                self._look_at(reader.place, value)
        self.reads += 1

    def _look_at(self, place: Place, value: bytes) -> None:
        transfer, legs, account, amount = value.decode().split(" ")
        assert transfer not in self.seen, f"{transfer} is seen again: {value!r}"
        leg = Leg(place, int(account), int(amount))
        known = self._partial[transfer]
        assert leg not in known, f"{transfer}: {leg} is there twice"
        known.add(leg)
        if len(known) == int(legs):
            self._settle(transfer, known)

    def _settle(self, transfer: str, legs: set[Leg]) -> None:
        del self._partial[transfer]
        self.seen.add(transfer)
        for leg in legs:
            self.balances[leg.account] += leg.amount
        assert sum(self.balances) == 0, f"{transfer} changed the sum: {legs}"

    def check(self, books: Books) -> None:
        """Call it once all transactions have ended."""
        assert not self._partial, f"seen in part: {dict(self._partial)}"
        missing = books.named(Outcome.COMMITTED) - self.seen
        assert not missing, f"committed and not seen: {missing}"
        wrong = books.named(Outcome.ABORTED) & self.seen
        assert not wrong, f"aborted and seen: {wrong}"
        assert self.seen <= set(books.outcomes)
