"""Transactions according to the files, parsed by this module alone: the decisions, the markers of
each partition, and whether the two agree. The node must be down, or at rest.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from system.node.questions import Place

from moldau.core.transactions.states import AT_REST, PREPARED, TransactionState
from moldau.core.transactions.transaction import Transaction
from moldau.core.transactions.transaction_records import (
    decode_transaction_record,
    stored_transaction,
)
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records.transaction_log import TransactionLogKey, TransactionLogValue
from moldau.protocol.records.batches import RecordBatch, iterate_batches
from moldau.protocol.records.control_records import ControlType, marker_of

TRANSACTION_LOG = "__transaction_state"

Producer = tuple[int, int]
"""Id and epoch."""

_COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class WrittenMarker(NamedTuple):
    """A marker in a partition."""

    producer: Producer
    commits: bool
    has_records: bool
    """False for a marker that ends nothing: its partition had one before, or was never written
    to.
    """
    offset: int


class PartitionStory(NamedTuple):
    markers: list[WrittenMarker]
    open: dict[int, int]
    """Producer id -> first offset of its open transaction."""


class Decided(NamedTuple):
    producer: Producer
    """As in the markers."""
    commits: bool
    places: frozenset[Place]


class Decisions(NamedTuple):
    """The contents of the coordinator's log."""

    decided: list[Decided]
    last: dict[str, Transaction]
    """By transactional id."""


def batches_of(folder: Path) -> Iterator[RecordBatch]:
    """Complete batches only; torn ones are ignored."""
    for path in sorted(folder.glob("*.log")):
        try:
            yield from iterate_batches(path.read_bytes())
        except KafkaError:
            return


def partition_folders(log_folder: Path, topic: str) -> dict[int, Path]:
    """Without those that are about to be deleted."""
    found = {path.name.removeprefix(f"{topic}-"): path for path in log_folder.glob(f"{topic}-*")}
    return {int(index): path for index, path in found.items() if index.isdecimal()}


def partition_story(folder: Path) -> PartitionStory:
    markers: list[WrittenMarker] = []
    begun: dict[int, int] = {}
    for batch in batches_of(folder):
        marker = marker_of(batch)
        if marker is not None:
            first = begun.pop(batch.producer_id, None)
            markers.append(
                WrittenMarker(
                    (batch.producer_id, batch.producer_epoch),
                    marker.control_type is ControlType.COMMIT,
                    first is not None,
                    batch.base_offset,
                )
            )
        elif batch.is_transactional:
            begun.setdefault(batch.producer_id, batch.base_offset)
    return PartitionStory(markers, begun)


def transaction_log(log_folder: Path) -> Iterator[Transaction]:
    """All states in the order in which each transactional id went through them."""
    for folder in partition_folders(log_folder, TRANSACTION_LOG).values():
        for batch in batches_of(folder):
            for record in batch.records():
                assert record.key is not None
                decoded = decode_transaction_record(record.key, record.value)
                assert decoded is not None
                if isinstance(decoded.value, TransactionLogValue):
                    assert isinstance(decoded.key, TransactionLogKey)
                    yield stored_transaction(decoded.key, decoded.value)


def read_decisions(log_folder: Path) -> Decisions:
    """Asserts that every prepared transaction is completed, with the same outcome, and nothing else
    happens to it.
    """
    decided: list[Decided] = []
    last: dict[str, Transaction] = {}
    for state in transaction_log(log_folder):
        name = state.transactional_id
        before = last.get(name)
        if before is not None and before.state in PREPARED:
            assert state.state is _COMPLETED[before.state], f"{name}: {state} after {before}"
        if state.state in PREPARED:
            places = frozenset((each.topic, each.partition) for each in state.partitions)
            producer = (state.producer_id, state.producer_epoch)
            commits = state.state is TransactionState.PREPARE_COMMIT
            decided.append(Decided(producer, commits, places))
        last[name] = state
    return Decisions(decided, last)


def check_all_decided(log_folder: Path, topics: Iterable[str]) -> Decisions:
    """Every transaction is decided once, and each of its partitions has the marker; none is
    open.
    """
    decisions = read_decisions(log_folder)
    for state in decisions.last.values():
        assert state.state in AT_REST, f"is not at rest: {state}"
    stories = {
        (topic, index): partition_story(folder)
        for topic in topics
        for index, folder in partition_folders(log_folder, topic).items()
    }
    check_agreement(decisions, stories)
    return decisions


def check_nothing_open(log_folder: Path, topics: Iterable[str]) -> None:
    """For logs that no longer contain everything."""
    last = {state.transactional_id: state for state in transaction_log(log_folder)}
    for state in last.values():
        assert state.state in AT_REST, f"is not at rest: {state}"
    for topic in topics:
        for folder in partition_folders(log_folder, topic).values():
            story = partition_story(folder)
            assert not story.open, f"{folder.name} has transactions without an end: {story.open}"


def check_agreement(decisions: Decisions, stories: dict[Place, PartitionStory]) -> None:
    wanted: dict[tuple[Place, Producer], list[bool]] = defaultdict(list)
    for decided in decisions.decided:
        for place in decided.places:
            wanted[place, decided.producer].append(decided.commits)
    for place, story in stories.items():
        assert not story.open, f"{place} has transactions without an end: {story.open}"
        markers_of: dict[Producer, list[WrittenMarker]] = defaultdict(list)
        for marker in story.markers:
            markers_of[marker.producer].append(marker)
        for producer, markers in markers_of.items():
            _check_markers(place, wanted.pop((place, producer), []), markers)
    missing = {key: ends for key, ends in wanted.items() if key[0] in stories}
    assert not missing, f"decided without a marker: {missing}"


def _check_markers(place: Place, decided: list[bool], markers: list[WrittenMarker]) -> None:
    """Before transaction version 2 one epoch has many ends. A marker may come again after a crash:
    then it ends nothing.
    """
    waiting = list(decided)
    for marker in markers:
        if marker.has_records:
            # Those before it were of transactions that wrote nothing here.
            while waiting and waiting[0] is not marker.commits:
                waiting.pop(0)
            assert waiting, f"{place}: {marker}, but decided was {decided}"
            waiting.pop(0)
        else:
            assert marker.commits in decided, f"{place}: {marker}, but decided was {decided}"
    assert len(markers) >= len(decided), (
        f"{place}: {decided} was decided, the markers are {markers}"
    )
