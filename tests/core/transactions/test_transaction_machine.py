"""Any order of requests, commits, refusals, restarts and passing time keeps what transactions
promise: one decision each, epochs that only rise, a log that says what was told.
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
from moldau.types import TopicPartition

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
        self.asked: dict[AnyTicket, tuple[str, int, bool | None]] = {}
        self.decided: dict[ProducerIdAndEpoch, bool] = {}
        """By the producer in the markers: whether it commits."""
        self.told_ends: list[tuple[ProducerIdAndEpoch, bool]] = []
        self.seen = 0

    @initialize(version=st.sampled_from([0, 1, 2]), is_high=st.booleans())
    def begin(self, version: int, is_high: bool) -> None:
        self.bench.version = version
        if is_high:
            self.bench.init(name="a")
            current = self.bench.current("a")
            self.bench.write(replace(current, producer_epoch=HIGH_EPOCH))
            self.bench.load()

    # Producers

    @rule(name=NAMES, who=PRODUCERS, goes_on=st.booleans())
    def init(self, name: str, who: int, goes_on: bool) -> None:
        expected = self.known.get((name, who)) if goes_on else None
        self._asked(self.bench.begin_init(expected, name=name), name, who)

    @rule(name=NAMES, who=PRODUCERS, partitions=PARTITIONS)
    def add(self, name: str, who: int, partitions: tuple[TopicPartition, ...]) -> None:
        producer = self.known.get((name, who))
        if producer is not None:
            self._asked(self.bench.begin_add(producer, *partitions, name=name), name, who)

    @rule(name=NAMES, who=PRODUCERS, commits=st.booleans())
    def end(self, name: str, who: int, commits: bool) -> None:
        producer = self.known.get((name, who))
        if producer is not None:
            ticket = self.bench.begin_end(producer, commits=commits, name=name)
            self._asked(ticket, name, who, commits)

    def _asked(self, ticket: AnyTicket, name: str, who: int, commits: bool | None = None) -> None:
        self.asked[ticket] = (name, who, commits)
        self._hear()

    def _hear(self) -> None:
        for ticket, (name, who, commits) in list(self.asked.items()):
            if ticket not in self.bench.answers:
                continue
            del self.asked[ticket]
            answer = self.bench.answer(ticket)
            if isinstance(answer, ProducerIdAndEpoch):
                if commits is not None:
                    self.told_ends.append((self.known[name, who], commits))
                if answer.producer_id >= 0:
                    self.known[name, who] = answer

    # Failures, time and restarts

    @rule(holds=st.booleans())
    def hold_commits(self, holds: bool) -> None:
        self.bench.holds_commits = holds

    @rule()
    def commit(self) -> None:
        self.bench.commit_all()
        self._hear()

    @rule(code=REFUSALS)
    def fail(self, code: ErrorCode) -> None:
        self.bench.fail_all(code)
        self._hear()

    @rule(code=st.none() | REFUSALS)
    def refuse(self, code: ErrorCode | None) -> None:
        self.bench.refuses = code

    @rule(name=NAMES)
    def markers_written(self, name: str) -> None:
        current = self.bench.shard.transactions.get(name)
        if current is not None and current.state in PREPARED and not self._is_completing(name):
            self.bench.markers_written(name)
            self._hear()

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
        self._hear()

    @rule()
    def restart(self) -> None:
        self.bench.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._hear()
        self.bench.load()

    # Invariants

    @invariant()
    def each_transaction_is_decided_once(self) -> None:
        for needed in self.bench.needed[self.seen :]:
            key = needed.producer
            if self.bench.version == 2:
                # Each end has an epoch of its own.
                assert self.decided.setdefault(key, needed.commits) is needed.commits
        self.seen = len(self.bench.needed)

    @invariant()
    def who_was_told_of_an_end_was_told_the_truth(self) -> None:
        if self.bench.version == 2:
            for producer, commits in self.told_ends:
                decided = self.decided.get(
                    ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
                )
                assert decided is commits, (producer, commits)

    @invariant()
    def nobody_knows_more_than_the_coordinator(self) -> None:
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
        """Whatever happened: it all comes to rest, and the log says the same."""
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
