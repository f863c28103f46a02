import builtins
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.batch_strategies import IMPLEMENTATIONS, batch_options, record_lists, simple_records

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.records import arrow
from moldau.protocol.records.arrow import (
    COLUMNS,
    ArrowRead,
    arrow_schema,
    build_from_arrow,
    decode_scanned_to_arrow,
    decode_to_arrow,
    decode_to_arrow_pieces,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import (
    ATTRIBUTES_OFFSET,
    CONTROL_FLAG,
    Record,
    RecordBatch,
    patch_append_time,
    patch_base_offset,
)
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.protocol.records.record_loops import scan_batches
from moldau.protocol.records.scanned_batch import ScannedBatch
from moldau.types import ProducerEpoch

pa = pytest.importorskip("pyarrow")
READ = ArrowRead(topic="orders", partition=3)


@pytest.fixture(params=IMPLEMENTATIONS, autouse=True)
def _loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs over the compiled loops and over their twins."""
    columns = request.param[1]
    monkeypatch.setattr(arrow, "ColumnSink", columns.ColumnSink)
    monkeypatch.setattr(arrow, "encode_columns", columns.encode_columns)


def as_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "offset": record.offset,
            "headers": [{"key": name, "value": content} for name, content in record.headers]
            or None,
        }
        for record in records
    ]


def rows_of(batch: Any) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = batch.select(["key", "value", "offset", "headers"]).to_pylist()
    return rows


def test_the_schema_is_the_one_of_sparks_kafka_source() -> None:
    """As pyspark 4.3 converts that source's schema to Arrow (to_arrow_schema, time zone UTC)."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    assert arrow_schema().equals(
        pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", tz="UTC")),
                ("timestampType", pa.int32()),
                ("headers", pa.list_(pa.field("element", header))),
            ]
        )
    )


@given(batches=st.lists(st.tuples(record_lists(max_size=8), batch_options()), max_size=4))
@settings(deadline=None, max_examples=80)
def test_columns_equal_the_records(
    batches: list[tuple[list[Record], BatchOptions]],
) -> None:
    raw = b"".join(build_batch(records, options) for records, options in batches)
    table = decode_to_arrow(raw, READ)
    table.validate(full=True)
    assert table.schema.equals(arrow_schema())
    assert rows_of(table) == as_rows([record for records, _ in batches for record in records])
    assert set(table.column("topic").to_pylist()) <= {"orders"}
    assert set(table.column("partition").to_pylist()) <= {3}


def test_times_are_microseconds_with_their_timestamp_type() -> None:
    stamped = bytearray(build_batch(simple_records(2)))
    patch_append_time(stamped, 0, 2_000_000_000_123)
    table = decode_to_arrow([build_batch(simple_records(1, 1_500)), stamped], READ)
    create = datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    append = datetime(2033, 5, 18, 3, 33, 20, 123_000, tzinfo=UTC)
    assert table.column("timestamp").to_pylist() == [create, append, append]
    assert table.column("timestampType").to_pylist() == [0, 1, 1]


@pytest.mark.parametrize("codec", Compression)
def test_only_the_requested_offsets_become_rows(codec: Compression) -> None:
    raw = b""
    for base in range(0, 100, 10):
        batch = bytearray(build_batch(simple_records(10), BatchOptions(compression=codec)))
        patch_base_offset(batch, 0, base)
        raw += batch
    read = ArrowRead(topic="t", partition=0, start_offset=37, stop_offset=52)
    table = decode_to_arrow(raw + raw[:70], read)
    assert table.column("offset").to_pylist() == list(range(37, 52))


