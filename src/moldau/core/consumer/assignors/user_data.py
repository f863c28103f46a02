"""The user data of sticky assignors: a member's former partitions, in Kafka's formats. Unreadable
data counts as empty.
"""

import struct
from collections.abc import Iterable, Sequence

from moldau.core.consumer.assignors.contract import NO_GENERATION
from moldau.types import TopicPartition

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


def write_generation(generation: int) -> bytes:
    return _int32.pack(generation)


def read_generation(content: bytes) -> int:
    return _int32.unpack_from(content)[0] if len(content) >= _int32.size else NO_GENERATION


def write_previous(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    parts = [_int32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += [
            _int16.pack(len(name)),
            name,
            struct.pack(f">i{len(numbers)}i", len(numbers), *numbers),
        ]
    return b"".join(parts) + _int32.pack(generation)


def read_previous(content: bytes) -> tuple[list[TopicPartition], int | None]:
    """Partitions and generation, which the older format does not have."""
    try:
        partitions, position = _read_topics(content)
    except (struct.error, UnicodeDecodeError, ValueError):
        return [], NO_GENERATION
    if len(content) - position < _int32.size:
        return partitions, None
    return partitions, _int32.unpack_from(content, position)[0]


def _read_topics(content: bytes) -> tuple[list[TopicPartition], int]:
    (count,) = _int32.unpack_from(content)
    position = _int32.size
    partitions: list[TopicPartition] = []
    for _ in range(_checked(count, content, position)):
        (length,) = _int16.unpack_from(content, position)
        position += _int16.size
        topic = content[position : position + _checked(length, content, position)].decode()
        position += length
        (numbers,) = _int32.unpack_from(content, position)
        position += _int32.size
        _checked(numbers * _int32.size, content, position)
        read: Sequence[int] = struct.unpack_from(f">{numbers}i", content, position)
        position += numbers * _int32.size
        partitions += [TopicPartition(topic, number) for number in read]
    return partitions, position


def _checked(count: int, content: bytes, position: int) -> int:
    if not 0 <= count <= len(content) - position:
        raise ValueError("the announced size exceeds the data")
    return count
