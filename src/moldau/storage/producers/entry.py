"""The state of one idempotent or transactional producer in a partition: its epoch, its last
batches, its open transaction; and the arithmetic of sequences.
"""

from typing import NamedTuple

from moldau.types import (
    INT32_MAX,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
    ProducerEpoch,
)

BATCHES_REMEMBERED = 5
SEQUENCE_MAX = INT32_MAX


class BatchMetadata(NamedTuple):
    """One remembered batch: enough to answer its retry."""

    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class DataBatch(NamedTuple):
    """The header fields of a data batch, with its present or future offsets in the log."""

    producer_id: int
    producer_epoch: ProducerEpoch
    base_sequence: int
    first_offset: Offset
    last_offset: Offset
    max_timestamp_ms: int
    is_transactional: bool


class EndMarker(NamedTuple):
    """A control batch that ends a transaction, with the fields of its one record."""

    producer_id: int
    producer_epoch: ProducerEpoch
    offset: Offset
    timestamp_ms: int
    coordinator_epoch: int
    is_abort: bool


def increment_sequence(sequence: int, by: int) -> int:
    """Sequences wrap from 2^31-1 to 0; a missing sequence stays missing."""
    return sequence if sequence == NO_SEQUENCE else (sequence + by) & SEQUENCE_MAX


def decrement_sequence(sequence: int, by: int) -> int:
    return sequence if sequence == NO_SEQUENCE else (sequence - by) & SEQUENCE_MAX


class ProducerEntry:
    """The state of one producer id. `batches` is oldest first and never mutated, so that a copy for
    an append in progress costs one object.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch: ProducerEpoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms: int = NO_TIMESTAMP
        self.transaction_first_offset: Offset = NO_OFFSET
        self.batches: tuple[BatchMetadata, ...] = ()

    def copy(self) -> "ProducerEntry":
        twin = ProducerEntry.__new__(ProducerEntry)
        twin.producer_id = self.producer_id
        twin.epoch = self.epoch
        twin.coordinator_epoch = self.coordinator_epoch
        twin.last_timestamp_ms = self.last_timestamp_ms
        twin.transaction_first_offset = self.transaction_first_offset
        twin.batches = self.batches
        return twin

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> Offset:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        return self.batches[-1].last_offset - self.batches[-1].first_offset if self.batches else 0

    def is_followed_by(self, batch: DataBatch) -> bool:
        """Whether the batch has the next sequence in the same epoch: neither a duplicate
        nor a gap.
        """
        return (
            batch.producer_epoch == self.epoch
            and self.batches != ()
            and batch.base_sequence == self.batches[-1].last_sequence + 1
        )

    def add_batch(self, epoch: ProducerEpoch, batch: BatchMetadata) -> None:
        if epoch != self.epoch:
            self.batches = (batch,)
            self.epoch = epoch
        elif len(self.batches) < BATCHES_REMEMBERED:
            self.batches = (*self.batches, batch)
        else:
            self.batches = (*self.batches[1:], batch)
        self.last_timestamp_ms = batch.timestamp_ms

    def end_transaction(self, marker: EndMarker) -> None:
        if marker.producer_epoch != self.epoch:
            self.batches = ()
            self.epoch = marker.producer_epoch
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp_ms = marker.timestamp_ms
        self.transaction_first_offset = NO_OFFSET

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ProducerEntry({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"
