"""Compiled loops and Python twins give the same results and the same errors, for sound and for
damaged input.
"""

import struct
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.batch_damage import damage
from protocol.batch_strategies import (
    IMPLEMENTATIONS,
    batch_options,
    compiled,
    contents,
    names,
    outcome,
    record_lists,
    simple_records,
)

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records import _record_columns_twin, _records_twin
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batch_validation import ValidationRules, sole_batch, validate_batch
from moldau.protocol.records.batches import Record, RecordBatch, patch_base_offset
from moldau.protocol.records.checksum import crc32c
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.record_columns import BinaryColumn, HeaderColumns, SourceColumns
from moldau.protocol.records.record_loops import StampLimits, scan_batches
from moldau.types import ProducerEpoch

Loops = tuple[Any, Any]


def body_of(records: list[Record]) -> tuple[bytes, int, int, int]:
    """A body, its count, base offset and base timestamp."""
    batch = RecordBatch(build_batch(records))
    return bytes(batch.view[61:]), batch.record_count, batch.base_offset, batch.base_timestamp


def everything(loops: Loops, body: bytes, count: int, base_offset: int, base_time: int) -> Any:
    """The results of all reading loops for a body."""
    records, columns = loops
    bounds = (0, len(body))
    arguments = (body, bounds, count, base_offset, base_time)
    decoded = outcome(records.decode_records, *arguments, None)
    sink = columns.ColumnSink(True, True, True)
    appended = [
        outcome(sink.append, body, bounds, count, base, wanted)
        for base, wanted in (
            ((base_offset, base_time, None), (base_offset + 1, 2**62)),
            ((base_offset, base_time, 5), (0, 2**62)),
        )
    ]
    return (
        decoded,
        outcome(records.decode_records, *arguments, 77),
        outcome(records.validate_records, body, bounds, count, base_time, (0, 2**40), True),
        outcome(records.validate_records, body, bounds, count, base_time, None, False),
        appended,
        # The content of a sink after an error is undefined.
        sink.finish() if isinstance(decoded, list) else None,
    )


COMPILED: Loops = (compiled, compiled)
TWIN: Loops = (_records_twin, _record_columns_twin)


@given(records=record_lists())
@settings(deadline=None, max_examples=150)
def test_loop_and_twin_read_the_same(records: list[Record]) -> None:
    body = body_of(records)
    assert everything(COMPILED, *body) == everything(TWIN, *body)


@given(
    records=record_lists(max_size=5),
    seed=st.randoms(use_true_random=False),
    wrong_count=st.integers(-2, 3),
)
@settings(deadline=None, max_examples=400)
def test_loop_and_twin_refuse_the_same_for_the_same_reason(
    records: list[Record], seed: Random, wrong_count: int
) -> None:
    body, count, base_offset, base_time = body_of(records)
    damaged = damage(body, seed)
    arguments = (damaged, count + wrong_count, base_offset, base_time)
    assert everything(COMPILED, *arguments) == everything(TWIN, *arguments)


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
@given(seed=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_mutated_bodies_raise_nothing_but_an_invalid_record(loops: Loops, seed: Random) -> None:
    records = [
        Record(i, 1000 + i, b"k" * (i % 70), b"v" * i, (("h", b"x" * i),) * (i % 3))
        for i in range(seed.randrange(1, 30))
    ]
    body, count, base_offset, base_time = body_of(records)
    for _ in range(25):
        damaged = damage(body, seed)
        found = outcome(
            loops[0].decode_records, damaged, (0, len(damaged)), count, base_offset, base_time, None
        )
        assert isinstance(found, list) or found[0] is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
def test_every_cut_of_a_body_is_refused(loops: Loops) -> None:
    records = [Record(0, 5, b"key", b"value", (("name", b"content"), ("n", None)))]
    body, count, base_offset, base_time = body_of(records)
    for size in range(len(body)):
        for scenery in (b"", b"\0" * 40):
            # Bytes after the bounds must not be read, so the same cut is tried with and without
            # them.
            with pytest.raises(KafkaError):
                loops[0].decode_records(
                    body[:size] + scenery, (0, size), count, base_offset, base_time, None
                )


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
@pytest.mark.parametrize("bounds", [(-1, 3), (3, 2), (0, 100)])
def test_bounds_outside_the_buffer_are_a_callers_error(
    loops: Loops, bounds: tuple[int, int]
) -> None:
    with pytest.raises(ValueError, match="records in"):
        loops[0].decode_records(bytes(10), bounds, 1, 0, 0, None)
    with pytest.raises(ValueError, match="scan of"):
        loops[0].scan_batches(bytes(10), *bounds, True)


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1, 2**40])
def test_a_count_that_the_bytes_cannot_hold_allocates_nothing(loops: Loops, count: int) -> None:
    body, _, _, _ = body_of([Record(0, 5, None, None)])
    with pytest.raises(KafkaError) as caught:
        loops[0].decode_records(body, (0, len(body)), count, 0, 0, None)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
