"""Kafka's checkpoint files: a version line, a count line, one entry per line. They are replaced
atomically. A file that breaks its format raises CorruptCheckpointError.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from moldau.storage.disk.failures import CorruptCheckpointError, excerpt
from moldau.storage.disk.filesystem import FileSystem, read_whole, write_atomically
from moldau.types import INT32_MAX, INT64_MAX, Offset, TopicPartition

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"

_VERSION = 0
_HEADER_LINES = 2
_OFFSET_FIELDS = 3
_NUMBER = re.compile("0|[1-9][0-9]{0,18}")
_TOPIC_NAME = re.compile("[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Kafka's rule; a name that passes is also safe as part of a path."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in {".", ".."}


def parse_number(text: str, maximum: int = INT64_MAX) -> int | None:
    """A decimal number as a program writes it: no sign, no leading zero. None for any
    other text.
    """
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if number <= maximum else None


def read_lines(filesystem: FileSystem, path: Path) -> list[str]:
    """The entries. A missing or empty file has none: Kafka creates the file before it fills it."""
    if not filesystem.exists(path):
        return []
    content = read_whole(filesystem, path)
    if not content:
        return []
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptCheckpointError(path, f"not text: {excerpt(content)}") from None
    if not text.endswith("\n"):
        # The last number may be incomplete.
        raise CorruptCheckpointError(path, "the last line is cut off")
    lines = text[:-1].split("\n")
    if parse_number(lines[0]) != _VERSION:
        raise CorruptCheckpointError(path, f"unknown version {excerpt(lines[0])}")
    if len(lines) < _HEADER_LINES:
        raise CorruptCheckpointError(path, "the count is missing")
    entries = lines[_HEADER_LINES:]
    if parse_number(lines[1], INT32_MAX) != len(entries):
        raise CorruptCheckpointError(
            path, f"{len(entries)} entries where {excerpt(lines[1])} were announced"
        )
    return entries


def write_lines(filesystem: FileSystem, path: Path, entries: Sequence[str]) -> None:
    lines = [str(_VERSION), str(len(entries)), *entries, ""]
    write_atomically(filesystem, path, "\n".join(lines).encode("utf-8"))


def read_offsets(filesystem: FileSystem, path: Path) -> dict[TopicPartition, Offset]:
    """An offset checkpoint: recovery points, log starts, high watermarks or cleaned offsets."""
    offsets: dict[TopicPartition, Offset] = {}
    for line in read_lines(filesystem, path):
        fields = line.split(" ")
        if len(fields) != _OFFSET_FIELDS:
            raise CorruptCheckpointError(path, f"not an entry: {excerpt(line)}")
        partition, offset = parse_number(fields[1], INT32_MAX), parse_number(fields[2])
        if not is_topic_name(fields[0]) or partition is None or offset is None:
            raise CorruptCheckpointError(path, f"not an entry: {excerpt(line)}")
        name = TopicPartition(fields[0], partition)
        if name in offsets:
            raise CorruptCheckpointError(path, f"{name} appears twice")
        offsets[name] = Offset(offset)
    return offsets


def write_offsets(
    filesystem: FileSystem, path: Path, offsets: Mapping[TopicPartition, Offset]
) -> None:
    entries = [f"{name.topic} {name.partition} {offset}" for name, offset in offsets.items()]
    write_lines(filesystem, path, entries)
