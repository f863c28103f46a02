"""Checks what a leader has sent before it is appended: the rest of the node trusts its log."""

from collections.abc import Iterable
from typing import NamedTuple

from moldau.core.metadata.snapshot_file import ControlValue, control_values
from moldau.core.quorum.history import Changes, KRaftVersion, QuorumChange
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.voters import VoterSet
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.log_records import KRaftVersionRecord
from moldau.protocol.records.batches import CONTROL_FLAG, RecordBatch
from moldau.protocol.records.control_records import ControlType
from moldau.protocol.records.record_loops import INCOMPLETE, scan_batches
from moldau.protocol.records.scanned_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    LEADER_EPOCH,
    POSITION,
    SIZE,
    ScannedBatch,
)
from moldau.protocol.wire.codec import decode
from moldau.types import LeaderEpoch, Offset


class FetchedRecords(NamedTuple):
    content: bytes
    """Whole batches."""
    changes: Changes
    """Their changes of the quorum."""


def check_fetched(records: bytes, end: LogPosition, epoch: LeaderEpoch) -> FetchedRecords:
    """The batches that continue a log with this end. A partial last batch is left out, and so are
    batches of epochs later than the leader's. Raises KafkaError for anything else, and if there is
    nothing left.
    """
    headers, _, problem = scan_batches(records, 0, len(records), True)
    if problem not in {None, INCOMPLETE}:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch is damaged: {problem}")
    next_offset, last_epoch, size = end.offset, end.epoch, 0
    changes: list[QuorumChange] = []
    for header in headers:
        if header[LEADER_EPOCH] > epoch:
            break
        _check_order(header, next_offset, last_epoch)
        if header[ATTRIBUTES] & CONTROL_FLAG:
            changes += _changes_in(RecordBatch(records, header[POSITION]))
        next_offset, last_epoch = Offset(header[LAST_OFFSET] + 1), header[LEADER_EPOCH]
        size = header[POSITION] + header[SIZE]
    if not size:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"there is no whole batch of an epoch up to {epoch} in {len(records)} bytes",
        )
    return FetchedRecords(records[:size], tuple(changes))


def _check_order(header: ScannedBatch, next_offset: Offset, last_epoch: LeaderEpoch) -> None:
    if header[BASE_OFFSET] != next_offset or header[LAST_OFFSET] < next_offset:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"a batch has offsets {header[BASE_OFFSET]} to {header[LAST_OFFSET]}, "
            f"expected was {next_offset}",
        )
    if header[LEADER_EPOCH] < last_epoch:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batch at offset {next_offset} has epoch {header[LEADER_EPOCH]}, "
            f"the one before it {last_epoch}",
        )


def _changes_in(batch: RecordBatch) -> Changes:
    try:
        return quorum_changes(control_values(batch), Offset(batch.base_offset))
    except MalformedRequestError as error:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the control batch at offset {batch.base_offset} cannot be decoded: {error}",
        ) from error


def quorum_changes(values: Iterable[ControlValue], base_offset: Offset) -> Changes:
    """The changes of the quorum in the control records of a batch."""
    changes = []
    for offset, (kind, content) in enumerate(values, base_offset):
        if kind is ControlType.KRAFT_VOTERS:
            changes.append(QuorumChange(Offset(offset), VoterSet.decode(content)))
        elif kind is ControlType.KRAFT_VERSION:
            level = decode(KRaftVersionRecord, 0, content).kraft_version
            changes.append(QuorumChange(Offset(offset), KRaftVersion(level)))
    return tuple(changes)