def test_header_names_that_are_not_utf8_are_repaired_as_java_does(loops: Loops) -> None:
    body = bytes([22, 0, 0, 0, 1, 1, 2, 6, ord("a"), 0xFF, ord("b"), 1])
    (record,) = loops[0].decode_records(body, (0, len(body)), 1, 0, 0, None)
    assert record[4] == (("a\N{REPLACEMENT CHARACTER}b", None),)
    sink = loops[1].ColumnSink()
    sink.append(body, (0, len(body)), 1, (0, 0, None), (0, 10))
    names = sink.finish().headers.names
    assert bytes(names.content).decode() == "a\N{REPLACEMENT CHARACTER}b"


@given(
    records=st.lists(
        st.tuples(
            st.integers(-(2**31), 2**31 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.none() | st.binary(max_size=150),
            st.none() | st.binary(max_size=150).map(bytearray),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        max_size=8,
    ),
    base_timestamp=st.integers(-(2**63), 2**63 - 1),
)
@settings(deadline=None, max_examples=150)
def test_loop_and_twin_write_the_same(records: list[Any], base_timestamp: int) -> None:
    written = compiled.encode_records(records, base_timestamp, 61)
    assert written == _records_twin.encode_records(records, base_timestamp, 61)
    decoded = compiled.decode_records(
        written, (61, len(written)), len(records), 0, base_timestamp, None
    )
    assert [(o, t, k, v, list(h)) for o, t, k, v, h in decoded] == records


def test_an_offset_delta_beyond_32_bits_is_not_written() -> None:
    for module in (compiled, _records_twin):
        with pytest.raises(OverflowError, match="32 bits"):
            module.encode_records([(2**31, 0, None, None, ())], 0, 0)
        with pytest.raises(OverflowError, match="32 bits"):
            module.encode_records([(2**63 - 1, 0, None, None, ())], 0, 0, -(2**63))
        written = module.encode_records([(7, 0, None, None, ())], 0, 0, 7 + 2**31)
        assert module.decode_records(written, (0, len(written)), 1, 0, 0, None)[0][0] == -(2**31)


# The recovery scan


@given(batches=st.lists(st.tuples(record_lists(max_size=3), batch_options()), max_size=4),
       seed=st.randoms(use_true_random=False), verify_crc=st.booleans())  # fmt: skip
@settings(deadline=None, max_examples=200)
def test_loop_and_twin_scan_the_same(
    batches: list[tuple[list[Record], BatchOptions]], seed: Random, verify_crc: bool
) -> None:
    segment = b"".join(build_batch(records, options) for records, options in batches)
    for content in (segment, damage(segment, seed)):
        arguments = (content, 0, len(content), verify_crc)
        assert compiled.scan_batches(*arguments) == _records_twin.scan_batches(*arguments)


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
def test_a_scan_returns_all_headers_and_stops_at_damage(loops: Loops) -> None:
    scan = loops[0].scan_batches
    options = BatchOptions(
        partition_leader_epoch=4, producer_id=9, producer_epoch=ProducerEpoch(2), base_sequence=7
    )
    first, second = (
        build_batch(simple_records(3), options),
        bytearray(build_batch(simple_records(2))),
    )
    patch_base_offset(second, 0, 3)
    segment = first + second
    headers, end, problem = scan(segment, 0, len(segment), True)
    batch = RecordBatch(first)
    assert headers[0] == (
        0, len(first), 0, 2, 4, batch.max_timestamp, 0, 9, 2, 7, 2, 3, batch.base_timestamp,
    )  # fmt: skip
    assert (headers[1][:4], end, problem) == (
        (len(first), len(second), 3, 4),
        len(segment),
        None,
    )
    assert scan(segment, len(first), len(segment), True)[0] == headers[1:]
    for cut in range(len(first) + 1, len(segment)):
        assert scan(segment, 0, cut, True) == (headers[:1], len(first), "incomplete batch")
    damaged = bytearray(segment)
    damaged[-1] ^= 1
    assert scan(damaged, 0, len(damaged), True) == (headers[:1], len(first), "checksum mismatch")
    assert scan(damaged, 0, len(damaged), False)[2] is None


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("at", "kind", "number", "problem"),
    [
        (8, ">i", 48, "impossible batch length"),
        (8, ">i", -1, "impossible batch length"),
        (8, ">i", 2**31 - 1, "incomplete batch"),
        (16, ">b", 1, "unknown magic"),
        (16, ">b", 3, "unknown magic"),
        (0, ">q", 1, "offsets do not increase"),
        (0, ">q", -5, "offsets do not increase"),
        (23, ">i", -1, "offsets do not increase"),
    ],
)
def test_a_scan_reports_the_problem(
    loops: Loops, at: int, kind: str, number: int, problem: str
) -> None:
    first, second = build_batch(simple_records(2)), bytearray(build_batch(simple_records(2)))
    patch_base_offset(second, 0, 2)
    struct.pack_into(kind, second, at, number)
    segment = first + second
    headers, end, found = loops[0].scan_batches(segment, 0, len(segment), False)
    assert (len(headers), end, found) == (1, len(first), problem)


# Columns to records


def binary_column(cells: list[bytes | None], start: int = 0) -> BinaryColumn:
    content, offsets, bits = b"", [0], bytearray(len(cells) // 8 + 1)
    for index, cell in enumerate(cells):
        content += cell or b""
        offsets.append(len(content))
        if cell is not None:
            bits[index >> 3] |= 1 << (index & 7)
    packed = struct.pack(f"<{len(offsets)}i", *offsets)
    return BinaryColumn(packed, content, bits if None in cells else None, cells.count(None), start)


@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.binary(max_size=40),
            st.none() | st.binary(max_size=200),
            st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**41),
            st.none() | st.lists(st.tuples(names, contents), max_size=3),
        ),
        min_size=1, max_size=12,
    ),
    skipped=st.integers(0, 3), body_bytes_max=st.sampled_from([1, 60, 500, 10**6]),
    with_keys=st.booleans(), with_headers=st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=150)
