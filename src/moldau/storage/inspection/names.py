"""Identifies a file by its name alone, using Kafka's naming rules."""

from pathlib import Path

from moldau.frozen import frozen
from moldau.storage.directory.clean_stop_manifest import MANIFEST_FILE
from moldau.storage.disk.filesystem import FileSystem
from moldau.storage.disk.reserve import RESERVE_FILE
from moldau.storage.inspection.items import FileKind
from moldau.storage.log.names import DAMAGE_FILE_NAME
from moldau.types import LeaderEpoch, Offset

# Kafka renames rather than removes: these endings follow the real one.
LEFTOVER_SUFFIXES = {
    ".deleted": "waits for deletion",
    ".swap": "unfinished swap of a compaction",
    ".cleaned": "unfinished compaction",
    ".tmp": "unfinished write",
    ".part": "unfinished download or write",
}
_BY_SUFFIX = {
    ".log": FileKind.LOG,
    ".index": FileKind.OFFSET_INDEX,
    ".timeindex": FileKind.TIME_INDEX,
    ".txnindex": FileKind.TRANSACTION_INDEX,
    ".snapshot": FileKind.PRODUCER_SNAPSHOT,
    ".checkpoint": FileKind.METADATA_SNAPSHOT,
}
_BY_NAME = {
    "leader-epoch-checkpoint": FileKind.LEADER_EPOCHS,
    "partition.metadata": FileKind.PARTITION_METADATA,
    "meta.properties": FileKind.META_PROPERTIES,
    ".kafka_cleanshutdown": FileKind.CLEAN_SHUTDOWN,
    "quorum-state": FileKind.QUORUM_STATE,
    DAMAGE_FILE_NAME: FileKind.DAMAGE_NOTE,
    MANIFEST_FILE: FileKind.INVENTORY,
    ".lock": FileKind.LOCK,
    RESERVE_FILE: FileKind.RESERVE,
}
# The order in which a partition's files are shown, within one base offset.
_SHOWN_ORDER = list(_BY_SUFFIX.values())


@frozen
class FileName:
    kind: FileKind
    # The name without the suffixes that Kafka appended.
    plain: str
    leftover: str = ""
    base_offset: Offset | None = None
    epoch: LeaderEpoch | None = None

    @property
    def leftover_meaning(self) -> str:
        return LEFTOVER_SUFFIXES.get(self.leftover, "")


def parse_file_name(name: str) -> FileName:
    leftover = next((s for s in LEFTOVER_SUFFIXES if name.endswith(s)), "")
    plain = name.removesuffix(leftover)
    if kind := _BY_NAME.get(plain):
        return FileName(kind, plain, leftover)
    if plain.endswith("-offset-checkpoint"):
        return FileName(FileKind.OFFSET_CHECKPOINT, plain, leftover)
    stem, dot, ending = plain.rpartition(".")
    kind = _BY_SUFFIX.get(dot + ending, FileKind.UNKNOWN)
    offset, dash, epoch = stem.partition("-")
    if kind is FileKind.METADATA_SNAPSHOT and (dash or not stem.isdigit()):
        if offset.isdigit() and epoch.isdigit():
            return FileName(kind, plain, leftover, Offset(int(offset)), LeaderEpoch(int(epoch)))
        return FileName(kind, plain, leftover)
    if stem.isascii() and stem.isdigit():
        return FileName(kind, plain, leftover, Offset(int(stem)))
    return FileName(kind, plain, leftover)


def sibling(filesystem: FileSystem, path: Path, suffix: str) -> Path:
    """The file of the same segment with another suffix, in the same leftover state if
    that exists.
    """
    name = parse_file_name(path.name)
    stem = name.plain.rpartition(".")[0]
    same_state = path.with_name(stem + suffix + name.leftover)
    return same_state if filesystem.exists(same_state) else path.with_name(stem + suffix)


def shown_order(name: str) -> tuple[int, int, int, str]:
    """Segments first, by base offset, each with its indexes; then the other files by name."""
    parsed = parse_file_name(name)
    if parsed.kind in _SHOWN_ORDER and parsed.base_offset is not None:
        by_kind = _SHOWN_ORDER.index(parsed.kind)
        if parsed.kind is FileKind.METADATA_SNAPSHOT:
            return (1, parsed.base_offset, by_kind, name)
        return (0, parsed.base_offset, by_kind, name)
    return (2, 0, 0, name)
