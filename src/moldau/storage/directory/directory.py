"""One log directory: its owner, its lock, its state, and the names of its entries.

It is used under a lock, belongs to one node of one cluster, and fails once: the first OSError of
the disk takes it offline for good, because a disk that lost a write cannot be trusted again. Names
of partition directories are built here, from topic names that are validated again.
"""

import contextlib
import enum
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.checkpoints import (
    is_topic_name,
    parse_number,
    read_offsets,
    write_offsets,
)
from moldau.storage.directory.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from moldau.storage.disk.disk_steps import Steps, run_here
from moldau.storage.disk.failures import (
    OUT_OF_DESCRIPTORS,
    READ_ONLY,
    DamageFound,
    DirectoryLockedError,
    DirectoryOfflineError,
    DiskFullError,
    ForeignDirectoryError,
    NoDescriptorError,
    SyncFailedError,
)
from moldau.storage.disk.filesystem import FileSystem, read_whole, write_atomically
from moldau.storage.disk.reserve import Reserve
from moldau.types import INT32_MAX, NO_BROKER_EPOCH, BrokerId, Offset, TopicPartition, Uuid

_log = logging.getLogger(__name__)

LOCK_FILE = ".lock"
CLEAN_STOP_FILE = ".kafka_cleanshutdown"

_NAME_CHARS_MAX = 255
_MARKER_VERSION = 0


class DirectoryKind(enum.Enum):
    """The purpose of a partition directory; the value is the suffix of its name."""

    PARTITION = ""
    DELETED = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


class PartitionDirectory(NamedTuple):
    name: str
    kind: DirectoryKind
    # In a deleted or stray directory, the topic name may be truncated.
    topic_partition: TopicPartition


def parse_directory_name(name: str) -> PartitionDirectory | None:
    """None if it is not the name of a partition directory."""
    kind = DirectoryKind.PARTITION
    partition_name = name
    for candidate in (DirectoryKind.DELETED, DirectoryKind.FUTURE, DirectoryKind.STRAY):
        if name.endswith(candidate.value):
            kind = candidate
            partition_name, dot, unique = name.removesuffix(candidate.value).rpartition(".")
            if not dot or not unique:
                return None
    topic, _, number = partition_name.rpartition("-")
    partition = parse_number(number, INT32_MAX)
    if partition is None or not is_topic_name(topic):
        return None
    return PartitionDirectory(name, kind, TopicPartition(topic, partition))


def directory_name(
    partition: TopicPartition,
    kind: DirectoryKind = DirectoryKind.PARTITION,
    unique_id: Uuid | None = None,
) -> str:
    """Every kind but PARTITION needs a `unique_id`. Names of deleted and stray directories are cut
    to the length that file systems allow. A future directory later gets the partition's own name,
    so a topic name that is too long for it is refused.
    """
    topic, number = partition
    if not is_topic_name(topic) or not 0 <= number <= INT32_MAX:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} partition {number}")
    if kind is DirectoryKind.PARTITION:
        return f"{topic}-{number}"
    assert unique_id is not None
    ending = f"-{number}.{unique_id.hex()}{kind.value}"
    if kind is DirectoryKind.FUTURE and len(topic) + len(ending) > _NAME_CHARS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"the name {topic!r} is too long for a move between log directories",
        )
    return topic[: _NAME_CHARS_MAX - len(ending)] + ending


def format_directory(filesystem: FileSystem, path: Path, meta: MetaProperties) -> None:
    """Create the directory and record its owner. Refuses a directory that has another owner."""
    made = [each for each in (path, *path.parents) if not filesystem.exists(each)]
    filesystem.make_directory(path)
    for each in made or [path]:
        filesystem.sync_directory(each.parent)
    with _locked(filesystem, path):
        meta_path = path / META_PROPERTIES_FILE
        if filesystem.exists(meta_path):
            existing = read_meta_properties(filesystem, meta_path)
            if existing != meta:
                raise ForeignDirectoryError(path, f"is already formatted as {existing}")
            return
        write_meta_properties(filesystem, meta_path, meta)


class RecoveryCounts:
    """Counts of recovery since the directory was opened: logs, bytes scanned, bytes truncated."""

    __slots__ = ("bytes_cut", "bytes_scanned", "logs")

    def __init__(self) -> None:
        self.logs = self.bytes_scanned = self.bytes_cut = 0


def _at_once(call: Callable[[], None]) -> None:
    call()


