"""Checks the arguments of a consumer's methods. A wrong one raises ClientError, with one line that
says what to write instead.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from moldau.client.errors import ClientError
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.types import OFFSET_MAX, TopicPartition

FOREVER_MS = 2**31

AnyPartition = TopicPartition | tuple[str, int]
CommitOffsets = Mapping[AnyPartition, OffsetAndMetadata | int] | None
"""An int is an offset without metadata; None stands for the positions of the consumer."""


def pattern_of(pattern: str | re.Pattern[str] | None) -> re.Pattern[str] | None:
    if pattern is None or isinstance(pattern, re.Pattern):
        return pattern
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ClientError(f"the pattern '{pattern}' is not a regular expression: {error}") from None


def topics_of(topics: str | Iterable[Any] | None, pattern: object) -> list[str]:
    if (topics is None) == (pattern is None):
        raise ClientError("subscribe takes either topics or a pattern")
    if topics is None:
        return []
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ClientError("subscribe() needs at least one topic name; use unsubscribe() to stop")
    return names


def topic_of(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ClientError(f"{name!r} is not a topic name")
    return name


def partition_of(value: Any) -> TopicPartition:
    is_pair = isinstance(value, tuple) and len(value) == 2
    if not is_pair or not isinstance(value[0], str) or not _is_number(value[1]) or value[1] < 0:
        raise ClientError(f"expected a partition, (topic, number), got {value!r}")
    return TopicPartition(*value)


def partitions_of(value: Iterable[Any]) -> list[TopicPartition]:
    if not isinstance(value, Iterable):
        raise ClientError(f"expected a list of partitions, (topic, number), got {value!r}")
    return [partition_of(item) for item in value]


def position_of(value: int | OffsetAndMetadata) -> OffsetAndMetadata:
    at = value
    if isinstance(value, int) and not isinstance(value, bool):
        at = OffsetAndMetadata(value)
    if not isinstance(at, OffsetAndMetadata) or not 0 <= at.offset <= OFFSET_MAX:
        raise ClientError(f"{value!r} is not an offset; the first one is 0")
    return at


def offsets_of(value: CommitOffsets) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise ClientError(f"expected a dict of partitions and offsets, got {value!r}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, at in value.items():
        partition = partition_of(key)
        try:
            found[partition] = position_of(at)
        except ClientError:
            raise ClientError(f"{at!r} is not an offset to commit for {partition}") from None
    return found


def times_of(value: Mapping[AnyPartition, int]) -> dict[TopicPartition, int]:
    for time_ms in value.values():
        time_of(time_ms)
    return {partition_of(key): time_ms for key, time_ms in value.items()}


def time_of(time_ms: int) -> int:
    if not _is_number(time_ms) or time_ms < 0:
        raise ClientError(f"{time_ms!r} is not a time in milliseconds since 1970")
    return time_ms


def count_of(max_records: int | None, default: int) -> int:
    if max_records is None:
        return default
    if not _is_number(max_records) or max_records < 1:
        raise ClientError(f"max_records={max_records!r} is not a number of records; give 1 or more")
    return max_records


def wait_ms(timeout: float | None) -> float:
    """Converts seconds to milliseconds; None waits without a limit."""
    if timeout is None:
        return FOREVER_MS
    if not isinstance(timeout, int | float):
        raise ClientError(f"timeout={timeout!r} is not a number of seconds")
    if timeout < 0:
        raise ClientError(f"timeout={timeout} is negative; it is in seconds")
    return timeout * 1000


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
