"""Walks the batches of a log file that may be damaged. `RecordBatch` refuses broken batches; here a
broken header is described, and the walk resumes at the next whole batch after the damage, if any.
"""

from collections.abc import Iterator
from typing import NamedTuple

from moldau.protocol.records.batches import (
    ATTRIBUTES_OFFSET,
    BATCH_HEADER,
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    KNOWN_ATTRIBUTES,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_OFFSET,
)
from moldau.protocol.records.checksum import crc32c
from moldau.storage.inspection.source import WINDOW_BYTES, InspectedFile
from moldau.types import FIRST_OFFSET, INT32_MAX, LeaderEpoch, Offset, ProducerEpoch

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class BatchHeader(NamedTuple):
    """The 61 bytes at the start of every batch, valid or not."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX

    @property
    def compression(self) -> str:
        code = self.attributes & 7
        return _CODECS[code] if code < len(_CODECS) else f"unknown({code})"

    @property
    def timestamp_type(self) -> str:
        return "LogAppendTime" if self.attributes & 8 else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 16)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 32)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & 64 else None


class Damage(NamedTuple):
    """Bytes without a valid batch, from `position` to `end`: the next batch, or the end of the
    file.
    """

    position: int
    end: int
    what: str
    batches_follow: bool


class Step(NamedTuple):
    """A batch whose frame is whole; its checksum may still be wrong."""

    position: int
    header: BatchHeader
    crc_is_valid: bool


def read_header(file: InspectedFile, position: int) -> BatchHeader | None:
    """None where fewer bytes remain than a header has."""
    view = file.window(position, BATCH_HEADER_SIZE)
    if len(view) < BATCH_HEADER_SIZE:
        return None
    return BatchHeader(*BATCH_HEADER.unpack_from(view))


def frame_complaint(header: BatchHeader | None, left_bytes: int) -> str | None:
    """The reason why no whole batch can begin with this header, or None."""
    if header is None:
        return f"{left_bytes} bytes are fewer than a batch header has ({BATCH_HEADER_SIZE})"
    if not any(header):
        return "zeros instead of a batch"
    if header.magic in {0, 1}:
        return f"message format {header.magic}, which Kafka 4 no longer reads"
    if header.magic != MAGIC:
        return f"not a batch: magic is {header.magic}, not {MAGIC}"
    if header.batch_length < BATCH_LENGTH_MIN:
        length = header.batch_length
        return f"not a batch: its length is {length}, at least {BATCH_LENGTH_MIN} is needed"
    if header.size_bytes > left_bytes:
        return f"the batch has {header.size_bytes} bytes, but only {left_bytes} are left"
    if header.last_offset_delta < 0 or header.record_count < 0 or header.base_offset < 0:
        return (
            f"not a batch: base offset {header.base_offset}, last offset delta "
            f"{header.last_offset_delta}, {header.record_count} records"
        )
    return None


def crc_of(file: InspectedFile, position: int, size_bytes: int) -> int:
    """Computed in pieces: a damaged length may claim a gigabyte."""
    crc = 0
    start, end = position + ATTRIBUTES_OFFSET, position + size_bytes
    while start < end:
        piece = file.window(start, min(WINDOW_BYTES, end - start))
        if not piece:
            break
        crc = crc32c(piece, crc)
        start += len(piece)
    return crc


def walk_batches(
    file: InspectedFile, *, verify_crc: bool, base_offset: Offset = FIRST_OFFSET
) -> Iterator[Step | Damage]:
    """Every batch that can be found, and the damage between them."""
    position, end, lowest_offset = 0, file.size_bytes, base_offset
    while position < end:
        header = read_header(file, position)
        complaint = frame_complaint(header, end - position)
        if complaint is not None or header is None:
            following = _find_batch(file, position + 1, lowest_offset)
            yield Damage(position, following or end, complaint or "", following is not None)
            position = following or end
            continue
        after = position + header.size_bytes
        crc_is_valid = not verify_crc or crc_of(file, position, header.size_bytes) == header.crc
        if not crc_is_valid and not _may_begin(file, after):
            # The length itself is in doubt: search for the next batch within the claimed length.
            after = _find_batch(file, position + 1, lowest_offset) or after
        elif crc_is_valid:
            lowest_offset = Offset(header.last_offset + 1)
        yield Step(position, header, crc_is_valid)
        position = after


def _may_begin(file: InspectedFile, position: int) -> bool:
    left = file.size_bytes - position
    return left == 0 or frame_complaint(read_header(file, position), left) is None


def _is_likely(header: BatchHeader, lowest_offset: Offset) -> bool:
    """Cheap and strict, so that garbage rarely costs a checksum over the length that it claims."""
    return (
        lowest_offset <= header.base_offset <= lowest_offset + INT32_MAX
        and header.attributes & ~KNOWN_ATTRIBUTES == 0
        and header.record_count <= header.last_offset_delta + 1
    )


def _find_batch(file: InspectedFile, start: int, lowest_offset: Offset) -> int | None:
    """The first position from `start` where a whole batch with the right checksum begins."""
    position = start
    while position + BATCH_HEADER_SIZE <= file.size_bytes:
        # Pieces overlap by a header, so that no batch is missed at a seam.
        piece = bytes(file.window(position, min(WINDOW_BYTES, file.size_bytes - position)))
        last = len(piece) - BATCH_HEADER_SIZE
        magic_at = piece.find(MAGIC, MAGIC_OFFSET)
        while magic_at != -1 and magic_at - MAGIC_OFFSET <= last:
            candidate = magic_at - MAGIC_OFFSET
            header = BatchHeader(*BATCH_HEADER.unpack_from(piece, candidate))
            left = file.size_bytes - position - candidate
            if (
                _is_likely(header, lowest_offset)
                and frame_complaint(header, left) is None
                and crc_of(file, position + candidate, header.size_bytes) == header.crc
            ):
                return position + candidate
            magic_at = piece.find(MAGIC, magic_at + 1)
        if last < 0:
            return None
        position += last + 1
    return None