class LogDirectory:
    """An open, locked log directory. Make one with `LogDirectory.open`."""

    def __init__(
        self,
        filesystem: FileSystem,
        path: Path,
        meta: MetaProperties,
        lock: contextlib.ExitStack,
    ) -> None:
        self.filesystem = filesystem
        self.path = path
        self.meta = meta
        # Use as `with directory.offline_on_error:` around all I/O on its files.
        self.offline_on_error = _OfflineOnError(self, READ_ONLY)
        self.offline_on_read_error = _OfflineOnError(self, frozenset())
        """For code that only reads: a disk that refuses even reads has failed."""
        self.failure: str | None = None
        self.reserve = Reserve(filesystem, path)
        self.recovered = RecoveryCounts()
        self.on_damage: Callable[[DamageFound], None] = lambda _found: None
        """Called when damage is found in a log, and at each start for damage that is still there.
        """
        self.notify: Callable[[Callable[[], None]], None] = _at_once
        """Calls a listener. A node calls them in its event loop."""
        self.do: Callable[[Steps[None]], None] = run_here
        """Runs a change that no caller waits for. A node runs it in a thread."""
        # The broker epoch of the last clean stop (-1 if unknown); None after a crash.
        self.clean_stop_epoch: int | None = None
        self._lock = lock
        self.is_refusing = False
        """The last write was refused: the disk is full or read-only."""
        self._refusal_listener: Callable[[LogDirectory, DiskFullError], None] | None = None
        self._room_listener: Callable[[LogDirectory], None] | None = None
        self._last_refusal: DiskFullError | None = None
        self._refused_bytes = 0
        """The largest write that was refused since the disk became full."""
        self._lacking_count = 0
        self._listeners: list[Callable[[LogDirectory, OSError], None]] = []

    @classmethod
    def open(
        cls,
        filesystem: FileSystem,
        path: Path,
        *,
        cluster_id: str,
        node_id: BrokerId,
        new_directory_id: Uuid | None = None,
    ) -> "LogDirectory":
        """Lock it, check its owner, and remove the clean-stop marker: from now on a crash counts as
        a crash. A directory from before directory ids gets `new_directory_id`.
        """
        meta_path = path / META_PROPERTIES_FILE
        if not filesystem.exists(meta_path):
            raise ForeignDirectoryError(path, f"is not formatted: it has no {META_PROPERTIES_FILE}")
        with contextlib.ExitStack() as lock:
            lock.enter_context(_locked(filesystem, path))
            meta = read_meta_properties(filesystem, meta_path)
            _check_owner(path, meta, cluster_id, node_id)
            if meta.directory_id is None and new_directory_id is not None:
                meta = replace(meta, directory_id=new_directory_id)
                write_meta_properties(filesystem, meta_path, meta)
            directory = cls(filesystem, path, meta, lock.pop_all())
        try:
            with directory.offline_on_error:
                directory.clean_stop_epoch = _take_marker(filesystem, path / CLEAN_STOP_FILE)
        except BaseException:
            directory.close()
            raise
        return directory

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def check_online(self) -> None:
        if self.failure is not None:
            raise DirectoryOfflineError(self.path, self.failure)

    def fail(self, error: OSError) -> None:
        """Takes the directory offline for good. Listeners are called for the first failure only."""
        if self.failure is not None:
            return
        self.failure = str(error)
        for listener in self._listeners:
            self.notify(partial(listener, self, error))

    def report_damage(self, found: DamageFound) -> None:
        self.notify(partial(self.on_damage, found))

    def note_missing_descriptor(self, error: NoDescriptorError) -> None:
        """Logs the error for the operator, but not on every attempt."""
        self._lacking_count += 1
        if self._lacking_count & (self._lacking_count - 1) == 0:
            _log.error("%s (seen %d times)", error.detail, self._lacking_count)

    def on_refusal(
        self,
        refused: "Callable[[LogDirectory, DiskFullError], None]",
        taken: "Callable[[LogDirectory], None]",
    ) -> None:
        """`refused` is called for each refused write, `taken` for the first write that succeeds
        again.
        """
        self._refusal_listener, self._room_listener = refused, taken

    def write_refused(self, error: DiskFullError) -> None:
        """Called by nested context managers; the same refusal is reported only once."""
        is_known, self._last_refusal = error is self._last_refusal, error
        self.is_refusing = True
        if self._refusal_listener is not None and not is_known:
            self.notify(partial(self._refusal_listener, self, error))

    def note_refused_size(self, size_bytes: int) -> None:
        """Records that a write of this size was refused."""
        self._refused_bytes = max(self._refused_bytes, size_bytes)

    def write_succeeded(self, size_bytes: int) -> None:
        """Small writes may still fit where larger ones did not."""
        if size_bytes < self._refused_bytes and not self._has_room():
            return
        self.is_refusing = False
        self._refused_bytes = 0
        self._last_refusal = None
        if self._room_listener is not None:
            self.notify(partial(self._room_listener, self))

    def _has_room(self) -> bool:
        try:
            return self.filesystem.free_bytes(self.path) >= 2 * self._refused_bytes
        except OSError:
            return False

    def on_failure(self, listener: Callable[["LogDirectory", OSError], None]) -> None:
        """`listener` is called once, when the directory fails."""
        self._listeners.append(listener)

    def path_of(
        self,
        partition: TopicPartition,
        kind: DirectoryKind = DirectoryKind.PARTITION,
        unique_id: Uuid | None = None,
    ) -> Path:
        return self.path / directory_name(partition, kind, unique_id)

    def list_partitions(self) -> tuple[list[PartitionDirectory], list[str]]:
        """The partition directories, and the names of all other directories."""
        found: list[PartitionDirectory] = []
        unknown: list[str] = []
        with self.offline_on_error:
            for name in self.filesystem.list_directory(self.path):
                if not self.filesystem.is_directory(self.path / name):
                    continue
                parsed = parse_directory_name(name)
                if parsed is None:
                    unknown.append(name)
                else:
                    found.append(parsed)
        return found, unknown

    def read_checkpoint(self, file_name: str) -> dict[TopicPartition, Offset]:
        """Raises CorruptCheckpointError if the file is broken: the caller must do without it."""
        with self.offline_on_error:
            return read_offsets(self.filesystem, self.path / file_name)

    def writing_checkpoint(
        self, file_name: str, offsets: Mapping[TopicPartition, Offset]
    ) -> Steps[None]:
        with self.offline_on_error:
            path, copied = self.path / file_name, dict(offsets)
            yield lambda: write_offsets(self.filesystem, path, copied)

    def mark_clean_stop(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Must be the last write: everything else is on the disk already."""
        content = f'{{"version":{_MARKER_VERSION},"brokerEpoch":{broker_epoch}}}'
        with self.offline_on_error:
            write_atomically(self.filesystem, self.path / CLEAN_STOP_FILE, content.encode("ascii"))

    def close(self) -> None:
        """Release the lock. Without a preceding `mark_clean_stop`, the next start runs a
        recovery.
        """
        self._lock.close()


class _OfflineOnError:
    """Takes the directory offline on an OSError: the only code that does."""

    __slots__ = ("_directory", "_refusals")

    def __init__(self, directory: LogDirectory, refusals: frozenset[int]) -> None:
        self._directory = directory
        self._refusals = refusals
        """Error numbers with which the disk refuses a write and stays healthy."""

    def __enter__(self) -> None:
        if self._directory.failure is not None:
            self._directory.check_online()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        if isinstance(error, OSError):
            if error.errno in OUT_OF_DESCRIPTORS and not isinstance(error, SyncFailedError):
                lacking = NoDescriptorError(self._directory.path, error)
                self._directory.note_missing_descriptor(lacking)
                raise lacking from error
            if error.errno in self._refusals and not isinstance(error, SyncFailedError):
                refusal = DiskFullError(self._directory.path, str(error))
                self._directory.write_refused(refusal)
                raise refusal from error
            self._directory.fail(error)
            raise DirectoryOfflineError(self._directory.path, str(error)) from error
        if isinstance(error, NoDescriptorError):
            self._directory.note_missing_descriptor(error)
        elif isinstance(error, DiskFullError):
            self._directory.write_refused(error)


@contextlib.contextmanager
def _locked(filesystem: FileSystem, path: Path) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(filesystem.lock(path / LOCK_FILE))
        except BlockingIOError:
            raise DirectoryLockedError(path) from None
        yield


def _check_owner(path: Path, meta: MetaProperties, cluster_id: str, node_id: BrokerId) -> None:
    if meta.cluster_id not in {cluster_id, None}:
        raise ForeignDirectoryError(
            path, f"belongs to cluster {meta.cluster_id}, this node to cluster {cluster_id}"
        )
    if meta.node_id not in {node_id, None}:
        raise ForeignDirectoryError(path, f"belongs to node {meta.node_id}, this is node {node_id}")


def _take_marker(filesystem: FileSystem, path: Path) -> int | None:
    if not filesystem.exists(path):
        return None
    epoch = _broker_epoch(read_whole(filesystem, path))
    filesystem.remove(path)
    # Synced, so that a crash cannot bring the marker back: it would hide that recovery is needed.
    filesystem.sync_directory(path.parent)
    return epoch


def _broker_epoch(content: bytes) -> int | None:
    """None if the marker is broken: then the stop counts as a crash."""
    try:
        marker = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(marker, dict):
        return None
    epoch = marker.get("brokerEpoch")
    if type(marker.get("version")) is not int or type(epoch) is not int:
        return None
    return epoch