@pytest.mark.parametrize("columns", [("value",), ("offset", "key"), ("headers",), COLUMNS[:7]])
def test_only_the_requested_columns_are_created(columns: tuple[str, ...]) -> None:
    records = [Record(i, i, b"k", None if i else b"v", (("h", b"x"),) * i) for i in range(4)]
    whole = decode_to_arrow(build_batch(records), READ)
    part = decode_to_arrow(
        build_batch(records), ArrowRead(topic="orders", partition=3, columns=columns)
    )
    assert part.schema.equals(arrow_schema(columns))
    assert part.equals(whole.select(list(columns)))


def test_nothing_to_decode_is_an_empty_batch_with_the_schema() -> None:
    nothings: list[bytes | list[bytes]] = [b"", [], build_batch(simple_records(1))[:-1]]
    for nothing in nothings:
        table = decode_to_arrow(nothing, READ)
        table.validate(full=True)
        assert (table.num_rows, table.schema.equals(arrow_schema())) == (0, True)


def test_markers_and_aborted_transactions_do_not_become_rows() -> None:
    def transaction(offset: int, producer_id: int, control_type: ControlType) -> bytes:
        options = BatchOptions(producer_id=producer_id, is_transactional=True)
        batch = bytearray(build_batch(simple_records(2), options))
        patch_base_offset(batch, 0, offset)
        return bytes(batch) + end_transaction_marker(
            EndTransactionMarker(control_type=control_type, coordinator_epoch=0),
            MarkerOrigin(
                producer_id=producer_id, producer_epoch=ProducerEpoch(0), base_offset=offset + 2
            ),
            now_ms=0,
        )

    raw = transaction(0, 7, ControlType.ABORT) + transaction(3, 7, ControlType.COMMIT)
    committed = decode_to_arrow(raw, ArrowRead(topic="t", partition=0, aborted=[(7, 0)]))
    assert committed.column("offset").to_pylist() == [3, 4]
    assert decode_to_arrow(raw, READ).column("offset").to_pylist() == [0, 1, 3, 4]


def test_damage_is_an_error_not_a_row() -> None:
    raw = bytearray(build_batch(simple_records(3)))
    raw[-2] ^= 1
    with pytest.raises(KafkaError) as caught:
        decode_to_arrow(raw, READ)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    unchecked = ArrowRead(topic="t", partition=0, verify_crc=False)
    assert decode_to_arrow(raw, unchecked).num_rows == 3


def test_damage_that_would_hide_rows_is_an_error_too() -> None:
    data = bytearray(build_batch(simple_records(3)))
    data[ATTRIBUTES_OFFSET + 1] ^= CONTROL_FLAG
    marker = bytearray(
        end_transaction_marker(
            EndTransactionMarker(control_type=ControlType.COMMIT, coordinator_epoch=0),
            MarkerOrigin(producer_id=7, producer_epoch=ProducerEpoch(0)),
            now_ms=0,
        )
    )
    marker[-1] ^= 1
    for damaged in (data, marker):
        for aborted in (None, [(7, 0)]):
            with pytest.raises(KafkaError) as caught:
                decode_to_arrow(damaged, ArrowRead(topic="t", partition=0, aborted=aborted))
            assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(
    records=record_lists(max_size=12), options=batch_options(), skipped=st.integers(0, 3),
    batch_bytes_max=st.sampled_from([100, 400, 1 << 20]),
)  # fmt: skip
@settings(deadline=None, max_examples=80)
def test_rows_are_converted_back_into_batches(
    records: list[Record], options: BatchOptions, skipped: int, batch_bytes_max: int
) -> None:
    clean = [record._replace(timestamp=abs(record.timestamp) % 2**42) for record in records]
    table = decode_to_arrow(build_batch(clean), READ).slice(skipped)
    built = list(build_from_arrow(table, 5, options, batch_bytes_max=batch_bytes_max))
    found: list[Record] = []
    sequence = options.base_sequence
    for raw in built:
        batch = RecordBatch(raw)
        batch.check_crc()
        assert (batch.base_offset, batch.compression) == (len(found), options.compression)
        assert (batch.producer_id, batch.base_sequence) == (options.producer_id, sequence)
        found += batch.records()
        if sequence >= 0:
            sequence = (sequence + batch.record_count) % 2**31
        if options.compression is Compression.NONE and batch.record_count > 1:
            assert len(raw) <= batch_bytes_max
    expected = [record._replace(offset=index) for index, record in enumerate(clean[skipped:])]
    assert found == expected


