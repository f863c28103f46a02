"""Compaction keeps and removes records by Kafka's rules, batch by batch."""

import struct
from pathlib import Path

import pytest
from storage.compaction_logs import DAY_MS, NOW_MS, CompactedLog, Pair, compacting

from moldau.config.cleaner import CleanerConfig
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import ATTRIBUTES_OFFSET, CRC_OFFSET, Record
from moldau.protocol.records.checksum import crc32c
from moldau.protocol.records.compression import Compression
from moldau.storage.compaction.run import DamagedSourceError
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.types import LeaderEpoch, Offset

TOMBSTONE = None


def pairs(**values: str | None) -> list[Pair]:
    return [(key.encode(), None if v is None else v.encode()) for key, v in values.items()]


def offsets(log: CompactedLog) -> list[int]:
    return [record.offset for record in log.records()]


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1", b="1"))
    log.put(*pairs(a="2"))
    log.put(*pairs(c="1", a="3"))
    log.roll()
    log.clean()
    assert [(r.offset, r.key, r.value) for r in log.records()] == [
        (1, b"b", b"1"),
        (3, b"c", b"1"),
        (4, b"a", b"3"),
    ]
    assert log.log.log_end_offset == 5


def test_the_active_segment_is_never_cleaned_but_its_keys_count_next_time() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1"))
    log.roll()
    log.put(*pairs(a="2"))
    log.put(*pairs(a="3"))
    log.clean()
    assert offsets(log) == [0, 1, 2]
    log.roll()
    log.clean()
    assert offsets(log) == [2]


def test_a_key_that_only_the_clean_part_has_is_kept() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1", b="1"))
    log.roll()
    log.clean()
    log.put(*pairs(b="2"))
    log.roll()
    log.clean()
    assert log.values() == {b"a": b"1", b"b": b"2"}
    assert offsets(log) == [0, 2]


def test_records_without_a_key_are_removed() -> None:
    """They cannot be produced to a compacted topic, but the topic may not always have been one."""
    log = CompactedLog(config=compacting(cleanup_policy=("delete",)))
    log.put((None, b"no key"), (b"a", b"1"))
    log.roll()
    log.clean()
    assert offsets(log) == [1]


def test_lengths_below_null_are_nulls_and_stop_no_compaction() -> None:
    """Produce refuses them but Apache Kafka stores them, so one of its logs may contain them."""
    log = CompactedLog(config=compacting(cleanup_policy=("delete",)))
    log.put((b"a", b"0"))
    for key, position in ((None, 65), (b"a", 67)):
        batch = bytearray(build_batch([Record(log.log.log_end_offset, NOW_MS, key, None)]))
        assert batch[position] == 1
        batch[position] = 9
        struct.pack_into(">I", batch, CRC_OFFSET, crc32c(bytes(batch[ATTRIBUTES_OFFSET:])))
        assert log.log.append_as_follower(batch, LeaderEpoch(0), NOW_MS)
    log.log.raise_high_watermark(log.log.log_end_offset)
    log.roll()
    log.clean()
    assert not log.cleaner.uncleanable
    assert [(record.key, record.value) for record in log.records()] == [(b"a", None)]


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1", b="2"), compression=Compression.LZ4)
    log.put(*pairs(c="1"))
    log.roll()
    before = log.content()
    log.clean()
    assert log.content() == before


@pytest.mark.parametrize("codec", list(Compression))
def test_a_rewritten_batch_keeps_its_codec_offsets_sequence_and_epoch(codec: Compression) -> None:
    log = CompactedLog()
    log.put(*pairs(a="1", b="x" * 200, c="1"), producer_id=5, compression=codec)
    log.put(*pairs(a="2", c="2"))
    log.roll()
    original = log.batches()[0]
    log.clean()
    batch = log.batches()[0]
    batch.check_crc()
    assert batch.record_count == 1
    assert [record.key for record in batch.records()] == [b"b"]
    for name in (
        "base_offset",
        "last_offset",
        "base_sequence",
        "last_sequence",
        "producer_id",
        "producer_epoch",
        "partition_leader_epoch",
        "compression",
    ):
        assert getattr(batch, name) == getattr(original, name), name


