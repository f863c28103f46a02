"""Finds the first record at or after a time without creating record objects. The twin of
_record_times.pxi, which does it without holding the interpreter lock.
"""

from moldau.protocol.records._records_twin import _wrap64, checked_body, parse_record
from moldau.types import Buffer


def first_record_at(
    buffer: Buffer,
    bounds: tuple[int, int],
    count: int,
    bases: tuple[int, int, int | None],
    timestamp_min: int,
    offset_min: int,
) -> tuple[int, int] | None:
    """Offset and timestamp of the first of `count` records in `bounds` at or after both the time
    and the offset given. `bases`: offset, timestamp and, if all records share one, their append
    time.
    """
    base_offset, base_timestamp, append_time = bases
    body = checked_body(buffer, bounds, count)
    position, end = 0, len(body)
    for _ in range(count):
        position, time_delta, delta, *_ = parse_record(body, position, end)
        timestamp = _wrap64(base_timestamp + time_delta) if append_time is None else append_time
        offset = _wrap64(base_offset + delta)
        if timestamp >= timestamp_min and offset >= offset_min:
            return offset, timestamp
    return None
