"""The Python twins of `_records.pyx`: same arguments, same results, same errors, no compiler. The
bytes are untrusted, so every length is checked against the end of the record and of the batch.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.checksum import crc32c
from moldau.protocol.records.record import Record
from moldau.protocol.records.scanned_batch import BASE_OFFSET, LAST_OFFSET, SIZE, ScannedBatch
from moldau.types import Buffer, LeaderEpoch, Offset

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
# offset, timestamp, key, value, headers
RecordToEncode: TypeAlias = tuple[
    int, int, Buffer | None, Buffer | None, Sequence[tuple[str, Buffer | None]]
]
# next position, timestamp delta, offset delta, key start, key length, value start, value length,
# headers start, header count, count of lengths below -1; a length below 0 is null
ParsedRecord: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int]

StampLimits: TypeAlias = tuple[int, int, bool, int]
"""The earliest and the latest timestamp, whether records need keys, and the largest size."""

HEADER_BYTES = 61
LOG_OVERHEAD = 12
RECORD_BYTES_MIN = 7
INT64_MIN = -(2**63)
RECORD_ERRORS_MAX = 1000
# Compressed, append time, control, delete horizon.
UNCOMMON_FLAGS = 0x6F

NO_KEY = 0
BAD_TIMESTAMP = 1
BAD_OFFSET_DELTA = 2
BAD_NULL = 3

INCOMPLETE = "incomplete batch"
BAD_LENGTH = "impossible batch length"
BAD_MAGIC = "unknown magic"
BAD_CRC = "checksum mismatch"
BAD_OFFSETS = "offsets do not increase"

_header = struct.Struct(">qiibIhiqqqhii")


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, detail)


def _wrap64(number: int) -> int:
    """Java's wrapping arithmetic for long, which the peer computed with."""
    return (number + 2**63) % 2**64 - 2**63


def scan_batches(
    buffer: Buffer, start: int, end: int, verify_crc: bool, base: int = 0
) -> tuple[list[ScannedBatch], int, str | None]:
    """The recovery scan: the headers of all sound batches from `start`, the position where they
    end, and the problem there (None if `end` was reached). Returned positions are relative to a
    file that has the buffer at `base`.
    """
    view = memoryview(buffer)
    if not 0 <= start <= end <= len(view):
        raise ValueError(f"scan of [{start}, {end}) in {len(view)} bytes")
    found: list[ScannedBatch] = []
    position = start
    next_offset = 0
    while position < end:
        problem, batch = _scan_one(view, position, end, verify_crc)
        if batch is None:
            return found, base + position, problem
        if batch[BASE_OFFSET] < next_offset or batch[LAST_OFFSET] < batch[BASE_OFFSET]:
            return found, base + position, BAD_OFFSETS
        next_offset = batch[LAST_OFFSET] + 1
        found.append((base + position, *batch[1:]) if base else batch)
        position += batch[SIZE]
    return found, base + position, None


def _scan_one(
    view: memoryview, position: int, end: int, verify_crc: bool
) -> tuple[str | None, ScannedBatch | None]:
    left = end - position
    if left >= LOG_OVERHEAD:
        size = LOG_OVERHEAD + int.from_bytes(view[position + 8 : position + 12], "big", signed=True)
        if size < HEADER_BYTES:
            return BAD_LENGTH, None
        if left > 16 and view[position + 16] != 2:
            return BAD_MAGIC, None
        if size <= left:
            fields = _header.unpack_from(view, position)
            if verify_crc and crc32c(view[position + 21 : position + size]) != fields[4]:
                return BAD_CRC, None
            base_offset, _, epoch, _, _, attributes, delta, base_time, max_time = fields[:9]
            return None, (
                position, size, base_offset, _wrap64(base_offset + delta), epoch, max_time,
                attributes, *fields[9:12], delta, fields[12], base_time,
            )  # fmt: skip
    return INCOMPLETE, None


# size, base offset, last offset, leader epoch, max timestamp
FollowingBatch: TypeAlias = tuple[int, Offset, Offset, LeaderEpoch, int]


def batches_within(
    buffer: Buffer, reach: int, left: int, floor_offset: int, offset_limit: int
) -> tuple[int, int, FollowingBatch | None]:
    """Finds the batches at the start of the buffer that end within `reach` bytes, as far as their
    headers are in the buffer. Returns their end, the offset after them, and the next batch, if its
    header is in the buffer. Only headers are read: offsets must rise from the floor and stay below
    the limit, and no batch may be longer than the `left` bytes of the file. If one violates this,
    all results are -1.
    """
    position, next_offset = 0, -1
    while position + HEADER_BYTES <= len(buffer):
        base, length, epoch, magic, _, _, delta, _, max_time = _header.unpack_from(
            buffer, position
        )[:9]
        size, last = LOG_OVERHEAD + length, base + delta
        if size < HEADER_BYTES or magic != 2 or size > left - position:
            return -1, -1, None
        if base < floor_offset or delta < 0 or last >= offset_limit:
            return -1, -1, None
        if size > reach - position:
            following = size, Offset(base), Offset(last), LeaderEpoch(epoch), max_time
            return position, next_offset, following
        position += size
        floor_offset = next_offset = last + 1
    return position, next_offset, None