def test_loop_and_twin_build_the_same_from_columns(
    rows: list[Any], skipped: int, body_bytes_max: int, with_keys: bool, with_headers: bool
) -> None:
    padding = [(b"?", b"??", 0, None)] * skipped
    padded = padding + rows
    lists = [0]
    pairs: list[tuple[str, bytes | None]] = []
    for row in padded:
        pairs += row[3] or []
        lists.append(len(pairs))
    headers = HeaderColumns(
        struct.pack(f"<{len(lists)}i", *lists), None,
        binary_column([name.encode() for name, _ in pairs]),
        binary_column([content for _, content in pairs]), 0, skipped,
    )  # fmt: skip
    columns = SourceColumns(
        len(rows),
        binary_column([row[0] for row in padded], skipped) if with_keys else None,
        binary_column([row[1] for row in padded], skipped),
        headers if with_headers else None,
        struct.pack(f"<{len(padded)}q", *(row[2] for row in padded)),
        skipped,
    )
    first_row = 0
    while first_row < len(rows):
        arguments = (columns, first_row, 0, body_bytes_max, 3)
        built = compiled.encode_columns(*arguments)
        assert built == _record_columns_twin.encode_columns(*arguments)
        decoded = compiled.decode_records(
            built.body, (3, len(built.body)), built.rows, 0, built.base_timestamp, None
        )
        for (offset, *record), row in zip(decoded, rows[first_row:], strict=False):
            key = row[0] if with_keys else None
            expected_headers = tuple(row[3] or ()) if with_headers else ()
            assert record == [row[2], key, row[1], expected_headers], offset
        assert built.rows == 1 or len(built.body) - 3 <= body_bytes_max
        first_row += built.rows


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "columns",
    [
        SourceColumns(3, None, BinaryColumn(bytes(12), b"", None)),
        SourceColumns(1, None, BinaryColumn(struct.pack("<2i", 0, 5), b"1234", None)),
        SourceColumns(1, None, BinaryColumn(struct.pack("<2i", 3, 1), b"1234", None)),
        SourceColumns(1, None, BinaryColumn(struct.pack("<2i", -4, 1), b"1234", None)),
        SourceColumns(9, None, BinaryColumn(bytes(40), b"", b"\xff")),
        SourceColumns(2**62, None, BinaryColumn(bytes(16), b"", None, 0, 2**62)),
        SourceColumns(-1, None, BinaryColumn(bytes(16), b"", None)),
        SourceColumns(2**62, None, None, None, bytes(16), 2**62),
        SourceColumns(1, None, BinaryColumn(bytes(8), b"", None, 0, -1)),
        SourceColumns(2, None, binary_column([b"a", b"b"]), None, bytes(15)),
        SourceColumns(1, None, binary_column([b"a"]), HeaderColumns(
            struct.pack("<2i", 0, 2), None, binary_column([b"n"]), binary_column([b"v"]))),
        SourceColumns(1, None, binary_column([b"a"]), HeaderColumns(
            struct.pack("<2i", 0, 1), None, binary_column([None]), binary_column([b"v"]))),
        SourceColumns(1, None, binary_column([b"a"]), HeaderColumns(
            bytes(4), None, binary_column([]), binary_column([]))),
    ],
)  # fmt: skip
def test_columns_with_false_sizes_are_refused(loops: Loops, columns: SourceColumns) -> None:
    with pytest.raises(ValueError, match=r"a column|a header"):
        loops[1].encode_columns(columns, 0, 0, 1000, 0)


