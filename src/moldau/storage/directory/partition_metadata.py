"""`partition.metadata`: the id of the topic that a partition directory belongs to. Written once,
before the first record. A directory whose id differs from the cluster's belongs to another topic.
"""

from pathlib import Path

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.checkpoints import parse_number
from moldau.storage.disk.failures import CorruptCheckpointError, excerpt, refused_if_full
from moldau.storage.disk.filesystem import FileSystem, read_whole, write_atomically
from moldau.types import INT32_MAX, ZERO_UUID, Uuid, parse_uuid, uuid_text

PARTITION_METADATA_FILE = "partition.metadata"

_VERSION_PREFIX = "version: "
_TOPIC_ID_PREFIX = "topic_id: "


def read_topic_id(filesystem: FileSystem, path: Path) -> Uuid | None:
    """None if the file does not exist."""
    if not filesystem.exists(path):
        return None
    content = read_whole(filesystem, path)
    try:
        version_line, topic_id_line, *rest = content.decode("ascii").split("\n")
    except ValueError:
        raise CorruptCheckpointError(
            path, f"not a version and a topic id: {excerpt(content)}"
        ) from None
    # Later versions keep these two lines, and Kafka reads them too.
    version = parse_number(version_line.removeprefix(_VERSION_PREFIX), INT32_MAX)
    if not version_line.startswith(_VERSION_PREFIX) or version is None:
        raise CorruptCheckpointError(path, f"not a version: {excerpt(version_line)}")
    if not topic_id_line.startswith(_TOPIC_ID_PREFIX) or (version == 0 and any(rest)):
        raise CorruptCheckpointError(path, f"not one topic id: {excerpt(content)}")
    try:
        topic_id = parse_uuid(topic_id_line.removeprefix(_TOPIC_ID_PREFIX))
    except ValueError as error:
        raise CorruptCheckpointError(path, str(error)) from None
    if topic_id == ZERO_UUID:
        raise CorruptCheckpointError(path, "the topic id is zero")
    return topic_id


def check_owner(filesystem: FileSystem, directory: Path, topic_id: Uuid | None) -> None:
    """On a volume that ignores case, as on macOS, two topics may map to one directory. Raises
    KAFKA_STORAGE_ERROR then, so that the records of the first stay.
    """
    try:
        owner = read_topic_id(filesystem, directory / PARTITION_METADATA_FILE)
    except CorruptCheckpointError as error:
        reason = str(error)
    else:
        if owner is None or topic_id in {owner, None}:
            return
        reason = f"it belongs to topic id {uuid_text(owner)}, whose name may differ in case only"
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} already exists: {reason}")


def write_topic_id(filesystem: FileSystem, path: Path, topic_id: Uuid) -> None:
    write_atomically(filesystem, path, _text(topic_id))


def write_topic_id_unsynced(filesystem: FileSystem, path: Path, topic_id: Uuid) -> None:
    """For a directory that is not in use yet; the caller syncs it before its first use."""
    filesystem.remove(path)
    with refused_if_full(path):
        file = filesystem.open(path, create=True)
        try:
            file.append([_text(topic_id)])
        finally:
            file.close()


def _text(topic_id: Uuid) -> bytes:
    assert topic_id != ZERO_UUID
    return f"{_VERSION_PREFIX}0\n{_TOPIC_ID_PREFIX}{uuid_text(topic_id)}".encode("ascii")