def test_the_largest_timestamp_is_that_of_the_records_that_stayed() -> None:
    log = CompactedLog()
    stamps = [NOW_MS - 5, NOW_MS, NOW_MS - 3]
    log.put(*pairs(a="1", b="1", c="1"), timestamps=stamps)
    log.put(*pairs(b="2"), timestamps=[NOW_MS - 9])
    log.roll()
    log.clean()
    assert [batch.max_timestamp for batch in log.batches()] == [NOW_MS - 3, NOW_MS - 9]
    assert [record.timestamp for record in log.records()] == [NOW_MS - 5, NOW_MS - 3, NOW_MS - 9]


def test_append_time_is_kept() -> None:
    log = CompactedLog(config=compacting(message_timestamp_type="LogAppendTime"))
    log.put(*pairs(a="1", b=TOMBSTONE))
    log.now_ms += 1000
    log.put(*pairs(a="2"))
    log.roll()
    log.clean()
    assert [(r.offset, r.timestamp) for r in log.records()] == [(1, NOW_MS), (2, NOW_MS + 1000)]


# Tombstones


def test_a_tombstone_gets_a_delete_horizon_when_it_is_first_cleaned_and_is_removed_after_it() -> (
    None
):
    log = CompactedLog(config=compacting(delete_retention_ms=1000))
    log.put(*pairs(a="1"))
    log.put(*pairs(a=TOMBSTONE, b="1"), timestamps=[NOW_MS - 7, NOW_MS - 8])
    log.put(*pairs(c="1"))
    log.roll()
    log.clean()
    tombstone = log.batches()[0]
    assert tombstone.delete_horizon_ms == NOW_MS + 1000
    assert [(r.offset, r.key, r.timestamp) for r in log.records()] == [
        (1, b"a", NOW_MS - 7),
        (2, b"b", NOW_MS - 8),
        (3, b"c", NOW_MS),
    ]

    log.clean(after_ms=999)
    assert offsets(log) == [1, 2, 3]
    assert log.batches()[0].delete_horizon_ms == NOW_MS + 1000

    log.clean(after_ms=1)
    assert [(r.offset, r.key, r.timestamp) for r in log.records()] == [
        (2, b"b", NOW_MS - 8),
        (3, b"c", NOW_MS),
    ]


def test_a_tombstone_that_is_not_the_last_of_its_key_is_removed_at_once() -> None:
    log = CompactedLog()
    log.put(*pairs(a=TOMBSTONE))
    log.put(*pairs(a="2"))
    log.roll()
    log.clean()
    assert offsets(log) == [1]


def test_an_endless_retention_of_tombstones_does_not_overflow() -> None:
    log = CompactedLog(config=compacting(delete_retention_ms=2**63 - 1))
    log.put(*pairs(a=TOMBSTONE, b="1"))
    log.put(*pairs(b="2"))
    log.roll()
    log.clean()
    assert log.batches()[0].delete_horizon_ms == 2**63 - 1
    log.clean(after_ms=1000 * DAY_MS)
    assert [(r.offset, r.timestamp) for r in log.records()] == [(0, NOW_MS), (2, NOW_MS)]


# Producers and transactions


def test_the_last_batch_of_a_producer_stays_as_an_empty_one() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1"), producer_id=5)
    log.put(*pairs(a="2", b="2"), producer_id=5)
    log.put(*pairs(a="3", b="3"))
    log.roll()
    log.clean()
    empty = log.batches()[0]
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (1, 2, 0)
    assert (empty.base_sequence, empty.last_sequence) == (1, 2)
    assert empty.size_in_bytes == 61
    empty.check_crc()
    assert offsets(log) == [3, 4]


def test_sequences_are_still_known_when_only_the_compacted_log_is_left() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1"), producer_id=5)
    log.put(*pairs(a="2", b="2"), producer_id=5)
    log.put(*pairs(a="3", b="3"))
    log.roll()
    log.clean()
    log.log.snapshots.remove_all()
    log.reopen()
    known = log.log.producers.entry(5)
    assert known is not None
    assert (known.last_sequence, known.last_data_offset) == (2, 2)
    log.put(*pairs(c="1"), producer_id=5)
    log.sequences[5, 0] = 9
    with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
        log.put(*pairs(c="2"), producer_id=5)


def test_the_empty_batch_is_removed_once_the_producer_wrote_again() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1"), producer_id=5)
    log.put(*pairs(a="2"))
    log.roll()
    log.clean()
    assert log.batches()[0].record_count == 0
    log.put(*pairs(z="1"), producer_id=5)
    log.roll()
    log.clean()
    assert [batch.base_offset for batch in log.batches()] == [1, 2]


