"""Inspects the small files: producer snapshots, checkpoints, properties, markers. They are read by
the log's own readers; a broken file is a problem with a note on how the next start handles it.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from moldau.protocol.errors import MoldauError
from moldau.storage.directory.checkpoints import read_offsets
from moldau.storage.directory.clean_stop_manifest import manifest_body
from moldau.storage.directory.meta_properties import read_meta_properties
from moldau.storage.directory.partition_metadata import read_topic_id
from moldau.storage.disk.failures import DamagedFileError, excerpt
from moldau.storage.disk.filesystem import read_whole
from moldau.storage.inspection.items import (
    REBUILD_ALL,
    CheckpointOffsetFound,
    EpochFound,
    FileKind,
    Item,
    Problem,
    ProducerFound,
    PropertyFound,
    Remark,
)
from moldau.storage.inspection.names import FileName, parse_file_name
from moldau.storage.inspection.options import InspectionOptions
from moldau.storage.log.epochs import LeaderEpochCache
from moldau.storage.producers.snapshots import CorruptSnapshotError, decode_snapshot
from moldau.types import uuid_text

# A checkpoint of a million partitions has about 64 MB.
_BYTES_MAX = 256 * 1024 * 1024

Reader = Callable[[Path, InspectionOptions], Iterator[Item]]


def inspect_small_file(path: Path, name: FileName, options: InspectionOptions) -> Iterator[Item]:
    reader, remedy = _READERS[name.kind]
    file = options.filesystem.open(path)
    size_bytes = file.size()
    file.close()
    if size_bytes > _BYTES_MAX:
        yield Problem(
            path,
            None,
            f"too large for this kind of file ({name.kind.value}): {size_bytes} bytes",
            remedy,
        )
        return
    try:
        yield from reader(path, options)
    except DamagedFileError as error:
        yield Problem(path, None, error.reason, remedy)
    except (MoldauError, ValueError) as error:
        yield Problem(path, None, str(error), remedy)


def _producers(path: Path, options: InspectionOptions) -> Iterator[Item]:
    content = read_whole(options.filesystem, path)
    end_offset = parse_file_name(path.name).base_offset
    for entry in decode_snapshot(content):
        last = entry.batches[-1] if entry.batches else None
        first_offset = entry.transaction_first_offset
        yield ProducerFound(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            coordinator_epoch=entry.coordinator_epoch,
            current_transaction_first_offset=first_offset if first_offset >= 0 else None,
            last_timestamp=entry.last_timestamp_ms,
            first_sequence=last.first_sequence if last else -1,
            last_sequence=entry.last_sequence,
            last_offset=entry.last_data_offset,
            offset_delta=entry.last_offset_delta,
        )
        if end_offset is not None and max(entry.last_data_offset, first_offset) >= end_offset:
            raise CorruptSnapshotError(
                f"producer {entry.producer_id} has offsets up to "
                f"{max(entry.last_data_offset, first_offset)} in a snapshot of the log before "
                f"{end_offset}"
            )


def _epochs(path: Path, options: InspectionOptions) -> Iterator[Item]:
    for entry in LeaderEpochCache(options.filesystem, path).entries:
        yield EpochFound(entry.epoch, entry.start_offset)


def _offsets(path: Path, options: InspectionOptions) -> Iterator[Item]:
    for partition, offset in sorted(read_offsets(options.filesystem, path).items()):
        yield CheckpointOffsetFound(partition.topic, partition.partition, offset)


def _partition_metadata(path: Path, options: InspectionOptions) -> Iterator[Item]:
    topic_id = read_topic_id(options.filesystem, path)
    if topic_id is not None:
        yield PropertyFound("topic_id", uuid_text(topic_id))


def _meta_properties(path: Path, options: InspectionOptions) -> Iterator[Item]:
    meta = read_meta_properties(options.filesystem, path)
    yield PropertyFound("version", meta.version)
    if meta.cluster_id is not None:
        yield PropertyFound("cluster.id", meta.cluster_id)
    if meta.node_id is not None:
        yield PropertyFound("node.id", meta.node_id)
    if meta.directory_id is not None:
        yield PropertyFound("directory.id", uuid_text(meta.directory_id))


def _clean_shutdown(path: Path, options: InspectionOptions) -> Iterator[Item]:
    content = read_whole(options.filesystem, path)
    if not content:
        # Kafka before 3.6 wrote an empty marker.
        yield Remark(path, None, "an empty marker, as Kafka wrote before broker epochs")
        return
    yield from _json_object(content, required=("version", "brokerEpoch"))


def _quorum_state(path: Path, options: InspectionOptions) -> Iterator[Item]:
    content = read_whole(options.filesystem, path)
    yield from _json_object(
        content, required=("leaderId", "leaderEpoch", "votedId", "data_version")
    )


def _damage_note(path: Path, options: InspectionOptions) -> Iterator[Item]:
    reason, _, _ = read_whole(options.filesystem, path).partition(b"\n")
    note = excerpt(reason.decode("utf-8", "replace"))
    raise DamagedFileError(path, f"a broker found damage in this log: {note}")
    yield


def _inventory(path: Path, options: InspectionOptions) -> Iterator[Item]:
    body = manifest_body(read_whole(options.filesystem, path))
    if body is None:
        raise ValueError("the checksum does not match")
    yield from _json_object(body, required=("version",))


def _json_object(content: bytes, *, required: tuple[str, ...]) -> Iterator[Item]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - content, not a caller's mistake
    missing = [key for key in required if type(fields.get(key)) is not int]
    if missing:
        raise ValueError(f"no number in {', '.join(missing)}")
    for key, content_of_key in fields.items():
        is_plain = isinstance(content_of_key, int | str)
        yield PropertyFound(key, content_of_key if is_plain else json.dumps(content_of_key))


_READERS: dict[FileKind, tuple[Reader, str]] = {
    FileKind.PRODUCER_SNAPSHOT: (
        _producers,
        "delete it; producer state is then rebuilt from an older snapshot and the log",
    ),
    FileKind.LEADER_EPOCHS: (_epochs, REBUILD_ALL),
    FileKind.OFFSET_CHECKPOINT: (
        _offsets,
        "delete it; without it a start falls back to the log's own limits and takes longer",
    ),
    FileKind.PARTITION_METADATA: (
        _partition_metadata,
        "delete it; the broker writes it again when it knows the topic's id",
    ),
    FileKind.META_PROPERTIES: (
        _meta_properties,
        "restore it (cluster.id, node.id, directory.id) before the next start",
    ),
    FileKind.CLEAN_SHUTDOWN: (_clean_shutdown, "delete it; the next start then runs a recovery"),
    FileKind.DAMAGE_NOTE: (
        _damage_note,
        "the next start checks every batch; copy the partition again from a replica",
    ),
    FileKind.INVENTORY: (_inventory, "delete it; the next start does without it"),
    FileKind.QUORUM_STATE: (
        _quorum_state,
        "remove this voter and add it again: without its last vote it could vote twice",
    ),
}
