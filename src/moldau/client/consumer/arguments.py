"""What a user gives to a consumer, checked: whatever is wrong gets one line that says so."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from moldau.client.errors import ClientError
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.types import OFFSET_MAX, TopicPartition

FOREVER_MS = 2**31

Place = TopicPartition | tuple[str, int]
CommitOffsets = Mapping[Place, OffsetAndMetadata | int] | None
"""An offset alone stands for one without metadata; None: what was handed out."""


def pattern_of(pattern: str | re.Pattern[str] | None) -> re.Pattern[str] | None:
    if pattern is None or isinstance(pattern, re.Pattern):
        return pattern
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ClientError(f"the pattern '{pattern}' is no regular expression: {error}") from None


def topics_of(topics: str | Iterable[Any] | None, pattern: object) -> list[str]:
    if (topics is None) == (pattern is None):
        raise ClientError("subscribe takes either topics or a pattern")
    if topics is None:
        return []
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ClientError("topics are names, and there is at least one; to end, unsubscribe")
    return names


def topic_of(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ClientError(f"{name!r} is no topic's name")
    return name


def place_of(given: Any) -> TopicPartition:
    is_pair = isinstance(given, tuple) and len(given) == 2
    if not is_pair or not isinstance(given[0], str) or not _is_number(given[1]) or given[1] < 0:
        raise ClientError(f"a partition is a topic's name and a number, not {given!r}")
    return TopicPartition(*given)


def places_of(given: Iterable[Any]) -> list[TopicPartition]:
    if not isinstance(given, Iterable):
        raise ClientError(f"partitions are a list of topics' names and numbers, not {given!r}")
    return [place_of(one) for one in given]


def position_of(given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    at = given
    if isinstance(given, int) and not isinstance(given, bool):
        at = OffsetAndMetadata(given)
    if not isinstance(at, OffsetAndMetadata) or not 0 <= at.offset <= OFFSET_MAX:
        raise ClientError(f"{given!r} is no offset; the first one is 0")
    return at


def offsets_of(given: CommitOffsets) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ClientError(f"offsets are a dict of partitions and their offsets, not {given!r}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for one, at in given.items():
        place = place_of(one)
        try:
            found[place] = position_of(at)
        except ClientError:
            raise ClientError(f"{at!r} is no offset to commit for {place}") from None
    return found


def times_of(given: Mapping[Place, int]) -> dict[TopicPartition, int]:
    for time_ms in given.values():
        time_of(time_ms)
    return {place_of(one): time_ms for one, time_ms in given.items()}


def time_of(time_ms: int) -> int:
    if not _is_number(time_ms) or time_ms < 0:
        raise ClientError(f"{time_ms!r} is no time in milliseconds since 1970")
    return time_ms


def count_of(max_records: int | None, usual: int) -> int:
    if max_records is None:
        return usual
    if not _is_number(max_records) or max_records < 1:
        raise ClientError(f"max_records={max_records!r} is no number of records to give")
    return max_records


def wait_ms(timeout: float | None) -> float:
    """None waits as long as it takes."""
    if timeout is None:
        return FOREVER_MS
    if not isinstance(timeout, int | float):
        raise ClientError(f"timeout={timeout!r} is no number of seconds")
    if timeout < 0:
        raise ClientError(f"timeout={timeout} is negative; it is in seconds")
    return timeout * 1000


def _is_number(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)
