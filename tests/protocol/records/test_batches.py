import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.batch_strategies import batch_options, record_lists, simple_records

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import (
    BATCH_HEADER_SIZE,
    Record,
    RecordBatch,
    TimestampType,
    add_to_sequence,
    iterate_batches,
    patch_append_time,
    patch_base_offset,
    patch_leader_epoch,
)
from moldau.protocol.records.compression import Compression
from moldau.types import ProducerEpoch


def test_a_view_shows_every_field_of_the_header() -> None:
    options = BatchOptions(
        partition_leader_epoch=9, producer_id=77, producer_epoch=ProducerEpoch(3),
        base_sequence=1000, is_transactional=True, compression=Compression.ZSTD,
    )  # fmt: skip
    records = [Record(40, 500, b"a", b"1"), Record(43, 700, None, b"2"), Record(44, 600, b"", None)]
    raw = build_batch(records, options)

    batch = RecordBatch(b"#" * 7 + raw + b"#" * 9, 7)

    assert (batch.position, batch.size_in_bytes, bytes(batch.view)) == (7, len(raw), raw)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (40, 44, 45)
    assert (batch.batch_length, batch.last_offset_delta) == (len(raw) - 12, 4)
    assert (batch.partition_leader_epoch, batch.magic, batch.record_count) == (9, 2, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (500, 700)
    assert (batch.producer_id, batch.producer_epoch) == (77, 3)
    assert (batch.base_sequence, batch.last_sequence) == (1000, 1004)
    assert (batch.compression, batch.is_compressed) == (Compression.ZSTD, True)
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert (batch.is_transactional, batch.is_control, batch.has_producer_id) == (True, False, True)
    assert batch.delete_horizon_ms is None
    assert batch.crc_is_valid()
    assert batch.records() == records


@given(records=record_lists(), options=batch_options())
@settings(deadline=None, max_examples=150)
def test_a_built_batch_is_read_back(records: list[Record], options: BatchOptions) -> None:
    batch = RecordBatch(build_batch(records, options))
    batch.check_crc()
    assert batch.records() == records
    assert batch.max_timestamp == max(record.timestamp for record in records)


def test_append_time_is_every_records_time() -> None:
    buffer = bytearray(b"##" + build_batch(simple_records(3)))
    patch_append_time(buffer, 2, 1234)

    batch = RecordBatch(buffer, 2)

    batch.check_crc()
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in batch.records()] == [1234] * 3


@given(options=batch_options(), offset=st.integers(0, 2**62), epoch=st.integers(0, 2**31 - 1))
@settings(deadline=None, max_examples=50)
def test_offset_and_epoch_are_patched_without_a_new_checksum(
    options: BatchOptions, offset: int, epoch: int
) -> None:
    original = build_batch(simple_records(4), options)
    buffer = bytearray(original)
    patch_base_offset(buffer, 0, offset)
    patch_leader_epoch(buffer, 0, epoch)

    batch = RecordBatch(buffer)

    assert batch.crc == RecordBatch(original).crc
    batch.check_crc()
    assert (batch.base_offset, batch.partition_leader_epoch) == (offset, epoch)
    assert [record.offset for record in batch.records()] == list(range(offset, offset + 4))


def test_every_flipped_bit_under_the_checksum_is_detected() -> None:
    raw = build_batch(simple_records(2))
    for position in range(21, len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 0x10
        with pytest.raises(KafkaError) as caught:
            RecordBatch(damaged).check_crc()
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_partial_batch_at_the_end_is_skipped() -> None:
    first, second = build_batch(simple_records(3)), build_batch(simple_records(2))
    whole = first + second
    for cut in range(len(whole)):
        found = [batch.size_in_bytes for batch in iterate_batches(whole[:cut])]
        assert found == ([len(first)] if cut >= len(first) else [])
    assert len(list(iterate_batches(whole))) == 2
    assert len(list(iterate_batches(whole, end=len(whole) - 1))) == 1
    assert [batch.position for batch in iterate_batches(whole, len(first))] == [len(first)]


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (255, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_other_message_formats_are_refused(magic: int, code: ErrorCode) -> None:
    raw = bytearray(build_batch(simple_records(1)))
    raw[16] = magic
    with pytest.raises(KafkaError) as caught:
        RecordBatch(raw)
    assert caught.value.code is code


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48, 10_000, 2**31 - 1])
def test_an_impossible_length_is_refused(length: int) -> None:
    raw = bytearray(build_batch(simple_records(1)))
    struct.pack_into(">i", raw, 8, length)
    with pytest.raises(KafkaError) as caught:
        RecordBatch(raw)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_truncated_batch_is_never_accepted() -> None:
    raw = build_batch(simple_records(1))
    for size in range(len(raw)):
        with pytest.raises(KafkaError):
            RecordBatch(raw[:size])


def test_sequences_continue_at_zero_after_the_largest() -> None:
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(2**31 - 3, 4) == 1
    raw = build_batch(simple_records(5), BatchOptions(producer_id=1, base_sequence=2**31 - 2))
    assert RecordBatch(raw).last_sequence == 2
    assert RecordBatch(build_batch(simple_records(5))).last_sequence == -1


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unassigned_codec_is_reported_as_such(codec: int) -> None:
    raw = bytearray(build_batch(simple_records(1)))
    raw[22] |= codec
    with pytest.raises(KafkaError) as caught:
        RecordBatch(raw).records()
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    batch = RecordBatch(build_batch(simple_records(2), BatchOptions(delete_horizon_ms=99)))
    assert (batch.has_delete_horizon, batch.delete_horizon_ms) == (True, 99)
    assert batch.records() == simple_records(2)


def test_the_header_has_sixty_one_bytes() -> None:
    assert BATCH_HEADER_SIZE == 61
    assert len(build_batch([Record(0, 0, None, None)])) == 61 + 7
