"""A transaction shard with a manual shell: time only moves when a test moves it, the log is
a list, commits can be held or refused, and markers are written when the test says so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from moldau.core.coordinator.effects import (
    AnyAppend,
    AnyEffect,
    AnyTicket,
    Append,
    Reply,
    Request,
    StartTimer,
    StopTimer,
    Ticket,
    TimerKey,
    Turn,
)
from moldau.core.coordinator.records import StoredPair, encode_record
from moldau.core.coordinator.refusals import as_coordinator_error
from moldau.core.transactions.requests import AddPartitions, Completed, End, Init, MarkersNeeded
from moldau.core.transactions.settings import TransactionSettings
from moldau.core.transactions.states import TransactionState
from moldau.core.transactions.transaction import ProducerIdAndEpoch, Transaction
from moldau.core.transactions.transaction_records import (
    decode_transaction_record,
    transaction_record,
)
from moldau.core.transactions.transaction_shard import TransactionShard, TransactionTurn
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import Offset, ProducerEpoch, TopicPartition

START_MS = 1_000_000
ID = "tx"
TIMEOUT_MS = 60_000
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)

Outcome = ErrorCode | ProducerIdAndEpoch | None


@dataclass
class Bench:
    version: int = 2
    """The transaction version of the cluster, and of clients that support it."""
    settings: TransactionSettings = field(default_factory=TransactionSettings)
    now_ms: int = START_MS
    log: list[StoredPair] = field(default_factory=list)
    refuses: ErrorCode | None = None
    holds_commits: bool = False
    writes_markers: bool = True
    answers: dict[AnyTicket, object] = field(default_factory=dict)
    waiting: list[AnyAppend] = field(default_factory=list)
    needed: list[MarkersNeeded] = field(default_factory=list)
    """All markers that were ever requested."""
    completed: list[str] = field(default_factory=list)
    """The ids whose transactions were completed, in order."""
    has_ids: bool = True

    def __post_init__(self) -> None:
        self._tickets = count(1)
        self._ids = count(1000)
        self.timers: dict[TimerKey, int] = {}
        self.shard = TransactionShard(self._settings)
        self.load()

    def _settings(self) -> TransactionSettings:
        return TransactionSettings(
            transaction_version=self.version,
            id_expiration_ms=self.settings.id_expiration_ms,
            expiry_check_interval_ms=self.settings.expiry_check_interval_ms,
        )

    # The shell

    def load(self) -> None:
        """Loads a new shard from the log."""
        self.shard = TransactionShard(self._settings)
        self.timers, self.waiting = {}, []
        replay_log(self.shard, self.log)
        self._in_turn(self.shard.loaded)

    def write(self, transaction: Transaction) -> None:
        """Writes a state as if by a former coordinator."""
        self.log.append(encode_record(transaction_record(transaction, self.version)))

    def _in_turn(self, event: Callable[[TransactionTurn], None]) -> None:
        turn: TransactionTurn = Turn(self.now_ms)
        event(turn)
        for effect in turn.effects:
            self._perform(effect)

    def _perform(self, effect: AnyEffect) -> None:
        match effect:
            case Reply(ticket, answer):
                self.answers[ticket] = answer
            case StartTimer(key, delay_ms):
                self.timers[key] = self.now_ms + delay_ms
            case StopTimer(key):
                self.timers.pop(key, None)
            case Append():
                self._append(effect)
            case Request(Completed(transactional_id)):
                self.completed.append(transactional_id)
            case Request(what):
                self.needed.append(what)
                if self.writes_markers:
                    self.markers_written(what.transactional_id)

    def _append(self, append: AnyAppend) -> None:
        if self.refuses is not None:
            self._fail(append, as_coordinator_error(self.refuses))
            return
        self.log += [encode_record(record) for record in append.records]
        self.waiting.append(append)
        if not self.holds_commits:
            self.commit_all()

    def commit_all(self) -> None:
        while self.waiting:
            append = self.waiting.pop(0)
            for reply in append.replies:
                self._perform(reply)
            if append.sequel is not None:
                self._in_turn(partial(self.shard.committed, append.sequel))

    def fail_all(self, code: ErrorCode) -> None:
        while self.waiting:
            self._fail(self.waiting.pop(0), as_coordinator_error(code))

    def _fail(self, append: AnyAppend, code: ErrorCode) -> None:
        for reply in append.replies:
            self.answers[reply.ticket] = code
        sequel = append.sequel
        if sequel is not None:
            self._in_turn(lambda turn: self.shard.failed(sequel, code, turn))

    def advance(self, ms: int) -> None:
        """Advances the time. Timers fire in order, each at its own time."""
        until_ms = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda k: (self.timers[k], k))
            if self.timers[key] > until_ms:
                break
            self.now_ms = self.timers.pop(key)
            self._in_turn(partial(self.shard.timer_fired, key))
        self.now_ms = until_ms

    # Producers

    def begin(self, event: Callable[[AnyTicket, TransactionTurn], None]) -> AnyTicket:
        ticket: AnyTicket = Ticket(next(self._tickets))
        try:
            self._in_turn(lambda turn: event(ticket, turn))
        except KafkaError as error:
            self.answers[ticket] = error.code
        return ticket

    def answer(self, ticket: AnyTicket) -> Outcome:
        answer = self.answers[ticket]
        assert answer is None or isinstance(answer, ErrorCode | ProducerIdAndEpoch)
        return answer

    def fresh_id(self, transactional_id: str) -> int | None:
        needs = self.has_ids and self.shard.needs_producer_id(transactional_id)
        return next(self._ids) if needs else None

    def begin_init(
        self,
        expected: tuple[int, int] | None = None,
        *,
        name: str = ID,
        timeout_ms: int = TIMEOUT_MS,
    ) -> AnyTicket:
        init = Init(
            transactional_id=name,
            timeout_ms=timeout_ms,
            expected=None if expected is None else _identity(expected),
        )
        fresh = self.fresh_id(name)
        return self.begin(lambda ticket, turn: self.shard.init(init, fresh, ticket, turn))

    def init(self, expected: tuple[int, int] | None = None, *, name: str = ID) -> Outcome:
        return self.answer(self.begin_init(expected, name=name))

    def begin_add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        name: str = ID,
        client_version: int | None = None,
    ) -> AnyTicket:
        add = AddPartitions(
            transactional_id=name,
            producer=_identity(producer),
            partitions=partitions or (P0,),
            client_version=self.version if client_version is None else client_version,
        )
        return self.begin(lambda ticket, turn: self.shard.add_partitions(add, ticket, turn))

    def add(self, producer: tuple[int, int], *partitions: TopicPartition) -> Outcome:
        return self.answer(self.begin_add(producer, *partitions))

    def begin_end(
        self,
        producer: tuple[int, int],
        *,
        commits: bool,
        name: str = ID,
        client_version: int | None = None,
    ) -> AnyTicket:
        end = End(
            transactional_id=name,
            producer=_identity(producer),
            commits=commits,
            client_version=self.version if client_version is None else client_version,
        )
        fresh = self.fresh_id(name)
        return self.begin(lambda ticket, turn: self.shard.end(end, fresh, ticket, turn))

    def end(
        self,
        producer: tuple[int, int],
        *,
        commits: bool,
        name: str = ID,
        client_version: int | None = None,
    ) -> Outcome:
        return self.answer(
            self.begin_end(producer, commits=commits, name=name, client_version=client_version)
        )

    def abort_overdue(self) -> list[str]:
        overdue = self.shard.overdue(self.now_ms)
        for name in overdue:
            self._in_turn(partial(self.shard.abort_overdue, name, self.fresh_id(name)))
        return overdue

    def markers_written(self, name: str = ID) -> None:
        self._in_turn(lambda turn: self.shard.markers_written(name, turn))

    # State

    def current(self, name: str = ID) -> Transaction:
        return self.shard.transactions[name]

    def state(self, name: str = ID) -> TransactionState:
        return self.current(name).state


def replay_log(shard: TransactionShard, log: list[StoredPair]) -> None:
    for offset, (key, value) in enumerate(log):
        record = decode_transaction_record(key, value)
        assert record is not None
        shard.replay(record, Offset(offset))


def _identity(producer: tuple[int, int]) -> ProducerIdAndEpoch:
    producer_id, epoch = producer
    return ProducerIdAndEpoch(producer_id, ProducerEpoch(epoch))
