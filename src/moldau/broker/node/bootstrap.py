"""`bootstrap.checkpoint`: the records that a new cluster's metadata log begins with. Formatting
writes it into every log directory; the first controller reads it once.
"""

from collections.abc import Sequence
from pathlib import Path

from moldau.core.metadata.image import METADATA_VERSION
from moldau.core.metadata.levels import LATEST_RELEASED_LEVEL, level_after
from moldau.core.metadata.snapshot_file import (
    DamagedSnapshotError,
    SnapshotHead,
    decode_snapshot,
    encode_snapshot,
)
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.log_records import FeatureLevelRecord
from moldau.protocol.wire.schema import Message
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.filesystem import FileSystem, read_whole, write_atomically
from moldau.types import FIRST_EPOCH

BOOTSTRAP_FILE = "bootstrap.checkpoint"


class BootstrapError(MoldauError):
    """The file is damaged or lacks a metadata version: format again."""


def write_bootstrap_records(
    filesystem: FileSystem, directory: Path, records: Sequence[Message], now_ms: int
) -> None:
    content = b"".join(
        encode_snapshot(SnapshotHead(epoch=FIRST_EPOCH, timestamp_ms=0), records, now_ms=now_ms)
    )
    write_atomically(filesystem, directory / BOOTSTRAP_FILE, content)


def read_bootstrap_records(directory: LogDirectory) -> list[Message]:
    """Returns records with the newest level if there is no file, as in a directory from an early
    release.
    """
    path = directory.path / BOOTSTRAP_FILE
    with directory.offline_on_error:
        if not directory.filesystem.exists(path):
            return [FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_RELEASED_LEVEL)]
        content = read_whole(directory.filesystem, path)
    try:
        records = decode_snapshot(content).records
    except (DamagedSnapshotError, KafkaError) as error:
        raise BootstrapError(f"{path} cannot be used: {error}") from error
    if level_after(records, None) is None:
        raise BootstrapError(f"{path} does not set {METADATA_VERSION}")
    return records
