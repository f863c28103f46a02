"""Offsets in Spark's format: `{"orders": {"0": 23, "1": -2}}`. Those of a running query also
contain topic ids, to detect a topic that was deleted and created again.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from moldau.core.spark.errors import OptionError
from moldau.types import TopicPartition

LATEST = -1
EARLIEST = -2
# Not valid as topic names.
_IDS = "@topicIds"
_BEGAN = "@began"

Offsets = dict[TopicPartition, int]


class QueryOffsets(NamedTuple):
    """A query's position."""

    offsets: Offsets
    topic_ids: dict[str, str]
    """Topic ids as texts, without topics of brokers that have no ids."""
    began: Offsets | None = None
    """In the end of a query's first batch: its start. Spark only stores where a batch ends, and
    requests the start again if the first batch did not finish.
    """


def parse_numbers(text: str, option: str, least: int = EARLIEST) -> Offsets:
    """A number for each partition: an offset, or a time in ms. Raises OptionError."""
    shape = f'{option} must be JSON like {{"topic": {{"0": 23}}}}'
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f"{shape}; at character {error.pos + 1}: {error.msg}") from None
    if not isinstance(document, dict):
        raise OptionError(f"{shape}; it is {text}")
    numbers: Offsets = {}
    for topic, by_partition in document.items():
        if not isinstance(by_partition, dict):
            raise OptionError(f"{shape}; topic '{topic}' has {json.dumps(by_partition)}")
        for partition, number in by_partition.items():
            if not partition.isdecimal():
                raise OptionError(f"{option}: '{partition}' of topic '{topic}' is not a partition")
            if not isinstance(number, int) or isinstance(number, bool) or number < least:
                raise OptionError(
                    f"{option}: {topic}-{partition} has {json.dumps(number)}; it is a whole number "
                    + ("from 0" if least == 0 else "from 0, -1 for latest or -2 for earliest")
                )
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def parse_assignment(text: str) -> frozenset[TopicPartition]:
    """`{"orders": [0, 1]}`. Raises OptionError."""
    shape = 'assign must be JSON like {"topic": [0, 1]}'
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f"{shape}; at character {error.pos + 1}: {error.msg}") from None
    if not isinstance(document, dict) or not document:
        raise OptionError(f"{shape}; it is {text}")
    chosen = set()
    for topic, numbers in document.items():
        if not isinstance(numbers, list) or not numbers or not all(map(_is_number, numbers)):
            raise OptionError(f"{shape}; topic '{topic}' has {json.dumps(numbers)}")
        chosen |= {TopicPartition(topic, number) for number in numbers}
    return frozenset(chosen)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document


def write_query_offsets(position: QueryOffsets) -> dict[str, Any]:
    """The position for a query's checkpoint."""
    document = nested(position.offsets)
    topics = {partition.topic for partition in position.offsets}
    ids = {name: topic_id for name, topic_id in position.topic_ids.items() if name in topics}
    if ids:
        document[_IDS] = dict(sorted(ids.items()))
    if position.began is not None:
        document[_BEGAN] = nested(position.began)
    return document


def read_query_offsets(stored: Mapping[str, Any]) -> QueryOffsets:
    """Also reads positions that Spark's own source stored."""
    began = stored.get(_BEGAN)
    return QueryOffsets(
        _flat({name: numbers for name, numbers in stored.items() if name not in {_IDS, _BEGAN}}),
        dict(stored.get(_IDS, {})),
        None if began is None else _flat(began),
    )


def _flat(by_topic: Mapping[str, Any]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, by_partition in by_topic.items()
        for partition, offset in by_partition.items()
    }


def check_covers(
    option: str, listed: Iterable[TopicPartition], needed: Iterable[TopicPartition]
) -> None:
    """Explicit offsets must name exactly the partitions that are read. Raises OptionError."""
    listed, needed = set(listed), set(needed)
    if missing := sorted(needed - listed):
        raise OptionError(f"{option} does not name {_some(missing)}, which is read")
    if unknown := sorted(listed - needed):
        raise OptionError(f"{option} names {_some(unknown)}, which is not read")


def _some(partitions: list[TopicPartition]) -> str:
    named = ", ".join(map(str, partitions[:3]))
    return named if len(partitions) <= 3 else f"{named} and {len(partitions) - 3} more"
