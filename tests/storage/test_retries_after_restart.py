"""Retries of batches whose answers a stop or a crash took along: they get the offsets of the first
time, although a snapshot remembers only a producer's last batch.
"""

from pathlib import Path

import pytest
from storage.log_maker import SMALL_SEGMENTS, OneLog, records_batch

from moldau.protocol.batch_builder import BatchOptions
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.retention import delete_old_segments

IN_FLIGHT = 5


def batch(sequence: int, producer_id: int = 7, epoch: int = 0) -> bytearray:
    options = BatchOptions(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return bytearray(records_batch([b"x" * 100, b"y" * 100], options))


def append_all(one: OneLog, batches: int, producer_id: int = 7) -> list[int]:
    """The first offset of each."""
    return [
        one.log.append_as_leader(batch(2 * number, producer_id), 0, 1_000).first_offset
        for number in range(batches)
    ]


def roll(one: OneLog) -> None:
    """Another producer fills segments; each begins with a snapshot."""
    bases = one.log.segments.base_offsets
    sequence = 0
    while len(one.log.segments) < len(bases) + 2:
        one.log.append_as_leader(batch(sequence, producer_id=8), 0, 1_000)
        sequence += 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_last_five_batches_are_known_after_a_restart(tmp_path: Path, *, is_clean: bool) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    offsets = append_all(one, 12)
    roll(one)
    one.reopen(is_clean=is_clean)
    end = one.log.log_end_offset
    for number in range(12 - IN_FLIGHT, 12):
        answer = one.log.append_as_leader(batch(2 * number), 0, 2_000)
        assert answer.is_duplicate
        assert answer.first_offset == offsets[number]
    assert one.log.log_end_offset == end
    assert one.log.append_as_leader(batch(24), 0, 2_000).first_offset == end


def test_older_batches_than_that_are_refused_as_before(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    append_all(one, 12)
    one.reopen(is_clean=True)
    with pytest.raises(KafkaError) as refused:
        one.log.append_as_leader(batch(2 * (12 - IN_FLIGHT - 1)), 0, 2_000)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_a_gap_after_a_restart(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    append_all(one, 3)
    one.reopen(is_clean=True)
    with pytest.raises(KafkaError) as refused:
        one.log.append_as_leader(batch(8), 0, 2_000)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_retention_took_is_not_appended_again(tmp_path: Path) -> None:
    """Nobody knows its offsets any more, but that it was appended is certain."""
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    append_all(one, 4)
    roll(one)
    one.log.append_as_leader(batch(8), 0, 1_000)
    one.log.raise_high_watermark(one.log.log_end_offset)
    one.log.advance_log_start(one.log.segments[1].base_offset)
    delete_old_segments(one.log, 3_000)
    start = one.log.log_start_offset
    one.reopen(is_clean=True, log_start_offset=start, high_watermark=one.log.log_end_offset)
    end = one.log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        one.log.append_as_leader(batch(6), 0, 2_000)
    assert refused.value.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert one.log.append_as_leader(batch(8), 0, 2_000).is_duplicate
    assert one.log.append_as_leader(batch(10), 0, 2_000).first_offset == end


def test_another_epoch_has_nothing_to_do_with_it(tmp_path: Path) -> None:
    one = OneLog(tmp_path, SMALL_SEGMENTS)
    append_all(one, 4)
    one.reopen(is_clean=True)
    end = one.log.log_end_offset
    assert one.log.append_as_leader(batch(0, epoch=1), 0, 2_000).first_offset == end
    with pytest.raises(KafkaError) as refused:
        one.log.append_as_leader(batch(6, epoch=1), 0, 2_000)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
