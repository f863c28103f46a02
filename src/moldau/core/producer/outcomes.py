"""The outcome of a batch, and so of each of its records: written or failed."""

from collections.abc import Mapping
from typing import NamedTuple

from moldau.core.producer.batching import Batch
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import NO_OFFSET


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    """-1 if the broker did not report it: with acks=0, or after a repeated request."""
    timestamp: int
    """In milliseconds since 1970: of the record, or with LogAppendTime of its writing."""


class Written:
    __slots__ = ("append_time_ms", "base_offset")

    def __init__(self, base_offset: int, append_time_ms: int = -1) -> None:
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms

    def error_of(self, index: int) -> None:  # noqa: ARG002 - Failed uses it
        return None

    def metadata(self, batch: Batch, index: int, timestamp: int) -> RecordMetadata:
        offset = NO_OFFSET if self.base_offset < 0 else self.base_offset + index
        time_ms = timestamp if self.append_time_ms < 0 else self.append_time_ms
        return RecordMetadata(batch.topic, batch.partition, offset, time_ms)


class Failed:
    """`details`: errors of single records; the others of the batch failed with them (KIP-467)."""

    __slots__ = ("details", "error")

    def __init__(self, error: Exception, details: Mapping[int, str] | None = None) -> None:
        self.error = error
        self.details = details or {}

    def error_of(self, index: int) -> Exception:
        if not self.details:
            return self.error
        if index in self.details:
            return KafkaError(ErrorCode.INVALID_RECORD, self.details[index])
        return KafkaError(
            ErrorCode.INVALID_RECORD, "refused because another record of its batch was"
        )

    def metadata(self, batch: Batch, index: int, timestamp: int) -> RecordMetadata:  # noqa: ARG002
        raise self.error_of(index)


def is_done(batch: Batch) -> bool:
    """Whether the batch, or all of its parts, have an outcome."""
    if batch.parts is not None:
        return all(map(is_done, batch.parts))
    return batch.outcome is not None
