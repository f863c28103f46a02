"""Bad batches: each is refused with the code that a Kafka client expects."""

import struct
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.batch_damage import damage
from protocol.batch_strategies import compiled, outcome, simple_records

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records import _records_twin, batch_validation
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batch_validation import (
    InvalidRecordsError,
    RecordError,
    ValidationRules,
    sole_batch,
)
from moldau.protocol.records.batches import Record, TimestampType, patch_crc
from moldau.protocol.records.compression import Compression, compress
from moldau.types import ProducerEpoch, TopicPartition

NOW_MS = 1_700_000_000_000
RULES = ValidationRules(now_ms=NOW_MS)


def refusal(records: bytes | bytearray | None, rules: ValidationRules = RULES) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        sole_batch(records).validate(rules)
    return caught.value


def changed(at: int, kind: str, number: int, raw: bytes | None = None) -> bytearray:
    """A sound batch with one field of its header changed and a valid checksum."""
    buffer = bytearray(build_batch(simple_records(3)) if raw is None else raw)
    struct.pack_into(kind, buffer, at, number)
    patch_crc(buffer, 0)
    return buffer


def with_body(body: bytes, count: int, codec: Compression = Compression.NONE) -> bytearray:
    """A batch with these bytes as its records."""
    buffer = bytearray(build_batch(simple_records(1)))[:61] + body
    struct.pack_into(">i", buffer, 8, len(buffer) - 12)
    struct.pack_into(">h", buffer, 21, codec)
    struct.pack_into(">i", buffer, 23, count - 1)
    struct.pack_into(">i", buffer, 57, count)
    patch_crc(buffer, 0)
    return buffer


@pytest.mark.parametrize("codec", Compression)
def test_a_sound_batch_passes_and_returns_its_largest_timestamp(codec: Compression) -> None:
    records = [
        Record(0, NOW_MS - 5, b"a", b"1"),
        Record(1, NOW_MS + 9, None, None, (("h", None),)),
        Record(2, -1, b"", b""),
    ]
    raw = build_batch(records, BatchOptions(compression=codec))
    validated = sole_batch(raw).validate(RULES)
    assert validated.max_timestamp == NOW_MS + 9
    assert validated.offset_delta_of_max_timestamp == 1
    assert validated.record_count == 3


@pytest.mark.parametrize("records", [None, b"", b"short", build_batch(simple_records(1))[:-1]])
def test_no_whole_batch_is_an_invalid_record(records: bytes | None) -> None:
    assert refusal(records).code is ErrorCode.INVALID_RECORD


