"""Consumer records, created on demand. The twin of _record_cursor.pxi."""

from collections.abc import Callable
from typing import Any

from moldau.protocol.records._records_twin import (
    _invalid,
    _read_headers,
    _wrap64,
    checked_body,
    parse_record,
)
from moldau.types import Buffer

Reader = Callable[[bytes], Any] | None
"""Converts the bytes of a key or a value; None keeps the bytes. It is never called for null."""


class ConsumerRecord:
    """One consumed record. `timestamp_type` is 0 for the producer's time, 1 for the log's."""

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(  # noqa: PLR0913 - a record has this many fields
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: Any = None,
        value: Any = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        *,
        leader_epoch: int = -1,
        timestamp_type: int = 0,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch
        self.timestamp_type = timestamp_type

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


class RecordCursor:
    """The position of a consumer in one batch. `bases` are base offset, base timestamp and append
    time (None: each record has its own); `origin` is topic, partition, leader epoch and the first
    offset to return; `readers` convert keys and values from bytes.
    """

    def __init__(
        self,
        buffer: Buffer,
        bounds: tuple[int, int],
        count: int,
        bases: tuple[int, int, int | None],
        origin: tuple[str, int, int, int],
        readers: tuple[Reader, Reader],
    ) -> None:
        self._body = checked_body(buffer, bounds, count)
        self._position = 0
        self.left = count
        self._base_offset, self._base_timestamp, self._append_time = bases
        self._topic, self._partition, self._leader_epoch, self._start_offset = origin
        self._read_key, self._read_value = readers
        self.next_offset = self._start_offset

    def take(self, into: list[ConsumerRecord], count: int) -> int:
        """Appends up to `count` records and returns their number. An unreadable record raises if it
        is the first of a call; otherwise the call returns the records before it.
        """
        taken = 0
        while taken < count and self.left:
            try:
                offset, following, record = self._next()
            except Exception:
                if taken:
                    return taken
                raise
            if record is not None:
                into.append(record)
                taken += 1
                self.next_offset = offset + 1
            self._position = following
            self.left -= 1
        if not self.left and self._position != len(self._body):
            raise _invalid("bytes are left after the last record")
        return taken

    def _next(self) -> tuple[int, int, ConsumerRecord | None]:
        body = self._body
        (
            following, timestamp_delta, offset_delta, key_start, key_length,
            value_start, value_length, headers_start, header_count, _,
        ) = parse_record(body, self._position, len(body))  # fmt: skip
        offset = _wrap64(self._base_offset + offset_delta)
        if offset < self._start_offset:
            return offset, following, None
        key = _content(body, key_start, key_length, self._read_key)
        value = _content(body, value_start, value_length, self._read_value)
        own_time = _wrap64(self._base_timestamp + timestamp_delta)
        record = ConsumerRecord(
            self._topic,
            self._partition,
            offset,
            own_time if self._append_time is None else self._append_time,
            key,
            value,
            _read_headers(body, headers_start, following, header_count),
            leader_epoch=self._leader_epoch,
            timestamp_type=0 if self._append_time is None else 1,
        )
        return offset, following, record


def _content(body: bytes, start: int, length: int, read: Reader) -> Any:
    if length < 0:
        return None
    content = body[start : start + length]
    return content if read is None else read(content)