def test_a_row_outside_the_columns_is_refused() -> None:
    columns = SourceColumns(1, None, binary_column([b"a"]))
    for module in (compiled, _record_columns_twin):
        with pytest.raises(ValueError, match="row 1 of 1"):
            module.encode_columns(columns, 1, 0, 1000, 0)


def test_times_beyond_arrows_range_are_clamped() -> None:
    body, count, _, base_time = body_of(
        [Record(0, 2**62, None, None), Record(1, -(2**62), None, None)]
    )
    for _, columns in (COMPILED, TWIN):
        sink = columns.ColumnSink()
        sink.append(body, (0, len(body)), count, (0, base_time, None), (0, 10))
        assert struct.unpack("<2q", sink.finish().timestamps_us) == (2**63 - 1, -(2**63))


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
def test_a_finished_sink_accepts_no_more(loops: Loops) -> None:
    body, count, _, base_time = body_of([Record(0, 1, b"k", b"v", (("h", b"x"),))])
    sink = loops[1].ColumnSink()
    row = (body, (0, len(body)), count, (0, base_time, None), (0, 10))
    sink.append(*row)
    finished = sink.finish()
    with pytest.raises(ValueError, match="finished"):
        sink.append(*row)
    with pytest.raises(ValueError, match="finished"):
        sink.finish()
    assert (finished.rows, bytes(finished.value.content)) == (1, b"v")


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
def test_equal_records_have_equal_hashes(loops: Loops) -> None:
    record = Record(3, 1, b"k", b"v", (("h", None),))
    body, count, base_offset, base_time = body_of([record])
    (read,) = loops[0].decode_records(body, (0, len(body)), count, base_offset, base_time, None)
    assert (hash(read), {read}) == (hash(record), {record})


# Stamping: the common case of a produce

LIMITS = (0, 2**42, False, 1 << 20)


def stamped(loops: Loops, content: bytes, limits: StampLimits = LIMITS) -> Any:
    """Returns the header, if the batch is common, and the resulting bytes."""
    buffer = bytearray(content)
    return outcome(loops[0].stamp_batch, buffer, 700, 5, limits), bytes(buffer)