def test_text_columns_and_missing_ones_are_accepted() -> None:
    rows = pa.table(
        {
            "key": pa.array(["ä", None, "c"]),
            "value": pa.array([b"1", b"2", None], pa.large_binary()),
            "timestamp": pa.array([1_000, None, 3_000], pa.timestamp("ms")),
            "elsewhere": [1, 2, 3],
        }
    )
    (raw,) = build_from_arrow(rows, 99)
    assert RecordBatch(raw).records() == [
        Record(0, 1_000, "ä".encode(), b"1"),
        Record(1, 99, None, b"2"),
        Record(2, 3_000, b"c", None),
    ]
    (raw,) = build_from_arrow(pa.table({"value": ["x"]}), 42)
    assert RecordBatch(raw).records() == [Record(0, 42, None, b"x")]
    assert list(build_from_arrow(pa.table({"value": pa.array([], pa.binary())}), 42)) == []


@pytest.mark.parametrize("kind", ["large_string", "binary_view", "string_view", "large_binary"])
def test_other_layouts_of_bytes_are_accepted(kind: str) -> None:
    values = pa.array(["a", None, "longer than a view holds in itself"], getattr(pa, kind)())
    (raw,) = build_from_arrow(pa.table({"value": values}), 1)
    found = [record.value for record in RecordBatch(raw).records()]
    assert found == [b"a", None, b"longer than a view holds in itself"]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("key", [1]),
        ("value", [1.5]),
        ("headers", [["no struct"]]),
        ("timestamp", ["noon"]),
    ],
)
def test_columns_of_another_type_are_refused_with_a_message(name: str, column: list[Any]) -> None:
    table = pa.table({"value": [b"v"], name: column})
    with pytest.raises(MoldauError, match=f"column {name} is .* it must be"):
        list(build_from_arrow(table, 1))


@pytest.mark.parametrize(("unit", "time"), [("s", 2**62), ("s", -(2**62)), (None, 2**64 - 1)])
def test_impossible_timestamps_are_refused_with_a_message(unit: str | None, time: int) -> None:
    kind = pa.uint64() if unit is None else pa.timestamp(unit, "UTC")
    rows = pa.table({"value": [b"v"], "timestamp": pa.array([time], kind)})
    with pytest.raises(MoldauError, match="column timestamp has a time out of range"):
        list(build_from_arrow(rows, 99))


@pytest.mark.parametrize(("unit", "per_ms"), [("ms", 1), ("us", 1_000), ("ns", 1_000_000)])
def test_finer_times_than_milliseconds_lose_their_fractions(unit: str, per_ms: int) -> None:
    times = pa.array([7 * per_ms, 9 * per_ms - 1, None], pa.timestamp(unit, "UTC"))
    (batch,) = build_from_arrow(pa.table({"value": [b"v"] * 3, "timestamp": times}), 99)
    assert [record.timestamp for record in RecordBatch(batch).records()] == [7, 8, 99]


def test_chunked_tables_make_one_run_of_offsets() -> None:
    table = pa.table({"value": pa.chunked_array([[b"a", b"b"], [b"c"], []], pa.binary())})
    batches = [RecordBatch(raw) for raw in build_from_arrow(table, 1, BatchOptions(base_offset=70))]
    records = [record for batch in batches for record in batch.records()]
    assert [(record.offset, record.value) for record in records] == [
        (70, b"a"), (71, b"b"), (72, b"c"),
    ]  # fmt: skip


