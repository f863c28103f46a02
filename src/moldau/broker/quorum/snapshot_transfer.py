"""A snapshot of the leader while it arrives piece by piece, in a partial file. The next start
removes what a crash leaves of it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.quorum.metadata_log import MetadataLog
from moldau.broker.quorum.snapshots import SnapshotId
from moldau.core.quorum.events import AppendSnapshot, BeginSnapshot, DropSnapshot
from moldau.core.quorum.positions import LogPosition
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.failures import refused_if_full

if TYPE_CHECKING:
    from moldau.storage.disk.filesystem import File


class SnapshotTransfer:
    """Its steps raise KafkaError if the disk is full; then the transfer is over."""

    def __init__(self, log: MetadataLog) -> None:
        self._log = log
        self._file: File | None = None
        self._snapshot_id: SnapshotId | None = None

    def performing(self, effect: BeginSnapshot | AppendSnapshot | DropSnapshot) -> Steps[None]:
        match effect:
            case BeginSnapshot(snapshot):
                yield from self._slowly(lambda: self._begin(_id_of(snapshot)))
            case AppendSnapshot(_, position, content):
                yield from self._slowly(lambda: self._append(position, content))
            case DropSnapshot():
                yield from self._slowly(self._drop)

    def finishing(self, snapshot: LogPosition) -> Steps[SnapshotId]:
        """The partial file is complete and on the disk."""
        snapshot_id = _id_of(snapshot)
        if snapshot_id != self._snapshot_id:
            detail = "the disk refused a part of the snapshot"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, detail)
        yield from self._slowly(self._finish)
        return snapshot_id

    def close(self) -> None:
        """Leaves the partial file: a stop may be as quick as a crash."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _slowly(self, work: Callable[[], None]) -> Steps[None]:
        with self._log.directory.offline_on_error:
            yield work

    def _begin(self, snapshot_id: SnapshotId) -> None:
        self._drop()
        path = self._log.snapshots.partial_path(snapshot_id)
        with refused_if_full(path):
            self._log.directory.filesystem.remove(path)
            self._file = self._log.directory.filesystem.open(path, create=True)
        self._snapshot_id = snapshot_id

    def _append(self, position: int, content: bytes) -> None:
        assert self._file is not None
        assert position == self._file.size(), (position, self._file.size())
        try:
            with refused_if_full(self._file.path):
                self._file.append([content])
        except BaseException:
            self._drop()
            raise

    def _finish(self) -> None:
        assert self._file is not None
        self._file.sync()
        self.close()

    def _drop(self) -> None:
        if self._snapshot_id is not None:
            self.close()
            path = self._log.snapshots.partial_path(self._snapshot_id)
            self._log.directory.filesystem.remove(path)
            self._snapshot_id = None


def _id_of(snapshot: LogPosition) -> SnapshotId:
    return SnapshotId(snapshot.epoch, snapshot.offset)
