"""Retries of batches whose responses were lost in a stop or a crash: they get their original
offsets, although a snapshot remembers only a producer's last batch.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from storage.log_maker import SMALL_SEGMENTS, OneLog, records_batch

from moldau.config.log import LogConfig
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions
from moldau.storage.disk.cached_reads import NotCachedError
from moldau.storage.log.append import AppendResult
from moldau.storage.log.retention import delete_old_segments
from moldau.storage.producers.entry import BatchMetadata, ProducerEntry
from moldau.storage.producers.forgotten_batches import SEARCH_BYTES
from moldau.storage.producers.state import ProducerStateTable
from moldau.types import LeaderEpoch, Offset, ProducerEpoch

IN_FLIGHT = 5


def batch(sequence: int, producer_id: int = 7, epoch: int = 0, size: int = 100) -> bytearray:
    options = BatchOptions(
        producer_id=producer_id, producer_epoch=ProducerEpoch(epoch), base_sequence=sequence
    )
    return bytearray(records_batch([b"x" * size, b"y" * 100], options))


def append_all(one: OneLog, batches: int, producer_id: int = 7) -> list[int]:
    """Returns the first offset of each batch."""
    return [
        one.log.append_as_leader(batch(2 * number, producer_id), LeaderEpoch(0), 1_000).first_offset
        for number in range(batches)
    ]


def retried(one: OneLog, records: bytearray) -> AppendResult:
    """Appends as a broker does: threads load bytes that may not be in the page cache."""
    while True:
        try:
            return one.log.append_as_leader(records, LeaderEpoch(0), 2_000)
        except NotCachedError as cold:
            one.log.adopt(cold.load())


def roll(one: OneLog) -> None:
    """Another producer fills segments; each begins with a snapshot."""
    bases = one.log.segments.base_offsets
    sequence = 0
    while len(one.log.segments) < len(bases) + 2:
        one.log.append_as_leader(batch(sequence, producer_id=8), LeaderEpoch(0), 1_000)
        sequence += 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_last_five_batches_are_known_after_a_restart(tmp_path: Path, *, is_clean: bool) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    offsets = append_all(one, 12)
    roll(one)
    one.reopen(is_clean=is_clean)
    end = one.log.log_end_offset
    for number in range(12 - IN_FLIGHT, 12):
        answer = retried(one, batch(2 * number))
        assert answer.is_duplicate
        assert answer.first_offset == offsets[number]
    assert one.log.log_end_offset == end
    assert one.log.append_as_leader(batch(24), LeaderEpoch(0), 2_000).first_offset == end


def test_batches_older_than_that_are_refused_as_before(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    append_all(one, 12)
    one.reopen(is_clean=True)
    with pytest.raises(KafkaError) as refused:
        retried(one, batch(2 * (12 - IN_FLIGHT - 1)))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_a_gap_after_a_restart(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    append_all(one, 3)
    one.reopen(is_clean=True)
    with pytest.raises(KafkaError) as refused:
        one.log.append_as_leader(batch(8), LeaderEpoch(0), 2_000)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_retention_deleted_is_not_appended_again(tmp_path: Path) -> None:
    """Its offsets are unknown now, but it was certainly appended."""
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    append_all(one, 4)
    roll(one)
    one.log.append_as_leader(batch(8), LeaderEpoch(0), 1_000)
    one.log.raise_high_watermark(one.log.log_end_offset)
    one.log.advance_log_start(one.log.segments[1].base_offset)
    delete_old_segments(one.log, 3_000)
    start = one.log.log_start_offset
    one.reopen(is_clean=True, log_start_offset=start, high_watermark=one.log.log_end_offset)
    end = one.log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        retried(one, batch(6))
    assert refused.value.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert one.log.append_as_leader(batch(8), LeaderEpoch(0), 2_000).is_duplicate
    assert one.log.append_as_leader(batch(10), LeaderEpoch(0), 2_000).first_offset == end


@pytest.mark.parametrize("value_bytes", [100, 200_000, 900_000])
def test_large_batches_are_found_and_nothing_counts_as_damaged(
    tmp_path: Path, value_bytes: int
) -> None:
    one = OneLog(tmp_path)
    offsets = [
        one.log.append_as_leader(
            batch(2 * number, size=value_bytes), LeaderEpoch(0), 1_000
        ).first_offset
        for number in range(3)
    ]
    one.reopen(is_clean=True)
    for number in range(3):
        assert retried(one, batch(2 * number, size=value_bytes)).first_offset == offsets[number]
    assert one.log.damage is None
    assert one.directory.is_online


def test_the_search_is_bounded(tmp_path: Path) -> None:
    """For any number of segments, and any writes of other producers in between."""
    one = OneLog(tmp_path, LogConfig(segment_bytes=1 << 20))
    append_all(one, 3)
    while one.log.log_end_offset < 4 * SEARCH_BYTES // 100_000:
        one.log.append_as_leader(records_batch([bytes(100_000)]), LeaderEpoch(0), 1_000)
    one.log.append_as_leader(batch(6), LeaderEpoch(0), 1_000)
    one.reopen(is_clean=True)
    with pytest.raises(NotCachedError) as cold:
        one.log.append_as_leader(batch(4), LeaderEpoch(0), 2_000)
    one.log.adopt(cold.value.load())
    with pytest.raises(KafkaError) as refused:
        one.log.append_as_leader(batch(4), LeaderEpoch(0), 2_000)
    assert refused.value.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert one.log.append_as_leader(batch(6), LeaderEpoch(0), 2_000).is_duplicate
    assert one.log.append_as_leader(batch(8), LeaderEpoch(0), 2_000).first_offset >= 0


def test_a_batch_that_follows_the_last_one_needs_no_search(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    append_all(one, 12)
    one.reopen(is_clean=True)
    end = one.log.log_end_offset
    assert one.log.append_as_leader(batch(24), LeaderEpoch(0), 2_000).first_offset == end


def test_a_damaged_batch_of_another_hides_no_retry(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    append_all(one, 7)
    position = one.log.segments.active.size
    one.log.append_as_leader(batch(0, producer_id=8), LeaderEpoch(0), 1_000)
    offsets = [
        one.log.append_as_leader(batch(2 * number), LeaderEpoch(0), 1_000).first_offset
        for number in range(7, 10)
    ]
    path = one.log.segments.active.path()
    one.log.close()
    content = bytearray(path.read_bytes())
    content[position + 16] = 0
    path.write_bytes(content)
    one.open(is_clean=True)
    for number, offset in zip(range(7, 10), offsets, strict=True):
        assert retried(one, batch(2 * number)).first_offset == offset


def test_batches_before_a_gap_of_compaction_count_as_forgotten(tmp_path: Path) -> None:
    """The batches after the gap may not be all that are in flight."""
    table = ProducerStateTable()
    searches: list[Callable[[list[BatchMetadata]], None]] = []

    def search(_entry: ProducerEntry, found: Callable[[list[BatchMetadata]], None]) -> Exception:
        searches.append(found)
        return NotCachedError(tmp_path, lambda: lambda: None, 0, lambda: False)

    table.search_log = search
    entry = ProducerEntry(7)
    entry.add_batch(ProducerEpoch(0), BatchMetadata(9, 9, Offset(9), Offset(9), 1_000))
    table.load([entry], end_offset=Offset(10), now_ms=1_000)
    known = table.entry(7)
    assert known is not None
    with pytest.raises(NotCachedError):
        table.recall(known)
    searches[0](
        [
            BatchMetadata(number, number, Offset(number), Offset(number), 1_000)
            for number in (3, 4, 8)
        ]
    )
    assert [each.first_sequence for each in known.batches] == [8, 9]
    assert table.recall(known), "there may be more"


def test_batches_of_another_epoch_are_ignored(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    append_all(one, 4)
    one.reopen(is_clean=True)
    end = one.log.log_end_offset
    assert one.log.append_as_leader(batch(0, epoch=1), LeaderEpoch(0), 2_000).first_offset == end
    with pytest.raises(KafkaError) as refused:
        one.log.append_as_leader(batch(6, epoch=1), LeaderEpoch(0), 2_000)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