def test_rows_without_a_value_column_and_null_headers_are_refused_with_a_message() -> None:
    with pytest.raises(MoldauError, match="no column named value"):
        list(build_from_arrow(pa.table({"key": [b"k"]}), 1))
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[None]], pa.list_(header))
    with pytest.raises(MoldauError, match="header is null"):
        list(build_from_arrow(pa.table({"value": [b"v"], "headers": headers}), 1))
    named = pa.array([[("h", b"")], [(None, b"x")]], pa.list_(header))
    rows = pa.table({"value": [b"v", b"w"], "headers": named})
    with pytest.raises(MoldauError, match="header has no name"):
        list(build_from_arrow(rows, 1))
    assert list(build_from_arrow(rows.slice(0, 1), 1))


def test_without_pyarrow_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def no_pyarrow(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", no_pyarrow)
    with pytest.raises(MoldauError, match=r"pip install 'moldau\[arrow\]'"):
        decode_to_arrow(b"", READ)


def test_nothing_imports_pyarrow_until_it_is_used() -> None:
    script = (
        "import sys, moldau.protocol.records.arrow, moldau.protocol.records.batch_validation;"
        "assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)


def three_scanned_batches(codec: Compression) -> tuple[bytes, list[ScannedBatch]]:
    records = simple_records(60)
    options = BatchOptions(compression=codec)
    batches = [build_batch(records[first : first + 20], options) for first in (0, 20, 40)]
    chunk = b"".join(batches)
    found, _, _ = scan_batches(chunk, 0, len(chunk), True)
    return chunk, found


@pytest.mark.parametrize("codec", list(Compression))
def test_scanned_batches_give_the_same_rows(codec: Compression) -> None:
    chunk, found = three_scanned_batches(codec)
    for start, stop in ((0, 60), (5, 41), (20, 40), (60, 70)):
        read = ArrowRead(topic="orders", partition=3, start_offset=start, stop_offset=stop)
        decoded = decode_scanned_to_arrow(chunk, found, read)
        assert (decoded.rows, decoded.batches) == (decode_to_arrow(chunk, read), 3)


@pytest.mark.parametrize("codec", list(Compression))
def test_scanned_batches_end_at_the_size_limit(codec: Compression) -> None:
    chunk, found = three_scanned_batches(codec)
    whole = decode_scanned_to_arrow(chunk, found, READ)
    offsets: list[int] = []
    size_bytes = done = 0
    while done < len(found):
        decoded = decode_scanned_to_arrow(chunk, found[done:], READ, whole.size_bytes // 2)
        done += decoded.batches
        size_bytes += decoded.size_bytes
        offsets += decoded.rows.column("offset").to_pylist()
        assert decoded.batches == (2 if done == 2 else 1)
    assert offsets == whole.rows.column("offset").to_pylist()
    assert size_bytes == whole.size_bytes
    assert decode_scanned_to_arrow(chunk, found, READ, 1).batches == 1


def test_a_count_too_large_for_the_batch_is_refused() -> None:
    batch = bytearray(build_batch(simple_records(3)))
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    found, _, _ = scan_batches(batch, 0, len(batch), False)
    with pytest.raises(KafkaError, match="records cannot be in"):
        decode_scanned_to_arrow(batch, found, READ)


def test_pieces_have_the_requested_size_and_the_same_in_sum() -> None:
    raw = b"".join(
        build_batch([Record(first + delta, 1_000, b"k", bytes(100)) for delta in range(10)])
        for first in range(0, 60, 10)
    )
    read = ArrowRead(topic="t", partition=0, start_offset=5, stop_offset=48)
    pieces = list(decode_to_arrow_pieces(raw, read, 2_000))
    assert len(pieces) > 2
    assert pa.Table.from_batches(pieces).combine_chunks().to_batches() == [
        decode_to_arrow(raw, read)
    ]
    assert list(decode_to_arrow_pieces(raw, replace(read, start_offset=60), 2_000)) == []
