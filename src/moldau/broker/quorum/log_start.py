"""The start of the metadata log: the newest snapshot that can be read."""

import logging
from typing import NamedTuple

from moldau.broker.quorum.fetched_records import quorum_changes
from moldau.broker.quorum.snapshots import SnapshotId, SnapshotStore
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.core.metadata.replay_errors import MetadataReplayError
from moldau.core.metadata.snapshot_file import Snapshot
from moldau.core.quorum.history import Changes, QuorumChange
from moldau.protocol.errors import MoldauError
from moldau.protocol.records.batches import RecordBatch
from moldau.storage.log.log import Log
from moldau.storage.log.read import Isolation
from moldau.types import FIRST_OFFSET, LeaderEpoch, Offset

_log = logging.getLogger(__name__)


class MetadataLogError(MoldauError):
    """The metadata log cannot be used as it is. Continuing without it would lose metadata."""


class LoadedSnapshot(NamedTuple):
    """The state that the log continues from; empty if the log is complete."""

    image: MetadataImage
    changes: Changes
    """Its changes of the quorum."""


def check_undamaged(log: Log) -> None:
    if log.damage is not None:
        raise MetadataLogError(
            f"{log.path} is damaged: offsets {log.damage.first_offset} to "
            f"{log.damage.promised_end} were committed and cannot be read: {log.damage.reason}"
        )
    if log.damaged:
        segment, damaged = log.damaged[0]
        raise MetadataLogError(
            f"{segment.path()} is damaged: offsets {damaged.first_offset} to "
            f"{damaged.next_offset - 1} were committed and cannot be read: {damaged}"
        )


def read_start(log: Log, snapshots: SnapshotStore) -> LoadedSnapshot:
    """Raises MetadataLogError or MissingSnapshotError if committed data cannot be read."""
    snapshots.load(log.log_start_offset)
    found = snapshots.read_newest(log.log_start_offset, log.log_end_offset)
    if found is None:
        return LoadedSnapshot(EMPTY_IMAGE, ())
    try:
        return loaded(*found)
    except MetadataReplayError as error:
        raise MetadataLogError(f"{log.path / found[0].file_name}: {error}") from error


def loaded(snapshot_id: SnapshotId, snapshot: Snapshot) -> LoadedSnapshot:
    """Raises MetadataReplayError."""
    delta = MetadataDelta()
    for record in snapshot.records:
        delta.replay(record)
    last_offset, epoch = Offset(snapshot_id.offset - 1), LeaderEpoch(snapshot_id.epoch)
    image = delta.finish(last_offset, epoch, snapshot.head.timestamp_ms)
    at_end = [
        QuorumChange(image.offset, value)
        for _, value in quorum_changes(snapshot.head.control_values, FIRST_OFFSET)
    ]
    return LoadedSnapshot(image, tuple(at_end))


def continues(log: Log, image: MetadataImage) -> bool:
    """Whether the log's next records after the image's offset belong to it. They do not if the node
    stopped between fetching a snapshot and starting its log over.
    """
    if image.offset < log.log_start_offset:
        return image.offset + 1 >= log.log_start_offset
    if image.offset >= log.log_end_offset:
        return False
    last = log.read(image.offset, 1, isolation=Isolation.LOG_END)
    return RecordBatch(last.records).partition_leader_epoch == image.epoch
