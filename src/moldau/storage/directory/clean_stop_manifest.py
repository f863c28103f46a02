"""The manifest of a clean stop: the sizes of all segments and the checksums of the transaction
indexes, in a side file of our own. Kafka's formats cannot show that a file is missing or was cut
between two batches; the manifest can. The next start trusts it only if no other program has used
the directory since. A directory works without a manifest.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from moldau.protocol.records.checksum import crc32c
from moldau.storage.directory.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from moldau.storage.disk.filesystem import FileSystem, read_whole, write_atomically
from moldau.storage.log.names import (
    LOG_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file_name,
    segment_path,
)
from moldau.types import Offset

MANIFEST_FILE = "moldau-inventory"

_VERSION = 1
# Any other program that uses the directory rewrites one of these: then the manifest is stale.
_WITNESSES = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_FILE)


class SegmentEntry(NamedTuple):
    log_bytes: int
    aborted_checksum: int
    """Checksum of the `.txnindex`."""


LogInventory: TypeAlias = Mapping[Offset, SegmentEntry]
"""The segments of one log: an entry by base offset."""


def take_inventory(filesystem: FileSystem, path: Path) -> LogInventory:
    """The segments in one partition's directory."""
    inventory: dict[Offset, SegmentEntry] = {}
    for listed in filesystem.list_directory(path):
        name = parse_segment_file_name(listed)
        if name is not None and name.kind == LOG_SUFFIX and not name.life:
            aborted = segment_path(path, name.base_offset, TRANSACTION_INDEX_SUFFIX)
            inventory[name.base_offset] = SegmentEntry(
                filesystem.file_size(path / listed), checksum_of(filesystem, aborted)
            )
    return inventory


def checksum_of(filesystem: FileSystem, path: Path) -> int:
    """0 if the file does not exist."""
    return crc32c(read_whole(filesystem, path)) if filesystem.exists(path) else 0


def write_manifest(filesystem: FileSystem, path: Path, names: Iterable[str]) -> None:
    """`names` are the partition directories; all checkpoints must be written before."""
    content = {
        "version": _VERSION,
        "witnesses": _witnesses(filesystem, path),
        "logs": {name: _rows(take_inventory(filesystem, path / name)) for name in names},
    }
    body = json.dumps(content, separators=(",", ":")).encode()
    write_atomically(filesystem, path / MANIFEST_FILE, b"%08x\n" % crc32c(body) + body)


def read_manifest(filesystem: FileSystem, path: Path) -> dict[str, LogInventory]:
    """The inventories by name of the partition directory. Empty if the file is missing or broken,
    or another program has used the directory since it was written.
    """
    needed = (MANIFEST_FILE, RECOVERY_POINT_FILE)
    if not all(filesystem.exists(path / name) for name in needed):
        return {}
    body = manifest_body(read_whole(filesystem, path / MANIFEST_FILE))
    if body is None:
        return {}
    content = json.loads(body)
    if content["version"] != _VERSION or content["witnesses"] != _witnesses(filesystem, path):
        return {}
    return {name: _from_rows(rows) for name, rows in content["logs"].items()}


def manifest_body(content: bytes) -> bytes | None:
    """None if the checksum before the body does not match."""
    checksum, _, body = content.partition(b"\n")
    return body if checksum == b"%08x" % crc32c(body) else None


def drop_manifest(filesystem: FileSystem, path: Path) -> None:
    filesystem.remove(path / MANIFEST_FILE)


def inventory_text(inventory: LogInventory) -> str:
    return json.dumps(_rows(inventory), separators=(",", ":"))


def parse_inventory(text: bytes) -> LogInventory | None:
    """None if the text is damaged."""
    try:
        return _from_rows(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None


def _rows(inventory: LogInventory) -> list[list[int]]:
    return [[base, *entry] for base, entry in sorted(inventory.items())]


def _from_rows(rows: Iterable[Iterable[int]]) -> LogInventory:
    return {Offset(int(base)): SegmentEntry(int(size), int(crc)) for base, size, crc in rows}


def _witnesses(filesystem: FileSystem, path: Path) -> list[int]:
    checksums = [checksum_of(filesystem, path / name) for name in _WITNESSES]
    # Apache Kafka may have removed old segments and then written identical checkpoints.
    return [*checksums, filesystem.modified_ms(path / RECOVERY_POINT_FILE)]