def test_the_last_offset_of_the_cleaned_range_is_not_lost() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1"))
    log.put(*pairs(b=TOMBSTONE))
    log.roll()
    log.put(*pairs(a="2"))
    log.roll()
    log.put(*pairs(b="3"))
    log.clean()
    log.clean(after_ms=2 * DAY_MS)
    log.roll()
    log.clean()
    ends = [batch.last_offset for batch in log.batches()]
    assert ends[-1] == 3
    assert log.values() == {b"a": b"2", b"b": b"3"}


def test_aborted_records_are_removed_and_do_not_hide_older_values() -> None:
    log = CompactedLog()
    log.put(*pairs(a="committed"))
    log.put(*pairs(a="aborted", b="aborted"), producer_id=5, transactional=True)
    log.end(5, commit=False)
    log.put(*pairs(c="1"))
    log.roll()
    log.clean()
    assert offsets(log) == [0, 4]
    assert log.values() == {b"a": b"committed", b"c": b"1"}


def test_committed_records_replace_older_ones() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1"))
    log.put(*pairs(a="2"), producer_id=5, transactional=True)
    log.end(5, commit=True)
    log.roll()
    log.clean()
    assert log.values() == {b"a": b"2"}
    assert offsets(log) == [1]


def test_an_open_transaction_is_not_touched_and_stops_the_cleaning() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1"))
    log.roll()
    log.put(*pairs(a="2"), producer_id=5, transactional=True)
    log.roll()
    log.put(*pairs(a="3"))
    log.roll()
    before = log.content()
    log.clean()
    assert log.content() == before
    assert log.cleaner.clean_offset(log.log.topic_partition) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_outlives_its_data_by_the_delete_horizon(commit: bool) -> None:
    log = CompactedLog(config=compacting(delete_retention_ms=1000))
    log.put(*pairs(a="1"), producer_id=5, transactional=True)
    log.end(5, commit=commit)
    log.put(*pairs(a="2"))
    # A later marker of the same producer, so that this one is not its last trace.
    log.put(*pairs(z="1"), producer_id=5, transactional=True)
    log.end(5, commit=True)
    log.roll()

    log.clean()
    assert log.markers() == [1, 4]
    assert all(b.delete_horizon_ms is None for b in log.batches() if b.is_control)

    log.clean()
    first = next(batch for batch in log.batches() if batch.base_offset == 1)
    assert first.delete_horizon_ms == NOW_MS + 1000
    assert first.records()[0].timestamp == NOW_MS

    log.clean(after_ms=999)
    assert log.markers() == [1, 4]
    log.clean(after_ms=1)
    assert log.markers() == [4]


def test_the_last_marker_of_a_producer_stays_as_an_empty_batch_for_its_epoch() -> None:
    log = CompactedLog(config=compacting(delete_retention_ms=1000))
    log.end(5, commit=False, epoch=3)
    log.put(*pairs(a="1"))
    log.roll()
    log.clean()
    log.clean(after_ms=1000)
    marker = log.batches()[0]
    assert (marker.is_control, marker.record_count, marker.producer_epoch) == (True, 0, 3)


def test_the_transaction_index_of_the_new_segment_knows_the_aborts_that_are_left() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1"), producer_id=5, transactional=True)
    log.end(5, commit=False)
    log.put(*pairs(b="1"))
    log.roll()
    log.clean()
    entries = log.log.segments[0].transaction_index.entries
    assert [(e.producer_id, e.first_offset, e.last_offset) for e in entries] == [(5, 0, 1)]
    log.clean()
    # The empty last batch of the producer is still part of the transaction.
    assert len(log.log.segments[0].transaction_index.entries) == 1


# Segments


def test_neighbours_that_fit_are_merged_into_one_segment() -> None:
    log = CompactedLog()
    for number in range(6):
        log.put(*pairs(a=str(number)))
        log.put((b"k%d" % number, b"1"))
        log.roll()
    log.clean()
    assert log.bases() == [0, 12]
    assert offsets(log) == [1, 3, 5, 7, 9, 10, 11]
    assert log.log.segments[0].sealed


def test_a_group_is_no_larger_than_the_segment_size() -> None:
    log = CompactedLog(config=compacting(internal_segment_bytes=1000))
    for number in range(8):
        log.put((b"k%d" % number, b"x" * 300))
        log.roll()
    log.clean()
    assert log.bases() == [0, 2, 4, 6, 8]


