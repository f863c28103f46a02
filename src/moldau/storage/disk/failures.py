"""Errors of files on a disk. Every error names the path and gives a one-line reason. A damaged
cache (index, checkpoint) is rebuilt where the error is caught, never trusted.
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import Offset, TopicPartition

DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
# The file system keeps its content but accepts no more, or no descriptor is free.
WRITES_REFUSED = DISK_IS_FULL | READ_ONLY | OUT_OF_DESCRIPTORS

_EXCERPT_CHARS = 60


class DamagedFileError(MoldauError):
    """A file's content breaks its own format."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class DamageFound(NamedTuple):
    """The report of damage to the owner of a directory."""

    topic_partition: TopicPartition
    path: Path
    first_offset: Offset
    next_offset: Offset
    reason: str
    is_offline: bool
    """The whole partition is unusable, rather than these offsets only."""


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
    """The disk is full or became read-only. The operation did not happen. The directory stays
    online: records can be read, and appends work again as soon as the disk accepts writes.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be written: {reason}")
        self.path = path
        self.reason = reason


class NoDescriptorError(DiskFullError):
    """The process or the machine has too many open files. The disk and its content are fine: the
    operation can be retried.
    """

    def __init__(self, path: Path, error: OSError) -> None:
        limit = "this process may have (ulimit -n)"
        if error.errno == errno.ENFILE:
            limit = "this machine may have (sysctl fs.file-max)"
        super().__init__(path, f"{error.strerror}; raise the number that {limit}")


class SyncFailedError(OSError):
    """A sync failed. Whatever the cause, the data that it covered may be lost."""


def refusal(path: Path, error: OSError) -> DiskFullError:
    if error.errno in OUT_OF_DESCRIPTORS:
        return NoDescriptorError(path, error)
    return DiskFullError(path, str(error.strerror))


@contextlib.contextmanager
def refused_if_full(path: Path) -> Iterator[None]:
    """For writes that leave nothing behind when they fail. Never use it around a sync: after any
    failed sync, the data it covered may be lost.
    """
    try:
        yield
    except OSError as error:
        if error.errno in WRITES_REFUSED:
            raise refusal(path, error) from error
        raise


class DirectoryLockedError(MoldauError):
    """Another node, in this process or another one, holds the lock of the directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is locked by another node; stop that node or choose another directory"
        )
        self.path = path


class ForeignDirectoryError(MoldauError):
    """The directory belongs to another cluster or node, or was never formatted."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def excerpt(content: str | bytes) -> str:
    """Part of a broken file's content for an error text: quoted, one line, short."""
    shown = repr(content[:_EXCERPT_CHARS])
    return f"{shown}..." if len(content) > _EXCERPT_CHARS else shown