def test_a_second_batch_or_anything_after_the_first_is_refused() -> None:
    raw = build_batch(simple_records(1))
    assert refusal(raw + raw).code is ErrorCode.INVALID_RECORD
    assert refusal(raw + b"\0").code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: changed(16, ">b", 0), ErrorCode.INVALID_RECORD),
        (lambda: changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
        (lambda: changed(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
        (lambda: changed(16, ">b", -1), ErrorCode.CORRUPT_MESSAGE),
        (lambda: changed(0, ">q", 1), ErrorCode.INVALID_RECORD),
        (lambda: changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
        (lambda: changed(57, ">i", -3), ErrorCode.INVALID_RECORD),
        (lambda: changed(57, ">i", 2), ErrorCode.INVALID_RECORD),
        (lambda: changed(57, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
        (lambda: changed(23, ">i", -1), ErrorCode.INVALID_RECORD),
        (lambda: changed(23, ">i", 5), ErrorCode.INVALID_RECORD),
        (lambda: changed(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
        (lambda: changed(21, ">h", 0x40), ErrorCode.INVALID_RECORD),
        (lambda: changed(43, ">q", 7), ErrorCode.INVALID_RECORD),
        (lambda: changed(21, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP),
        (lambda: changed(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda: changed(21, ">h", 6), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda: changed(21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda: changed(21, ">h", Compression.GZIP), ErrorCode.CORRUPT_MESSAGE),
        (lambda: changed(21, ">h", Compression.LZ4), ErrorCode.CORRUPT_MESSAGE),
        (lambda: changed(21, ">h", Compression.ZSTD), ErrorCode.CORRUPT_MESSAGE),
        (lambda: changed(21, ">h", Compression.SNAPPY), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_false_headers_are_refused(make: Callable[[], bytearray], code: ErrorCode) -> None:
    assert refusal(make()).code is code


def test_a_wrong_checksum_is_corruption() -> None:
    raw = bytearray(build_batch(simple_records(2)))
    raw[-1] ^= 1
    assert refusal(raw).code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_over_the_topics_limit_is_too_large() -> None:
    raw = build_batch(simple_records(3))
    exact = ValidationRules(now_ms=NOW_MS, batch_bytes_max=len(raw))
    assert sole_batch(raw).validate(exact).record_count == 3
    below = ValidationRules(now_ms=NOW_MS, batch_bytes_max=len(raw) - 1)
    assert refusal(raw, below).code is ErrorCode.MESSAGE_TOO_LARGE


RECORD = bytes([12, 0, 0, 0, 1, 1, 0])  # length 6, no key, no value, no headers


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x80\x80\x80\x80\x80\x01" + RECORD, id="length of six bytes"),
        pytest.param(bytes([14, *RECORD[1:]]), id="length beyond the end"),
        pytest.param(bytes([10, *RECORD[1:]]), id="length too small"),
        pytest.param(b"\x01" + RECORD[1:], id="negative length"),
        pytest.param(bytes([0]) + bytes(6), id="empty record"),
        pytest.param(RECORD + b"\0", id="bytes after the last record"),
        pytest.param(bytes([12, 0, 0, 0, 8, 1, 0]), id="key beyond the record"),
        pytest.param(bytes([12, 0, 0, 0, 1, 8, 0]), id="value beyond the record"),
        pytest.param(bytes([12, 0, 0, 0, 1, 1, 1]), id="negative header count"),
        pytest.param(bytes([12, 0, 0, 0, 1, 1, 20]), id="more headers than bytes"),
        pytest.param(bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]), id="header without a name"),
        pytest.param(bytes([16, 0, 0, 0, 1, 1, 2, 40, 1]), id="header beyond the record"),
        pytest.param(bytes([12, 0, 0x80, 0x80, 0x80, 0x80, 0x80]), id="timestamp without an end"),
        pytest.param(bytes([2, 0]) + bytes(5), id="record of one byte"),
    ],
)
def test_a_record_with_a_false_size_is_refused(body: bytes, codec: Compression) -> None:
    packed = bytes(compress(codec, body))
    assert refusal(with_body(packed, 1, codec)).code is ErrorCode.INVALID_RECORD


def test_the_smallest_record_passes() -> None:
    assert sole_batch(with_body(RECORD, 1)).validate(RULES).record_count == 1


def test_offset_deltas_count_from_zero() -> None:
    body = bytes([12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 4, 1, 1, 0])
    error = refusal(with_body(body, 2))
    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, InvalidRecordsError)
    assert [entry.batch_index for entry in error.record_errors] == [1]


def test_records_without_a_key_are_listed_on_compacted_topics() -> None:
    rules = ValidationRules(now_ms=NOW_MS, partition=TopicPartition("t", 3), keys_required=True)
    records = [Record(i, NOW_MS, b"k" if i % 2 else None, b"v") for i in range(5)]
    error = refusal(build_batch(records), rules)
    assert isinstance(error, InvalidRecordsError)
    assert error.code is ErrorCode.INVALID_RECORD
    text = "Compacted topic cannot accept message without key in topic partition t-3"
    assert error.record_errors == [RecordError(i, text) for i in (0, 2, 4)]
    shown = ", ".join(f"RecordError(batchIndex={i}, message='{text}')" for i in (0, 2, 4))
    assert error.detail == (
        "One or more records have been rejected due to 3 record errors in total, and only showing "
        f"the first three errors at most: [{shown}]"
    )
    assert sole_batch(build_batch(records)).validate(RULES).record_count == 5
    empty_key = build_batch([Record(0, NOW_MS, b"", None)])
    assert sole_batch(empty_key).validate(rules).record_count == 1


@pytest.mark.parametrize(
    ("timestamp", "passes"),
    [
        (NOW_MS - 1000, True),
        (NOW_MS - 1001, False),
        (NOW_MS + 500, True),
        (NOW_MS + 501, False),
        (-1, True),
        (-5, False),
        (2**63 - 1, False),
        (-(2**63), False),
    ],
)
def test_timestamps_keep_within_the_topics_limits(timestamp: int, passes: bool) -> None:
    rules = ValidationRules(now_ms=NOW_MS, timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    raw = build_batch([Record(0, NOW_MS, b"k", b"v"), Record(1, timestamp, b"k", b"v")])
    if passes:
        assert sole_batch(raw).validate(rules).record_count == 2
    else:
        error = refusal(raw, rules)
        assert error.code is ErrorCode.INVALID_TIMESTAMP
        assert isinstance(error, InvalidRecordsError)
        assert error.detail == "One or more records have been rejected due to invalid timestamp"
        text = (
            f"Timestamp {timestamp} of message with offset 1 is out of range. "
            f"The timestamp should be within [{NOW_MS - 1000}, {NOW_MS + 500}]"
        )
        assert error.record_errors == [RecordError(1, text)]


def test_a_negative_timestamp_is_refused_even_without_limits() -> None:
    raw = build_batch([Record(0, -5, None, b"v")])
    error = refusal(raw)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, InvalidRecordsError)
    assert f"should be within [0, {2**63 - 1}]" in error.record_errors[0].message


def test_with_append_time_the_producers_clock_does_not_matter() -> None:
    rules = ValidationRules(
        now_ms=NOW_MS, timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=1,
        timestamp_after_max_ms=1,
    )  # fmt: skip
    raw = build_batch([Record(0, 5, None, b"v"), Record(1, 2**60, None, b"v")])
    validated = sole_batch(raw).validate(rules)
    assert (validated.max_timestamp, validated.offset_delta_of_max_timestamp) == (NOW_MS, 1)


def test_a_wrong_timestamp_determines_the_code_before_a_missing_key() -> None:
    rules = ValidationRules(now_ms=NOW_MS, keys_required=True, timestamp_after_max_ms=1)
    raw = build_batch([Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS + 2, b"k", b"v")])
    error = refusal(raw, rules)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, InvalidRecordsError)
    assert len(error.record_errors) == 2


def test_the_list_of_refused_records_is_bounded() -> None:
    rules = ValidationRules(now_ms=NOW_MS, keys_required=True)
    raw = build_batch([Record(i, NOW_MS, None, None) for i in range(5000)])
    error = refusal(raw, rules)
    assert isinstance(error, InvalidRecordsError)
    assert len(error.record_errors) == 1000
    assert "5000 record errors in total" in error.detail
    assert error.detail.count("RecordError(") == 3


def test_zstd_can_be_refused_for_old_peers() -> None:
    raw = build_batch(simple_records(2), BatchOptions(compression=Compression.ZSTD))
    rules = ValidationRules(now_ms=NOW_MS, zstd_allowed=False)
    assert refusal(raw, rules).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    lz4 = build_batch(simple_records(2), BatchOptions(compression=Compression.LZ4))
    assert sole_batch(lz4).validate(rules).record_count == 2


def test_a_coordinator_may_write_batches_that_a_client_may_not() -> None:
    options = BatchOptions(
        producer_id=4, producer_epoch=ProducerEpoch(0), is_control=True, is_transactional=True
    )
    raw = build_batch([Record(0, NOW_MS, b"\0\0\0\1", b"\0\0\0\0\0\0")], options)
    assert refusal(raw).code is ErrorCode.INVALID_RECORD
    rules = ValidationRules(now_ms=NOW_MS, from_client=False)
    assert sole_batch(raw).validate(rules).record_count == 1


def test_a_bomb_is_too_large() -> None:
    raw = build_batch(
        [Record(0, NOW_MS, None, bytes(1 << 20))], BatchOptions(compression=Compression.GZIP)
    )
    rules = ValidationRules(now_ms=NOW_MS, decompressed_bytes_max=1 << 16)
    assert refusal(raw, rules).code is ErrorCode.MESSAGE_TOO_LARGE


def verdict(raw: bytes, loop: Any) -> Any:
    """The result of validation with this implementation of the walk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_validation, "validate_records", loop)
        return outcome(lambda: sole_batch(raw).validate(RULES))


@pytest.mark.parametrize("codec", Compression)
@given(seed=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_mutated_batches_are_refused_cleanly_and_alike_by_both_loops(
    codec: Compression, seed: Random
) -> None:
    raw = build_batch(simple_records(seed.randrange(1, 12)), BatchOptions(compression=codec))
    for _ in range(10):
        damaged = bytearray(damage(raw, seed))
        if len(damaged) >= 61 and seed.randrange(4):
            # With a valid length and checksum the damage reaches the records.
            struct.pack_into(">i", damaged, 8, len(damaged) - 12)
            patch_crc(damaged, 0)
        found = verdict(bytes(damaged), compiled.validate_records)
        assert found == verdict(bytes(damaged), _records_twin.validate_records)
        assert isinstance(found, batch_validation.ValidatedBatch) or found[0] in {
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.INVALID_TIMESTAMP,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        }