def test_the_indexes_of_a_cleaned_segment_find_every_record() -> None:
    log = CompactedLog()
    for number in range(50):
        log.put((b"k%d" % (number % 40), b"x" * 50), timestamps=[NOW_MS + number])
        if number % 20 == 19:
            log.roll()
    log.roll()
    log.clean()
    segment = log.log.segments[0]
    assert segment.offset_index.entry_count > 10
    for record in log.records():
        span = segment.locate(Offset(record.offset))
        assert span is not None
        assert span.base_offset <= record.offset <= span.last_offset
    assert segment.max_timestamp == (NOW_MS + 49, 49)


def test_old_files_stay_as_deleted_for_the_delete_delay_and_are_then_removed() -> None:
    log = CompactedLog()
    log.put(*pairs(a="1"))
    log.roll()
    log.put(*pairs(a="2"))
    log.roll()
    log.clean()
    deleted = [name for name in log.file_names() if name.endswith(".deleted")]
    assert "00000000000000000000.log.deleted" in deleted
    assert "00000000000000000001.log.deleted" in deleted
    log.log.remove_deleted(log.now_ms + 60_000)
    left = log.file_names()
    assert not [name for name in left if name.endswith((".deleted", ".cleaned", ".swap"))]
    assert "00000000000000000001.log" not in left


def test_producer_snapshots_follow_the_segments_that_remain() -> None:
    log = CompactedLog()
    for number in range(3):
        log.put(*pairs(a=str(number)))
        log.roll()
    assert list(log.log.snapshots.offsets) == [1, 2, 3]
    log.clean()
    assert list(log.log.snapshots.offsets) == [3]


# Memory


def test_a_map_that_fills_up_takes_several_passes() -> None:
    log = CompactedLog(cleaner_config=CleanerConfig(dedupe_buffer_bytes=24 * 10))
    for number in range(40):
        log.put((b"k%d" % (number % 20), b"%d" % number))
    log.roll()
    passes = 0
    while log.cleaner.assess(log.log, log.now_ms).first_dirty_offset < 40:
        log.clean()
        passes += 1
        assert passes < 10
    assert passes == 5
    assert log.values() == {b"k%d" % k: b"%d" % (20 + k) for k in range(20)}
    assert offsets(log) == list(range(20, 40))


def test_the_map_may_fill_up_inside_a_batch() -> None:
    log = CompactedLog(cleaner_config=CleanerConfig(dedupe_buffer_bytes=24 * 10))
    log.put(*[(b"k%d" % (n % 20), b"%d" % n) for n in range(40)])
    log.roll()
    for _ in range(5):
        log.clean()
    assert log.values() == {b"k%d" % k: b"%d" % (20 + k) for k in range(20)}
    assert offsets(log) == list(range(20, 40))


def test_a_batch_larger_than_the_read_buffer_is_cleaned_too() -> None:
    log = CompactedLog(cleaner_config=CleanerConfig(io_buffer_bytes=5))
    log.put(*pairs(a="x" * 5000, b="1"))
    log.put(*pairs(a="2"))
    log.roll()
    log.clean()
    assert log.values() == {b"a": b"2", b"b": b"1"}
    assert offsets(log) == [1, 2]


# Damage


@pytest.mark.parametrize("position", [3, 10, 16, 30, 75, 130])
def test_damage_is_never_given_a_new_checksum(position: int, tmp_path: Path) -> None:
    log = CompactedLog(filesystem=DiskFileSystem(), root=tmp_path / "d")
    log.put(*pairs(a="1"))
    log.put(*pairs(a="2", b="2"))
    log.put(*pairs(b="3"))
    log.roll()
    path = log.log.segments[0].path()
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(DamagedSourceError):
        log.clean()
    assert not [name for name in log.file_names() if name.endswith(".cleaned")]
    log.clean()
    assert path.read_bytes() == content
    assert len(log.log.damaged) == 1
    assert not log.cleaner.uncleanable


def test_a_malformed_record_with_a_sound_checksum_is_refused() -> None:
    from crc32c import crc32c

    log = CompactedLog()
    log.put(*pairs(a="1"))
    log.roll()
    segment = log.log.segments[0]
    batch = bytearray(segment.file.read(0, segment.size))
    batch[61] = 0x7E
    batch[17:21] = struct.pack(">I", crc32c(batch[21:]))
    segment.file.write_at(0, batch)
    with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
        log.clean()