def careful(content: bytes) -> Any:
    """The result of the full validation for the same bytes."""
    rules = ValidationRules(now_ms=0, timestamp_after_max_ms=2**42, batch_bytes_max=1 << 20)
    return outcome(lambda: validate_batch(sole_batch(content), rules))


@given(
    records=record_lists(max_size=4),
    options=batch_options(),
    seed=st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=300)
def test_loop_and_twin_stamp_the_same_and_only_sound_batches(
    records: list[Record], options: BatchOptions, seed: Random
) -> None:
    plain = replace(options, base_offset=0, compression=Compression.NONE)
    numbered = [record._replace(offset=i) for i, record in enumerate(records)]
    for content in (build_batch(numbered, plain), build_batch(numbered, options)):
        for sent in (bytes(content), damage(bytes(content), seed)):
            header, after = stamped((compiled, compiled), sent)
            assert (header, after) == stamped((_records_twin, _record_columns_twin), sent)
            if header is None:
                assert after == sent
                continue
            assert careful(sent).record_count == header[11]
            batch = RecordBatch(after)
            assert (batch.base_offset, batch.partition_leader_epoch) == (700, 5)
            assert batch.crc_is_valid()
            assert scan_batches(after, 0, len(after), True)[0] == [header]


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
@pytest.mark.parametrize("odd", range(4))
def test_lengths_below_null_are_read_as_null_and_not_accepted(loops: Loops, odd: int) -> None:
    record = Record(0, 5, None, None, (("h", None),))
    sent = bytearray(build_batch([record], BatchOptions(base_offset=0)))
    places = {0: None, 1: 65, 2: 66, 3: len(sent) - 1}
    position = places[odd]
    if position is not None:
        assert sent[position] == 1
        # -1073741824, in five bytes at most: librdkafka adds it to its position.
        sent[position : position + 1] = b"\xff\xff\xff\xff\x07"
        sent[61] += 8
        sent[8:12] = (len(sent) - 12).to_bytes(4, "big")
        struct.pack_into(">I", sent, 17, crc32c(bytes(sent[21:])))
    records, columns = loops
    bounds = (61, len(sent))
    assert records.decode_records(bytes(sent), bounds, 1, 0, 5, None) == [record]
    sink = columns.ColumnSink(True, True, True)
    assert sink.append(bytes(sent), bounds, 1, (0, 5, None), (0, 2**62)) == 1
    found = records.validate_records(bytes(sent), bounds, 1, 5, None, False)
    assert found[2:] == ((0, []) if position is None else (1, [(0, records.BAD_NULL, 5)]))
    assert (stamped(loops, bytes(sent))[0] is None) is (position is not None)


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
def test_an_uncommon_batch_is_left_unchanged(loops: Loops) -> None:
    records = simple_records(3)
    common = bytes(build_batch(records, BatchOptions(base_offset=0)))
    assert stamped(loops, common)[0] is not None
    for content, limits in [
        (bytes(build_batch(records, BatchOptions(compression=Compression.GZIP))), LIMITS),
        (bytes(build_batch(records, BatchOptions(base_offset=0, append_time_ms=5))), LIMITS),
        (bytes(build_batch(records, BatchOptions(base_offset=0, is_control=True))), LIMITS),
        (bytes(build_batch(records, BatchOptions(base_offset=0, producer_id=4))), LIMITS),
        (common + common, LIMITS),
        (common[:-1], LIMITS),
        (common, (0, 1, False, 1 << 20)),
        (common, (0, 2**42, False, len(common) - 1)),
    ]:  # fmt: skip
        assert stamped(loops, content, limits) == (None, content)
    assert loops[0].stamp_batch(common, 700, 5, LIMITS) is None, "it cannot be written to"


@pytest.mark.parametrize("loops", IMPLEMENTATIONS)
@pytest.mark.parametrize(("rows", "size"), [(-1, 10), (1, -10), (11, 10)])
def test_impossible_sizes_are_refused_by_expect(loops: Loops, rows: int, size: int) -> None:
    with pytest.raises(ValueError, match="rows in"):
        loops[1].ColumnSink().expect(rows, size)
