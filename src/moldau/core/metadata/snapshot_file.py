"""A snapshot file: control batches around batches of metadata records. The header has the time of
the newest record, the footer proves that the file is complete; the quorum's records follow the
header. Offsets count the records of the file.
"""

import contextlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeAlias

from moldau.core.metadata.levels import encode_records, level_after
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError, MoldauError
from moldau.protocol.log_records import SnapshotFooterRecord, SnapshotHeaderRecord
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch, iterate_batches
from moldau.protocol.records.control_records import (
    ControlType,
    OffsetAndEpoch,
    control_batch,
    control_type_of,
)
from moldau.protocol.records.stored_records import decode_metadata_record
from moldau.protocol.wire.codec import decode, encode
from moldau.protocol.wire.schema import Message
from moldau.types import FIRST_EPOCH, FIRST_OFFSET, Buffer, LeaderEpoch, Offset

RECORDS_IN_BATCH_MAX = 1024
_CONTROL_VERSION = 0

# The quorum's records: kraft.version and the voters.
ControlValue: TypeAlias = tuple[ControlType, bytes]


class DamagedSnapshotError(MoldauError):
    """The snapshot is damaged or incomplete. No part of it may be used."""


@frozen(kw_only=True)
class SnapshotHead:
    epoch: LeaderEpoch
    timestamp_ms: int
    """Describes the last log record that is in the snapshot."""
    control_values: tuple[ControlValue, ...] = ()


@frozen
class Snapshot:
    head: SnapshotHead
    records: list[Message]


def encode_snapshot(
    head: SnapshotHead, records: Iterable[Message], *, now_ms: int
) -> Iterator[bytes]:
    """Yields batch by batch."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=head.timestamp_ms)
    first = (ControlType.SNAPSHOT_HEADER, encode(header, _CONTROL_VERSION))
    values = (first, *head.control_values)
    yield control_batch(values, OffsetAndEpoch(FIRST_OFFSET, head.epoch), now_ms)
    offset = Offset(len(values))
    level: int | None = None
    rest = iter(records)
    while group := list(islice(rest, RECORDS_IN_BATCH_MAX)):
        encoded = encode_records(group, level)
        level = level_after(group, level)
        yield metadata_batch(encoded, OffsetAndEpoch(offset, head.epoch), now_ms)
        offset = Offset(offset + len(group))
    footer = (ControlType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(), _CONTROL_VERSION))
    yield control_batch([footer], OffsetAndEpoch(offset, head.epoch), now_ms)


def metadata_batch(encoded: Iterable[bytes], start: OffsetAndEpoch, now_ms: int) -> bytes:
    """As in Kafka: no keys, no compression, one timestamp for all records."""
    records = [
        Record(start.base_offset + index, now_ms, None, value)
        for index, value in enumerate(encoded)
    ]
    return build_batch(records, BatchOptions(partition_leader_epoch=start.partition_leader_epoch))


def decode_snapshot(content: Buffer) -> Snapshot:
    """Raises DamagedSnapshotError unless the content is complete from header to footer, and
    KafkaError (UNSUPPORTED_VERSION) for records of a later release.
    """
    control: list[ControlValue] = []
    records: list[Message] = []
    epoch = FIRST_EPOCH
    with _damaged():
        for batch in _checked_batches(content):
            if control and control[-1][0] is ControlType.SNAPSHOT_FOOTER:
                raise DamagedSnapshotError("unexpected data after the footer")
            if batch.base_offset != len(control) + len(records):
                raise DamagedSnapshotError(f"a batch begins at offset {batch.base_offset}")
            epoch = LeaderEpoch(batch.partition_leader_epoch)
            if batch.is_control:
                control += control_values(batch)
            else:
                records += metadata_records(batch)
        if not control or control[-1][0] is not ControlType.SNAPSHOT_FOOTER:
            raise DamagedSnapshotError("it has no footer: its end is missing")
        head = SnapshotHead(
            epoch=epoch,
            timestamp_ms=_header_timestamp_ms(control),
            control_values=tuple(control[1:-1]),
        )
        return Snapshot(head, records)


def snapshot_timestamp_ms(start: Buffer) -> int:
    """Reads only the first batch, so the rest may be missing."""
    with _damaged():
        for batch in iterate_batches(start):
            batch.check_crc()
            return _header_timestamp_ms(control_values(batch) if batch.is_control else [])
        raise DamagedSnapshotError("it has no header")


def _header_timestamp_ms(control: list[ControlValue]) -> int:
    if not control or control[0][0] is not ControlType.SNAPSHOT_HEADER:
        raise DamagedSnapshotError("it has no header")
    header = decode(SnapshotHeaderRecord, _CONTROL_VERSION, control[0][1])
    return header.last_contained_log_timestamp


@contextlib.contextmanager
def _damaged() -> Iterator[None]:
    try:
        yield
    except MalformedRequestError as error:
        raise DamagedSnapshotError(str(error)) from error
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise
        raise DamagedSnapshotError(str(error)) from error


def _checked_batches(content: Buffer) -> Iterator[RecordBatch]:
    """Checks each batch's checksum before anything else."""
    end = 0
    for batch in iterate_batches(content):
        batch.check_crc()
        yield batch
        end += batch.size_in_bytes
    if end != len(content):
        raise DamagedSnapshotError(f"the batch at position {end} is cut off")


def control_values(batch: RecordBatch) -> list[ControlValue]:
    return [(control_type_of(each.key), bytes(each.value or b"")) for each in batch.records()]


def metadata_records(batch: RecordBatch) -> list[Message]:
    return [decode_metadata_record(each.value or b"").message for each in batch.records()]
