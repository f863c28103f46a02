"""Appending: the checks and assignments of a leader, the rules of a follower, and the results of
failures.
"""

import errno
from pathlib import Path

import pytest
from storage.log_maker import (
    SMALL_SEGMENTS,
    OneLog,
    marker_batch,
    read_all,
    records_batch,
    state_of,
    values_of,
)

from moldau.config.log import LogConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import (
    Record,
    RecordBatch,
    TimestampType,
    patch_max_timestamp,
)
from moldau.protocol.records.compression import Compression
from moldau.storage.log.append import UnexpectedOffsetError, VerifiedBatch
from moldau.storage.log.read import Isolation
from moldau.storage.producers.append import begin_verification
from moldau.storage.producers.state import AppendOrigin
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import LeaderEpoch, Offset, ProducerEpoch


def idempotent(sequence: int, *values: bytes, epoch: int = 0) -> bytes:
    options = BatchOptions(
        producer_id=7, producer_epoch=ProducerEpoch(epoch), base_sequence=sequence
    )
    return records_batch(list(values), options)


def refusal(one: OneLog, batch: bytes, **how: object) -> ErrorCode:
    before = state_of(one.log)
    with pytest.raises(KafkaError) as raised:
        one.log.append_as_leader(batch, 0, 5_000, **how)  # type: ignore[arg-type]
    assert state_of(one.log) == before
    return raised.value.code


# The leader


