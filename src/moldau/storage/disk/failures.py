"""What can be wrong with what lies on a disk. Every error names the path and gives one line of
reason; a damaged cache (index, checkpoint) is rebuilt by whoever catches it, never trusted.
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import TopicPartition

DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
# The file system keeps what it has and takes nothing more, or we can not even ask it.
WRITES_REFUSED = DISK_IS_FULL | READ_ONLY | OUT_OF_DESCRIPTORS

_EXCERPT_CHARS = 60


class DamagedFileError(MoldauError):
    """A file's content breaks its own format."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class DamageFound(NamedTuple):
    """What the owner of a directory hears."""

    topic_partition: TopicPartition
    path: Path
    first_offset: int
    next_offset: int
    reason: str
    is_offline: bool
    """Nothing of the partition can be used, rather than all but these offsets."""


class CorruptCheckpointError(DamagedFileError):
    """A small text file (checkpoint, epochs, partition.metadata, meta.properties) is broken."""


class CorruptIndexError(DamagedFileError):
    """An index is broken: reset it and rebuild it from the log."""


class InvalidIndexEntryError(MoldauError):
    """The entry does not fit the index: full, out of order, or too far from the base offset."""


class DirectoryOfflineError(KafkaError):
    """The log directory failed earlier and stays offline until the node restarts."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline: {reason}")
        self.path = path
        self.reason = reason


class DiskFullError(KafkaError):
    """There is no room, or the disk became read-only. What was asked for did not happen, and the
    directory stays online: records can be read, and once it takes writes again all goes on.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be written: {reason}")
        self.path = path
        self.reason = reason


class NoDescriptorError(DiskFullError):
    """The process or the machine has too many open files. The disk is fine, and so is all that is
    on it: what was asked for can be asked for again.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        limit = "this process may have (ulimit -n)"
        if error.errno == errno.ENFILE:
            limit = "this machine may have (sysctl fs.file-max)"
        super().__init__(path, f"{error.strerror}; raise how many {limit}")


class SyncFailedError(OSError):
    """Whatever the reason, what should have been synced may be lost."""


def refusal(path: Path, error: OSError) -> DiskFullError:
    if error.errno in OUT_OF_DESCRIPTORS:
        return NoDescriptorError(path, error)
    return DiskFullError(path, str(error.strerror))


@contextlib.contextmanager
def refused_if_full(path: Path) -> Iterator[None]:
    """Around writes that leave nothing behind when they fail. Never around a sync: whatever the
    reason, what it should have written may be lost.
    """
    try:
        yield
    except OSError as error:
        if error.errno in WRITES_REFUSED:
            raise refusal(path, error) from error
        raise


class DirectoryLockedError(MoldauError):
    """Another node, of this process or another, holds the directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is locked by another node; stop that one or give this one another directory"
        )
        self.path = path


class ForeignDirectoryError(MoldauError):
    """The directory belongs to another cluster or node, or was never formatted."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def excerpt(content: str | bytes) -> str:
    """Content of a broken file for an error text: quoted, one line, short."""
    shown = repr(content[:_EXCERPT_CHARS])
    return f"{shown}..." if len(content) > _EXCERPT_CHARS else shown
