"""Control batches: transaction markers that a coordinator writes into data partitions, and the
quorum's own records. The key is a version and a type; the value depends on the type. All values but
the transaction marker's are generated messages (log_records/).
"""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch
from moldau.types import Buffer, LeaderEpoch, Offset, ProducerEpoch

_key = struct.Struct(">hh")
_end_transaction = struct.Struct(">hi")

CONTROL_KEY_VERSION = 0
END_TRANSACTION_VERSION = 0


class ControlType(IntEnum):
    UNKNOWN = -1
    """Written by a later version; must be ignored."""
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    control_type: ControlType
    coordinator_epoch: int


def control_key(control_type: ControlType) -> bytes:
    return _key.pack(CONTROL_KEY_VERSION, control_type)


def control_type_of(key: Buffer | None) -> ControlType:
    """Raises INVALID_RECORD if the bytes cannot be the key of a control record."""
    if key is None or len(key) < _key.size:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the key of a control record has four bytes")
    version, number = _key.unpack_from(key)
    if version < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"control record of version {version}")
    # A later version only adds fields, so the type is in the same position.
    return ControlType(number) if number in _KNOWN else ControlType.UNKNOWN


_KNOWN = frozenset(ControlType)


def read_end_transaction_marker(record: Record) -> EndTransactionMarker:
    control_type = control_type_of(record.key)
    if control_type not in {ControlType.ABORT, ControlType.COMMIT}:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"{control_type.name} does not end a transaction"
        )
    if record.value is None or len(record.value) < _end_transaction.size:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the marker's value is too short")
    version, coordinator_epoch = _end_transaction.unpack_from(record.value)
    if version < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"transaction marker of version {version}")
    return EndTransactionMarker(control_type=control_type, coordinator_epoch=coordinator_epoch)


def marker_of(batch: RecordBatch) -> EndTransactionMarker | None:
    """The marker in a control batch; None for other batches and other control records."""
    if not batch.is_control or batch.record_count == 0:
        return None
    first = batch.records()[0]
    if control_type_of(first.key) not in {ControlType.ABORT, ControlType.COMMIT}:
        return None
    return read_end_transaction_marker(first)


class MarkerOrigin(NamedTuple):
    """The producer whose transaction ends, and the target of the marker."""

    producer_id: int
    producer_epoch: ProducerEpoch
    base_offset: int = 0
    partition_leader_epoch: int = -1


def end_transaction_marker(
    marker: EndTransactionMarker, origin: MarkerOrigin, now_ms: int
) -> bytes:
    """A control batch of one record. Its sequence is -1: markers do not use the producer's
    sequences.
    """
    value = _end_transaction.pack(END_TRANSACTION_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(origin.base_offset, now_ms, control_key(marker.control_type), value)],
        BatchOptions(
            partition_leader_epoch=origin.partition_leader_epoch,
            producer_id=origin.producer_id,
            producer_epoch=origin.producer_epoch,
            is_transactional=True,
            is_control=True,
        ),
    )


class OffsetAndEpoch(NamedTuple):
    """The first offset of a batch to build, and the epoch of the leader that writes it."""

    base_offset: Offset
    partition_leader_epoch: LeaderEpoch


def control_batch(
    values: Iterable[tuple[ControlType, bytes]], start: OffsetAndEpoch, now_ms: int
) -> bytes:
    """A control batch of the quorum: no producer, no transaction; values are encoded messages."""
    records = [
        Record(start.base_offset + index, now_ms, control_key(control_type), value)
        for index, (control_type, value) in enumerate(values)
    ]
    return build_batch(
        records,
        BatchOptions(partition_leader_epoch=start.partition_leader_epoch, is_control=True),
    )


def committed_batches(
    batches: Iterable[RecordBatch], aborted: Iterable[tuple[int, int]]
) -> Iterator[RecordBatch]:
    """The batches that a read_committed reader may see: no control batches and none of aborted
    transactions, which are given as (producer id, first offset) as in a Fetch response.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for batch in batches:
        while waiting and waiting[-1][1] <= batch.last_offset:
            aborting.add(waiting.pop()[0])
        if batch.is_control:
            marker = marker_of(batch)
            if marker is not None and marker.control_type is ControlType.ABORT:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            yield batch