def test_a_leader_assigns_offsets_and_its_epoch(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    assert one.append(b"a", b"b") == 0
    assert one.append(b"c", epoch=4) == 2
    batches = [
        RecordBatch(one.log.read(Offset(o), 0, isolation=Isolation.LOG_END).records) for o in (0, 2)
    ]
    assert [(b.base_offset, b.last_offset, b.partition_leader_epoch) for b in batches] == [
        (0, 1, 0),
        (2, 2, 4),
    ]
    assert all(batch.crc_is_valid() for batch in batches)
    assert one.log.epochs.entries == [(0, 0), (4, 2)]
    assert one.log.log_end_offset == 3


def test_the_callers_bytes_are_patched_only_if_writable(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    one.append(b"first")
    fixed = records_batch([b"second"])
    writable = bytearray(records_batch([b"third"]))
    one.log.append_as_leader(fixed, LeaderEpoch(0), 5_000)
    one.log.append_as_leader(memoryview(writable), LeaderEpoch(0), 5_000)
    assert fixed == records_batch([b"second"])
    assert RecordBatch(writable).base_offset == 2
    assert values_of(one.log) == [b"first", b"second", b"third"]


def test_append_time_replaces_the_producers_time(tmp_path: Path) -> None:
    one = OneLog(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    result = one.log.append_as_leader(records_batch([b"a", b"b"]), LeaderEpoch(0), 77_000)
    assert result.append_time_ms == 77_000
    batch = RecordBatch(one.log.read(Offset(0), 0, isolation=Isolation.LOG_END).records)
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.crc_is_valid()
    assert [record.timestamp for record in read_all(one.log)] == [77_000, 77_000]


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_producers_wrong_largest_timestamp_is_corrected(
    tmp_path: Path, timestamp_type: str
) -> None:
    """As in Kafka."""
    one = OneLog(tmp_path, LogConfig(message_timestamp_type=timestamp_type))
    batch = bytearray(records_batch([b"a", b"b"], timestamp_ms=123))
    patch_max_timestamp(batch, 0, TimestampType.CREATE_TIME, 1)
    one.log.append_as_leader(batch, LeaderEpoch(0), 77_000)
    stored = RecordBatch(one.log.read(Offset(0), 0, isolation=Isolation.LOG_END).records)
    assert stored.crc_is_valid()
    expected = {"CreateTime": [123, 124], "LogAppendTime": [77_000] * 2}[timestamp_type]
    assert stored.max_timestamp == max(expected)
    assert [record.timestamp for record in stored.records()] == expected


def test_create_time_keeps_the_producers_time(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    result = one.log.append_as_leader(
        records_batch([b"a"], timestamp_ms=123), LeaderEpoch(0), 77_000
    )
    assert result.append_time_ms == -1
    assert read_all(one.log)[0].timestamp == 123


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", list(Compression))
def test_batches_are_stored_in_the_topics_codec(
    tmp_path: Path, target: str, source: Compression
) -> None:
    one = OneLog(tmp_path, LogConfig(compression_type=target))
    one.log.append_as_leader(
        records_batch([b"a" * 200], BatchOptions(compression=source)), LeaderEpoch(0), 5_000
    )
    batch = RecordBatch(one.log.read(Offset(0), 0, isolation=Isolation.LOG_END).records)
    assert batch.compression.name.lower() == target.replace("uncompressed", "none")
    assert batch.crc_is_valid()
    assert values_of(one.log) == [b"a" * 200]


def test_a_forbidden_client_append_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    one = OneLog(tmp_path, LogConfig(max_message_bytes=1_000, cleanup_policy=("compact",)))
    one.append(b"there")
    good = records_batch([b"x"])
    damaged = bytearray(good)
    damaged[-1] ^= 1
    assert refusal(one, bytes(damaged)) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(one, good[:-1]) is ErrorCode.INVALID_RECORD
    assert refusal(one, good + good) is ErrorCode.INVALID_RECORD
    assert refusal(one, b"") is ErrorCode.INVALID_RECORD
    assert refusal(one, records_batch([b"x" * 2_000])) is ErrorCode.MESSAGE_TOO_LARGE
    keyless = build_batch([Record(0, 1_000, None, b"value")])
    assert refusal(one, keyless) is ErrorCode.INVALID_RECORD
    late = records_batch([b"x"], timestamp_ms=5_000 + 3_600_001)
    assert refusal(one, late) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(one, marker_batch(1, 0, abort=True)) is ErrorCode.INVALID_RECORD
    assert refusal(one, b"", origin=AppendOrigin.COORDINATOR) is ErrorCode.INVALID_RECORD


def test_a_batch_larger_than_any_segment_is_refused(tmp_path: Path) -> None:
    one = OneLog(tmp_path, LogConfig(internal_segment_bytes=500))
    assert refusal(one, records_batch([b"x" * 600])) is ErrorCode.RECORD_LIST_TOO_LARGE


# Producers


def test_a_retry_is_answered_with_the_first_offset_and_written_once(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    for sequence in range(0, 10, 2):
        one.log.append_as_leader(idempotent(sequence, b"a", b"b"), LeaderEpoch(0), 5_000)
    again = one.log.append_as_leader(idempotent(2, b"a", b"b"), LeaderEpoch(0), 5_000)
    assert (again.first_offset, again.last_offset, again.is_duplicate) == (2, 3, True)
    assert one.log.log_end_offset == 10
    assert refusal(one, idempotent(20, b"gap")) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    one.log.append_as_leader(idempotent(0, b"new epoch", epoch=1), LeaderEpoch(0), 5_000)
    assert refusal(one, idempotent(10, b"late", epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_open_transaction_holds_the_last_stable_offset_back(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    one.append(b"plain")
    one.append_transactional(7, 0, b"t1", b"t2")
    one.append(b"plain too")
    one.commit_all()
    assert one.log.last_stable_offset == 1
    marker = one.end_transaction(7, abort=True)
    assert one.log.last_stable_offset == 1, "the marker is not replicated yet"
    one.commit_all()
    assert one.log.last_stable_offset == marker + 1
    aborted = one.log.segments.active.transaction_index.entries
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in aborted] == [(7, 1, marker)]
    assert aborted[0].last_stable_offset == marker + 1


def test_a_committed_transaction_leaves_no_entry(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    one.append_transactional(7, 0, b"t1")
    one.end_transaction(7, abort=False)
    assert one.log.segments.active.transaction_index.is_empty
    assert not any(name.endswith(".txnindex") for name in one.names())


def test_a_plain_batch_inside_the_producers_transaction_is_refused(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    one.append_transactional(7, 0, b"t1")
    assert refusal(one, idempotent(1, b"plain")) is ErrorCode.INVALID_TXN_STATE


def test_a_coordinator_may_append_several_batches_at_once(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    batches = records_batch([b"a", b"b"]) + records_batch([b"c"])
    result = one.log.append_as_leader(
        batches, LeaderEpoch(3), 5_000, origin=AppendOrigin.COORDINATOR
    )
    assert (result.first_offset, result.last_offset) == (0, 2)
    assert values_of(one.log) == [b"a", b"b", b"c"]


# The follower, and raft


def leader_bytes(tmp_path: Path, batches: int = 20) -> tuple[OneLog, bytes]:
    leader = OneLog(tmp_path / "leader")
    leader.fill(batches)
    leader.append_transactional(7, 0, b"t")
    leader.end_transaction(7, abort=True)
    return leader, bytes(leader.log.read(Offset(0), 1 << 20, isolation=Isolation.LOG_END).records)


def test_a_follower_becomes_a_byte_for_byte_copy_of_the_leader(tmp_path: Path) -> None:
    leader, fetched = leader_bytes(tmp_path)
    follower = OneLog(tmp_path / "follower")
    result = follower.log.append_as_follower(fetched, LeaderEpoch(0), 6_000)
    assert result is not None
    assert (result.first_offset, result.last_offset) == (0, 21)
    name = "00000000000000000000.log"
    assert follower.file(name).read_bytes() == leader.file(name).read_bytes()
    assert state_of(follower.log)["aborted"] == state_of(leader.log)["aborted"]
    assert follower.log.epochs.entries == leader.log.epochs.entries


def test_a_follower_skips_a_partial_last_batch(tmp_path: Path) -> None:
    _, fetched = leader_bytes(tmp_path)
    follower = OneLog(tmp_path / "follower")
    follower.log.append_as_follower(fetched[:-1], LeaderEpoch(0), 6_000)
    assert follower.log.log_end_offset == 21
    assert follower.log.append_as_follower(fetched[:30], LeaderEpoch(0), 6_000) is None


def test_a_follower_refuses_damaged_and_known_batches(tmp_path: Path) -> None:
    _, fetched = leader_bytes(tmp_path)
    follower = OneLog(tmp_path / "follower")
    damaged = bytearray(fetched)
    damaged[200] ^= 1
    with pytest.raises(KafkaError) as raised:
        follower.log.append_as_follower(bytes(damaged), LeaderEpoch(0), 6_000)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert follower.log.log_end_offset == 0
    follower.log.append_as_follower(fetched, LeaderEpoch(0), 6_000)
    with pytest.raises(UnexpectedOffsetError) as unexpected:
        follower.log.append_as_follower(fetched, LeaderEpoch(0), 6_000)
    assert (unexpected.value.first_offset, unexpected.value.last_offset) == (0, 21)
    assert follower.log.log_end_offset == 22


def test_a_follower_skips_batches_of_a_later_leader(tmp_path: Path) -> None:
    leader = OneLog(tmp_path / "leader")
    leader.append(b"old", epoch=1)
    leader.append(b"new", epoch=2)
    fetched = bytes(leader.log.read(Offset(0), 1 << 20, isolation=Isolation.LOG_END).records)
    follower = OneLog(tmp_path / "follower")
    follower.log.append_as_follower(fetched, LeaderEpoch(1), 6_000)
    assert values_of(follower.log) == [b"old"]


def test_a_fetch_larger_than_a_segment_is_split_over_segments(tmp_path: Path) -> None:
    leader, fetched = leader_bytes(tmp_path, batches=100)
    follower = OneLog(tmp_path / "follower", SMALL_SEGMENTS)
    follower.log.append_as_follower(fetched, LeaderEpoch(0), 6_000)
    assert len(follower.log.segments) > 3
    assert read_all(follower.log) == read_all(leader.log)


def test_a_follower_keeps_gaps_that_compaction_left(tmp_path: Path) -> None:
    follower = OneLog(tmp_path)
    for base in (5, 90, 3_000):
        batch = records_batch(
            [b"%d" % base], BatchOptions(base_offset=base, partition_leader_epoch=0)
        )
        follower.log.append_as_follower(batch, LeaderEpoch(0), 6_000)
    assert [record.offset for record in read_all(follower.log)] == [5, 90, 3_000]
    assert follower.log.log_end_offset == 3_001


def test_the_raft_leader_assigns_its_own_offsets_and_epoch(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    options = BatchOptions(base_offset=0, partition_leader_epoch=3)
    batch = records_batch([b"a"], options)
    one.log.append_as_leader(batch, LeaderEpoch(3), 5_000, origin=AppendOrigin.RAFT_LEADER)
    assert one.log.log_end_offset == 1
    wrong = records_batch([b"b"], BatchOptions(base_offset=1, partition_leader_epoch=2))
    assert refusal(one, wrong, origin=AppendOrigin.RAFT_LEADER) is ErrorCode.INVALID_RECORD


# Rolling


def test_segments_roll_by_size(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    one.fill(60)
    assert len(one.log.segments) > 2
    assert all(segment.size <= 4096 for segment in one.log.segments)
    assert len(values_of(one.log)) == 60


def test_segments_roll_by_the_records_time(tmp_path: Path) -> None:
    one = OneLog(tmp_path, LogConfig(segment_ms=100))
    one.append(b"a", timestamp_ms=1_000)
    one.append(b"b", timestamp_ms=1_100)
    assert len(one.log.segments) == 1
    one.append(b"c", timestamp_ms=1_101)
    assert one.log.segments.base_offsets == [0, 2]


def test_records_without_time_roll_by_the_clock(tmp_path: Path) -> None:
    one = OneLog(tmp_path, LogConfig(segment_ms=100))
    timeless = build_batch([Record(0, -1, None, b"a")])
    one.log.append_as_leader(timeless, LeaderEpoch(0), 50)
    one.log.append_as_leader(timeless, LeaderEpoch(0), 100)
    assert len(one.log.segments) == 1
    one.log.append_as_leader(timeless, LeaderEpoch(0), 101)
    assert len(one.log.segments) == 2


def test_segments_roll_when_their_index_is_full(tmp_path: Path) -> None:
    one = OneLog(tmp_path, LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    one.fill(10)
    assert len(one.log.segments) > 3
    assert len(values_of(one.log)) == 10
    assert all(len(s.offset_index.entries) <= 3 for s in one.log.segments)


def test_segments_roll_before_an_offset_is_too_far_from_their_base(tmp_path: Path) -> None:
    follower = OneLog(tmp_path)
    for base in (0, 2**31 - 1, 2**31, 2**33):
        batch = records_batch([b"x"], BatchOptions(base_offset=base, partition_leader_epoch=0))
        follower.log.append_as_follower(batch, LeaderEpoch(0), 6_000)
    assert follower.log.segments.base_offsets == [0, 2**31, 2**33]
    assert [r.offset for r in read_all(follower.log)] == [0, 2**31 - 1, 2**31, 2**33]


# Failures


def on_simulated_disk() -> tuple[SimulatedDisk, OneLog]:
    disk = SimulatedDisk()
    one = OneLog(Path("/logs"), filesystem=disk)
    one.append(b"safe")
    return disk, one


def test_a_full_disk_refuses_the_append_and_keeps_the_log_usable() -> None:
    disk, one = on_simulated_disk()
    before = state_of(one.log)
    disk.short_write_at(disk.effects + 1, 10, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(KafkaError) as raised:
        one.append(b"too much")
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert one.directory.is_online
    assert state_of(one.log) == before
    assert one.append(b"after space was made") == 1
    assert values_of(one.log) == [b"safe", b"after space was made"]


def test_a_failed_write_takes_the_directory_offline_and_leaves_the_old_records() -> None:
    disk, one = on_simulated_disk()
    disk.short_write_at(disk.effects + 1, 10, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(KafkaError) as raised:
        one.append(b"lost")
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not one.directory.is_online
    with pytest.raises(KafkaError):
        one.append(b"not any more")
    assert one.log.log_end_offset == 1


# Batches that were prepared elsewhere


def test_a_batch_prepared_in_a_thread_is_appended_as_any_other(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    batch = records_batch([b"a", b"b"], BatchOptions(compression=Compression.GZIP))
    prepare = one.log.preparation(batch, 5_000)
    one.append(b"first")
    result = one.log.append_as_leader(prepare(), LeaderEpoch(0), 5_000)
    assert (result.first_offset, result.last_offset) == (1, 2)
    assert values_of(one.log) == [b"first", b"a", b"b"]


def test_a_verified_batch_opens_its_transaction(tmp_path: Path) -> None:
    one = OneLog(tmp_path, flush_policy="os")
    one.log.producers.verifies = True
    options = BatchOptions(
        producer_id=7, producer_epoch=ProducerEpoch(0), base_sequence=0, is_transactional=True
    )
    batch = records_batch([b"a"], options)
    with pytest.raises(KafkaError):
        one.log.append_as_leader(batch, LeaderEpoch(0), 5_000)
    verification = begin_verification(
        one.log.producers, (7, ProducerEpoch(0), 0), adds=False, now_ms=5_000
    )
    assert verification is not None
    verified = VerifiedBatch(batch, verification)
    assert one.log.append_as_leader(verified, LeaderEpoch(0), 5_000).first_offset == 0
    assert one.log.last_stable_offset == 0


def test_a_batch_that_grows_in_the_topics_codec_may_be_too_large(tmp_path: Path) -> None:
    config = LogConfig(compression_type="uncompressed", max_message_bytes=1_000)
    one = OneLog(tmp_path, config)
    batch = records_batch([b"v" * 5_000], BatchOptions(compression=Compression.GZIP))
    assert len(batch) < 1_000
    assert refusal(one, batch) is ErrorCode.MESSAGE_TOO_LARGE
    assert one.append(b"small") == 0


@pytest.mark.parametrize("content", [b"", records_batch([b"a"])[:-1]])
def test_the_metadata_log_takes_whole_batches_only(tmp_path: Path, content: bytes) -> None:
    one = OneLog(tmp_path)
    assert refusal(one, content, origin=AppendOrigin.RAFT_LEADER) is ErrorCode.INVALID_RECORD


def test_a_control_batch_of_another_kind_ends_no_transaction(tmp_path: Path) -> None:
    """A control type of a later release, from its coordinator or its leader."""
    one = OneLog(tmp_path)
    one.append_transactional(7, 0, b"a")
    unknown = build_batch(
        [Record(0, 1_000, b"\0\0\0\x63", b"\0\0")],
        BatchOptions(
            producer_id=7, producer_epoch=ProducerEpoch(0), is_transactional=True, is_control=True
        ),
    )
    one.log.append_as_leader(
        unknown, LeaderEpoch(0), 5_000, origin=AppendOrigin.COORDINATOR, transaction_version=0
    )
    assert one.log.last_stable_offset == 0
    follower = OneLog(tmp_path / "follower")
    copied = one.log.read(Offset(0), 1 << 20, isolation=Isolation.LOG_END)
    follower.log.append_as_follower(copied.records, LeaderEpoch(0), 5_000)
    assert follower.log.log_end_offset == 2
    assert follower.log.producers.first_unstable_offset == 0