# The values of one-byte varints, which are the most common.
_SHORT = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


def _read_varint(body: bytes, position: int, limit: int) -> tuple[int, int]:
    """Zigzag, at most five bytes. A position of -1 means that there is no number."""
    if position < limit and (byte := body[position]) < 0x80:
        return _SHORT[byte], position + 1
    return _read_long_varint(body, position, limit, 32)


def _read_varlong(body: bytes, position: int, limit: int) -> tuple[int, int]:
    """Zigzag, at most ten bytes."""
    if position < limit and (byte := body[position]) < 0x80:
        return _SHORT[byte], position + 1
    return _read_long_varint(body, position, limit, 64)


def _read_long_varint(body: bytes, position: int, limit: int, width_bits: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, width_bits, 7):
        if position >= limit:
            return 0, -1
        byte = body[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= (1 << width_bits) - 1
            return (raw >> 1) ^ -(raw & 1), position
    return 0, -1


def _read_bytes(body: bytes, position: int, limit: int, what: str) -> tuple[int, int]:
    """Start and length of a nullable byte string; the caller continues after it. A length below -1
    counts as null too, as in Java, and is returned as -2: it must not be written, because
    librdkafka hangs on it.
    """
    length, position = _read_varint(body, position, limit)
    if position < 0 or length > limit - position:
        raise _invalid(f"{what} runs past its record")
    return position, max(length, -2)


def parse_record(body: bytes, position: int, end: int) -> ParsedRecord:
    length, position = _read_varint(body, position, end)
    if position < 0:
        raise _invalid("record length is not a number")
    if not 0 <= length <= end - position:
        raise _invalid("record runs past its batch")
    limit = position + length
    if length == 0:
        raise _invalid("record is empty")
    timestamp_delta, position = _read_varlong(body, position + 1, limit)
    if position < 0:
        raise _invalid("timestamp runs past its record")
    offset_delta, position = _read_varint(body, position, limit)
    if position < 0:
        raise _invalid("offset runs past its record")
    key_start, key_length = _read_bytes(body, position, limit, "key")
    value_start, value_length = _read_bytes(body, key_start + max(key_length, 0), limit, "value")
    position = value_start + max(value_length, 0)
    header_count, position = _read_varint(body, position, limit)
    if position < 0 or not 0 <= header_count <= limit - position:
        raise _invalid("impossible header count")
    headers_start = position
    odd_nulls = (key_length, value_length).count(-2)
    for _ in range(header_count):
        start, length = _read_bytes(body, position, limit, "header")
        if length < 0:
            raise _invalid("header key is null")
        start, length = _read_bytes(body, start + length, limit, "header")
        odd_nulls += length == -2
        position = start + max(length, 0)
    if position != limit:
        raise _invalid("record has bytes after its headers")
    return (
        limit, timestamp_delta, offset_delta, key_start, key_length, value_start, value_length,
        headers_start, header_count, odd_nulls,
    )  # fmt: skip


def checked_body(buffer: Buffer, bounds: tuple[int, int], count: int) -> bytes:
    """The bytes in `bounds`, copied: reading bytes is faster than reading a view."""
    start, end = bounds
    if not 0 <= start <= end <= len(buffer):
        raise ValueError(f"records in [{start}, {end}) of {len(buffer)} bytes")
    if not 0 <= count * RECORD_BYTES_MIN <= end - start:
        raise _invalid(f"{count} records cannot be in {end - start} bytes")
    return bytes(memoryview(buffer)[start:end])


def _read_headers(body: bytes, position: int, limit: int, count: int) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        start, length = _read_bytes(body, position, limit, "header")
        name = str(body[start : start + length], "utf-8", "replace")
        start, length = _read_bytes(body, start + length, limit, "header")
        headers.append((name, None if length < 0 else body[start : start + length]))
        position = start + max(length, 0)
    return tuple(headers)


def decode_records(
    buffer: Buffer,
    bounds: tuple[int, int],
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
) -> list[Record]:
    """All `count` records of the uncompressed body in `bounds`. With an append time every record
    has that time. In header names that are not UTF-8, replacement characters are used, as in Java.
    """
    body = checked_body(buffer, bounds, count)
    position, end = 0, len(body)
    decoded: list[Record] = []
    for _ in range(count):
        (
            position, time_delta, delta, key_at, key_size, at, size, headers_at, headers, _,
        ) = parse_record(body, position, end)  # fmt: skip
        decoded.append(
            Record(
                _wrap64(base_offset + delta),
                _wrap64(base_timestamp + time_delta) if append_time is None else append_time,
                None if key_size < 0 else body[key_at : key_at + key_size],
                None if size < 0 else body[at : at + size],
                _read_headers(body, headers_at, position, headers) if headers else (),
            )
        )
    if position != end:
        raise _invalid("bytes are left after the last record")
    return decoded


def validate_records(
    buffer: Buffer,
    bounds: tuple[int, int],
    count: int,
    base_timestamp: int,
    timestamp_range: tuple[int, int] | None,
    keys_required: bool,
) -> tuple[int, int, int, list[tuple[int, int, int]]]:
    """The produce-time check of a body: structure (raises INVALID_RECORD), offset deltas 0, 1, 2…,
    timestamps within the inclusive range (-1 is "none" and passes), keys.

    Returns the largest timestamp, the index of the first record that has it, the number of refused
    records, and the first of those as (index, kind, timestamp).
    """
    body = checked_body(buffer, bounds, count)
    position, end = 0, len(body)
    max_timestamp, max_index, refused_count = INT64_MIN, -1, 0
    refused: list[tuple[int, int, int]] = []
    for index in range(count):
        (
            position, time_delta, delta, _, key_length, _, _, _, _, odd_nulls,
        ) = parse_record(body, position, end)  # fmt: skip
        timestamp = _wrap64(base_timestamp + time_delta)
        kind = -1
        if delta != index:
            kind = BAD_OFFSET_DELTA
        elif odd_nulls:
            kind = BAD_NULL
        elif keys_required and key_length < 0:
            kind = NO_KEY
        elif (
            timestamp_range is not None
            and timestamp != -1
            and not timestamp_range[0] <= timestamp <= timestamp_range[1]
        ):
            kind = BAD_TIMESTAMP
        if kind >= 0:
            refused_count += 1
            if len(refused) < RECORD_ERRORS_MAX:
                refused.append((index, kind, timestamp))
        if timestamp > max_timestamp:
            max_timestamp, max_index = timestamp, index
    if position != end:
        raise _invalid("bytes are left after the last record")
    return max_timestamp, max_index, refused_count, refused


def stamp_batch(
    buffer: Buffer, base_offset: int, leader_epoch: int, limits: StampLimits
) -> ScannedBatch | None:
    """The common case of a produce: exactly one uncompressed batch that a leader would neither
    refuse nor change, except for its offset. Writes offset and leader epoch into the buffer and
    returns the header as it will be in the log. None leaves the buffer untouched: the caller must
    then run the full validation.
    """
    earliest, latest, keys_required, size_max = limits
    view = memoryview(buffer)
    size = len(view)
    if view.readonly or not HEADER_BYTES <= size <= size_max:
        return None
    fields = _header.unpack_from(view)
    base, length, _, magic, crc, attributes, delta, base_time, max_time = fields[:9]
    producer_id, producer_epoch, sequence, count = fields[9:]
    if magic != 2 or length != size - LOG_OVERHEAD or base != 0 or attributes & UNCOMMON_FLAGS:
        return None
    if count <= 0 or delta != count - 1 or (producer_id > -1 and sequence < 0):
        return None
    try:
        largest, _, refused, _ = validate_records(
            view, (HEADER_BYTES, size), count, base_time, (earliest, latest), keys_required
        )
    except KafkaError:
        return None
    if refused or max(largest, -1) != max_time or crc32c(view[21:]) != crc:
        return None
    struct.pack_into(">q", view, 0, base_offset)
    struct.pack_into(">i", view, LOG_OVERHEAD, leader_epoch)
    return (
        0, size, Offset(base_offset), Offset(_wrap64(base_offset + delta)),
        LeaderEpoch(leader_epoch), max_time, attributes, producer_id, producer_epoch, sequence,
        delta, count, base_time,
    )  # fmt: skip


def _write_varint(out: bytearray, number: int) -> None:
    raw = (number << 1) ^ (number >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def _write_bytes(out: bytearray, content: Buffer | None) -> None:
    if content is None:
        out.append(1)
    else:
        _write_varint(out, len(content))
        out += content


def encode_records(
    records: Iterable[RecordToEncode],
    base_timestamp: int,
    reserved_bytes: int,
    base_offset: int = 0,
) -> bytearray:
    """A body after `reserved_bytes` zeros, which leave room for the batch header."""
    out = bytearray(reserved_bytes)
    for offset, timestamp, key, value, headers in records:
        offset_delta = offset - base_offset
        if not -(2**31) <= offset_delta < 2**31:
            raise OverflowError(f"offset delta {offset_delta} does not fit into 32 bits")
        record = bytearray(1)
        _write_varint(record, _wrap64(timestamp - base_timestamp))
        _write_varint(record, offset_delta)
        _write_bytes(record, key)
        _write_bytes(record, value)
        _write_varint(record, len(headers))
        for name, content in headers:
            _write_bytes(record, name.encode())
            _write_bytes(record, content)
        _write_varint(out, len(record))
        out += record
    return out
