"""The findings of an inspection: plain values, in the order of the file. Nothing here reads or
prints. A `Problem` reports an error; a `Remark` reports something unusual that is not an error.
"""

import enum
from pathlib import Path
from typing import Any, TypeAlias

from moldau.frozen import frozen
from moldau.types import LeaderEpoch, Offset, ProducerEpoch

# Only a recovery rebuilds this cache: a start after a clean stop would trust its absence, and a
# recovery scans only the batches after the recovery point.
REBUILD_ALL = (
    "delete it, .kafka_cleanshutdown and recovery-point-offset-checkpoint: the next start then "
    "rebuilds it from the log"
)


class FileKind(enum.Enum):
    """The kind of a file in a log directory, determined by its name."""

    LOG = "log segment"
    METADATA_SNAPSHOT = "metadata snapshot"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    PRODUCER_SNAPSHOT = "producer snapshot"
    LEADER_EPOCHS = "leader epoch checkpoint"
    OFFSET_CHECKPOINT = "offset checkpoint"
    PARTITION_METADATA = "partition metadata"
    META_PROPERTIES = "directory properties"
    CLEAN_SHUTDOWN = "clean shutdown marker"
    QUORUM_STATE = "quorum state"
    DAMAGE_NOTE = "note of damage"
    INVENTORY = "inventory of a clean stop"
    LOCK = "directory lock"
    RESERVE = "reserved disk space"
    UNKNOWN = "unknown file"


@frozen
class FileStart:
    path: Path
    kind: FileKind
    size_bytes: int
    # Facts from the name alone: base offset, snapshot end, "waits for deletion" ...
    facts: tuple[tuple[str, int | str], ...] = ()


@frozen
class FileEnd:
    path: Path
    kind: FileKind
    # Numbers of batches, records, entries.
    counts: tuple[tuple[str, int], ...] = ()
    # The offset after the last record of a log; None without one.
    next_offset: Offset | None = None
    problems: int = 0


@frozen
class Problem:
    """One line for the user: the place, the problem, and its remedy."""

    path: Path
    position: int | None
    what: str
    remedy: str


@frozen
class Remark:
    path: Path
    position: int | None
    what: str
    # The file's content was not inspected; its other findings do not cover it.
    is_unread: bool = False


@frozen
class BatchFound:
    position: int
    size_bytes: int
    base_offset: Offset
    last_offset: Offset
    record_count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: ProducerEpoch
    partition_leader_epoch: LeaderEpoch
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    timestamp_type: str
    max_timestamp: int
    magic: int
    compression: str
    crc: int
    crc_is_valid: bool


@frozen
class Decoded:
    """A key, value or control record that the classes of stored records could decode."""

    name: str
    version: int
    fields: dict[str, Any]
    # The number of the record's type, or of the control record's.
    record_type: int = -1


@frozen
class RecordFound:
    offset: Offset
    timestamp_type: str
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    is_control: bool
    decoded_key: Decoded | None = None
    decoded_value: Decoded | None = None


@frozen
class OffsetIndexEntryFound:
    offset: Offset
    position: int


@frozen
class TimeIndexEntryFound:
    timestamp: int
    offset: Offset


@frozen
class AbortedTransactionFound:
    version: int
    producer_id: int
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


@frozen
class ProducerFound:
    producer_id: int
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    current_transaction_first_offset: Offset | None
    last_timestamp: int
    # -1 where the snapshot holds no batch of this producer.
    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int


@frozen
class EpochFound:
    epoch: LeaderEpoch
    start_offset: Offset


@frozen
class CheckpointOffsetFound:
    topic: str
    partition: int
    offset: Offset


@frozen
class PropertyFound:
    name: str
    value: str | int


@frozen
class PartitionFound:
    """One row of a log directory's summary."""

    name: str
    state: str
    segments: int
    start_offset: Offset
    end_offset: Offset
    batches: int
    records: int
    size_bytes: int
    problems: int


@frozen
class DirectoryStart:
    path: Path
    # "partition" or "log directory".
    role: str
    facts: tuple[tuple[str, int | str], ...] = ()


@frozen
class DirectoryEnd:
    path: Path
    # The totals of a partition.
    total: PartitionFound | None
    problems: int


Row: TypeAlias = (
    BatchFound
    | RecordFound
    | OffsetIndexEntryFound
    | TimeIndexEntryFound
    | AbortedTransactionFound
    | ProducerFound
    | EpochFound
    | CheckpointOffsetFound
    | PropertyFound
    | PartitionFound
)
Item: TypeAlias = FileStart | FileEnd | DirectoryStart | DirectoryEnd | Problem | Remark | Row
