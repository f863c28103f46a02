"""Under any order of requests, commits, refusals, restarts and passing time, transactions keep
their invariants: one decision each, rising epochs, and a log that agrees with the responses.
"""

from dataclasses import replace
from typing import Any

from core.transactions.bench import P0, P1, Bench
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moldau.core.coordinator.effects import AnyTicket
from moldau.core.transactions.states import AT_REST, PREPARED
from moldau.core.transactions.transaction import ProducerIdAndEpoch
from moldau.core.transactions.transaction_shard import Sequel
from moldau.protocol.error_codes import ErrorCode
from moldau.types import ProducerEpoch, TopicPartition

NAMES = st.sampled_from(["a", "b"])
PRODUCERS = st.integers(0, 2)
PARTITIONS = st.sampled_from([(P0,), (P1,), (P0, P1)])
REFUSALS = st.sampled_from(
    [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR]
)
HIGH_EPOCH = 32_764


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(writes_markers=False)
        self.known: dict[tuple[str, int], ProducerIdAndEpoch] = {}
        """The last response to each of three producers of an id."""
        self.waiting: dict[AnyTicket, tuple[str, int, bool | None]] = {}
        self.decided: dict[ProducerIdAndEpoch, bool] = {}
        """Whether each transaction commits, by the producer in its markers."""
        self.acknowledged_ends: list[tuple[ProducerIdAndEpoch, bool]] = []
        self.seen = 0

    @initialize(version=st.sampled_from([0, 1, 2]), is_high=st.booleans())
    def begin(self, version: int, is_high: bool) -> None:
        self.bench.version = version
        if is_high:
            self.bench.init(name="a")
            current = self.bench.current("a")
            self.bench.write(replace(current, producer_epoch=ProducerEpoch(HIGH_EPOCH)))
            self.bench.load()

    # Producers

    @rule(name=NAMES, producer_index=PRODUCERS, continues=st.booleans())
    def init(self, name: str, producer_index: int, continues: bool) -> None:
        expected = self.known.get((name, producer_index)) if continues else None
        self._sent(self.bench.begin_init(expected, name=name), name, producer_index)

    @rule(name=NAMES, producer_index=PRODUCERS, partitions=PARTITIONS)
    def add(self, name: str, producer_index: int, partitions: tuple[TopicPartition, ...]) -> None:
        producer = self.known.get((name, producer_index))
        if producer is not None:
            self._sent(self.bench.begin_add(producer, *partitions, name=name), name, producer_index)

    @rule(name=NAMES, producer_index=PRODUCERS, commits=st.booleans())
    def end(self, name: str, producer_index: int, commits: bool) -> None:
        producer = self.known.get((name, producer_index))
        if producer is not None:
            ticket = self.bench.begin_end(producer, commits=commits, name=name)
            self._sent(ticket, name, producer_index, commits)

    def _sent(
        self, ticket: AnyTicket, name: str, producer_index: int, commits: bool | None = None
    ) -> None:
        self.waiting[ticket] = (name, producer_index, commits)
        self._take_answers()

    def _take_answers(self) -> None:
        for ticket, (name, producer_index, commits) in list(self.waiting.items()):
            if ticket not in self.bench.answers:
                continue
            del self.waiting[ticket]
            answer = self.bench.answer(ticket)
            if isinstance(answer, ProducerIdAndEpoch):
                if commits is not None:
                    self.acknowledged_ends.append((self.known[name, producer_index], commits))
                if answer.producer_id >= 0:
                    self.known[name, producer_index] = answer

    # Failures, time and restarts

    @rule(holds=st.booleans())
    def hold_commits(self, holds: bool) -> None:
        self.bench.holds_commits = holds

    @rule()
    def commit(self) -> None:
        self.bench.commit_all()
        self._take_answers()

    @rule(code=REFUSALS)
    def fail(self, code: ErrorCode) -> None:
        self.bench.fail_all(code)
        self._take_answers()

    @rule(code=st.none() | REFUSALS)
    def refuse(self, code: ErrorCode | None) -> None:
        self.bench.refuses = code

    @rule(name=NAMES)
    def markers_written(self, name: str) -> None:
        current = self.bench.shard.transactions.get(name)
        if current is not None and current.state in PREPARED and not self._is_completing(name):
            self.bench.markers_written(name)
            self._take_answers()

    def _is_completing(self, name: str) -> bool:
        """The shell reports markers once."""
        return ("complete", name) in self.bench.timers or any(
            isinstance(append.sequel, Sequel) and append.sequel.after.transactional_id == name
            for append in self.bench.waiting
        )

    @rule(ms=st.sampled_from([1, 1_000, 61_000]))
    def time_passes(self, ms: int) -> None:
        self.bench.advance(ms)
        self.bench.abort_overdue()
        self._take_answers()

    @rule()
    def restart(self) -> None:
        self.bench.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._take_answers()
        self.bench.load()

    # Invariants

    @invariant()
    def each_transaction_is_decided_once(self) -> None:
        self._note_decisions()

    def _note_decisions(self) -> None:
        """Called by each invariant that needs them: the order of invariants is undefined."""
        for needed in self.bench.needed[self.seen :]:
            key = needed.producer
            if self.bench.version == 2:
                # Each end has an epoch of its own.
                assert self.decided.setdefault(key, needed.commits) is needed.commits
        self.seen = len(self.bench.needed)

    @invariant()
    def acknowledged_ends_are_the_decided_ones(self) -> None:
        self._note_decisions()
        if self.bench.version == 2:
            for producer, commits in self.acknowledged_ends:
                decided = self.decided.get(
                    ProducerIdAndEpoch(
                        producer.producer_id, ProducerEpoch(producer.producer_epoch + 1)
                    )
                )
                assert decided is commits, (producer, commits)

    @invariant()
    def no_producer_is_ahead_of_the_coordinator(self) -> None:
        for (name, _), producer in self.known.items():
            current = self.bench.shard.transactions.get(name)
            if current is None or current.state in PREPARED:
                continue
            assert producer.producer_id <= current.producer_id
            if producer.producer_id == current.producer_id:
                assert producer.producer_epoch <= current.producer_epoch

    @invariant()
    def partitions_are_there_only_while_a_transaction_is_open(self) -> None:
        for current in self.bench.shard:
            if current.state in AT_REST:
                assert current.partitions == frozenset()

    def teardown(self) -> None:
        """In the end every transaction is at rest, and the log has the same state."""
        bench = self.bench
        bench.refuses, bench.holds_commits = None, False
        bench.commit_all()
        bench.load()
        bench.writes_markers = True
        bench.load()
        bench.advance(1_000_000)
        bench.abort_overdue()
        before: dict[str, Any] = dict(bench.shard.transactions)
        assert all(current.state in AT_REST for current in before.values())
        bench.load()
        for name, current in bench.shard.transactions.items():
            assert current == replace(before[name], last_producer_epoch=-1, **_lost(bench.version))


def _lost(version: int) -> dict[str, Any]:
    """The fields that values of version 0 do not have."""
    if version >= 1:
        return {}
    return {"previous_producer_id": -1, "next_producer_id": -1, "client_version": 0}


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
