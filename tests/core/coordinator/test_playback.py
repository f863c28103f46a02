"""Loading: the log's batches, in order, make the shard's state."""

import pytest

from moldau.core.coordinator.playback import replay_batch
from moldau.core.coordinator.records import CoordinatorRecord, encode_record
from moldau.core.groups.group_records import decode_group_record, offset_record, offset_tombstone
from moldau.core.groups.group_shard import GroupShard
from moldau.core.groups.settings import GroupSettings
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.log_records.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from moldau.protocol.log_records.legacy_offset_commit import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
)
from moldau.protocol.log_records.offset_commit import OffsetCommitValue
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.types import ProducerEpoch


class Loaded:
    def __init__(self) -> None:
        self.shard = GroupShard(GroupSettings)
        self.next_offset = 0

    def replay(self, *records: CoordinatorRecord, **options: object) -> None:
        pairs = [encode_record(record) for record in records]
        self.replay_pairs(*((pair.key, pair.value) for pair in pairs), **options)

    def replay_pairs(self, *pairs: tuple[bytes | None, bytes | None], **options: object) -> None:
        made = build_batch(
            [Record(self.next_offset + n, 0, key, value) for n, (key, value) in enumerate(pairs)],
            BatchOptions(**options),  # type: ignore[arg-type]
        )
        self._replay(RecordBatch(made))

    def end_transaction(self, producer_id: int, control_type: ControlType) -> None:
        marker = end_transaction_marker(
            EndTransactionMarker(control_type, coordinator_epoch=0),
            MarkerOrigin(
                producer_id, producer_epoch=ProducerEpoch(0), base_offset=self.next_offset
            ),
            now_ms=0,
        )
        self._replay(RecordBatch(marker))

    def _replay(self, batch: RecordBatch) -> None:
        replay_batch(self.shard, batch, decode_group_record)
        self.next_offset = batch.next_offset

    def offset(self, *, stable: bool = False) -> int | ErrorCode:
        requested = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        request = OffsetFetchRequestGroup(group_id="g", topics=[requested])
        (topic,) = self.shard.offsets.fetch(request, requires_stable=stable).response.topics
        (found,) = topic.partitions
        return ErrorCode(found.error_code) if found.error_code else found.committed_offset


def commit(offset: int) -> CoordinatorRecord:
    return offset_record("g", "t", 0, OffsetCommitValue(offset=offset, commit_timestamp=1))


TRANSACTION = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}


@pytest.mark.parametrize("codec", list(Compression))
def test_later_records_win(codec: Compression) -> None:
    loaded = Loaded()
    loaded.replay(commit(1), commit(2), compression=codec)
    loaded.replay(commit(3), compression=codec)
    assert loaded.offset() == 3
    loaded.replay(offset_tombstone("g", "t", 0), compression=codec)
    assert loaded.offset() == -1


def test_offsets_of_a_transaction_wait_for_its_marker() -> None:
    loaded = Loaded()
    loaded.replay(commit(1))
    loaded.replay(commit(5), **TRANSACTION)
    assert loaded.offset() == 1
    assert loaded.offset(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    loaded.end_transaction(7, ControlType.COMMIT)
    assert loaded.offset(stable=True) == 5


def test_offsets_of_an_aborted_transaction_are_dropped() -> None:
    loaded = Loaded()
    loaded.replay(commit(1))
    loaded.replay(commit(5), **TRANSACTION)
    loaded.end_transaction(7, ControlType.ABORT)
    assert loaded.offset(stable=True) == 1


def test_a_plain_commit_after_a_transactional_one_wins() -> None:
    """Compaction keeps the later record, so the later record must win."""
    loaded = Loaded()
    loaded.replay(commit(5), **TRANSACTION)
    loaded.replay(commit(3))
    loaded.end_transaction(7, ControlType.COMMIT)
    assert loaded.offset(stable=True) == 3


def test_a_tombstone_removes_pending_offsets_too() -> None:
    loaded = Loaded()
    loaded.replay(commit(5), **TRANSACTION)
    loaded.replay(offset_tombstone("g", "t", 0))
    loaded.end_transaction(7, ControlType.COMMIT)
    assert loaded.offset(stable=True) == -1


def test_types_of_later_releases_are_left_alone() -> None:
    loaded = Loaded()
    loaded.replay_pairs((b"\x00\x63whatever", b"\x00\x00whatever"), (b"\x7f\xff", None))
    loaded.replay(commit(4))
    assert loaded.offset() == 4


def test_the_old_type_of_offset_commits_is_read() -> None:
    """Apache Kafka wrote it before 0.9 and still reads it."""
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=0)
    value = LegacyOffsetCommitValue(offset=11, metadata="m", commit_timestamp=5)
    loaded = Loaded()
    loaded.replay(CoordinatorRecord(key, value, 0))
    assert loaded.offset() == 11
    loaded.replay(CoordinatorRecord(key))
    assert loaded.offset() == -1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x00"),
        (b"", b"\x00\x00"),
        (b"\x00\x01", b"\x00\x00"),
        (b"\x00\x02\x00\x01g", b"\x00\x09 a version from the future"),
        (b"\x00\x02\x00\x01g", b"\x00\x03 nonsense"),
        (b"\x00\x02\x00\x01g", b""),
    ],
    ids=["no key", "empty key", "short key", "later version", "nonsense", "empty value"],
)
def test_unreadable_records_stop_the_load(key: bytes | None, value: bytes) -> None:
    with pytest.raises(MoldauError):
        Loaded().replay_pairs((key, value))


def test_an_inconsistent_group_is_refused() -> None:
    twins = [
        MemberMetadata(member_id=name, group_instance_id="same", session_timeout=6000)
        for name in ("a", "b")
    ]
    value = GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol="range", leader="a", members=twins
    )
    with pytest.raises(KafkaError):
        Loaded().replay(CoordinatorRecord(GroupMetadataKey(group="g"), value, 3))
