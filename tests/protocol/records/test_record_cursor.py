"""A cursor creates a consumer's records on demand, compiled and in Python alike."""

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.batch_strategies import compiled, record_lists, simple_records

from moldau.protocol.errors import KafkaError
from moldau.protocol.records import _record_cursor_twin
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record, RecordBatch

LOOPS = [compiled, _record_cursor_twin]


def cursor_of(loops: Any, records: list[Record], start: int = 0, **changes: Any) -> Any:
    batch = RecordBatch(build_batch(records))
    return loops.RecordCursor(
        batch.view,
        (61, changes.get("end", len(batch.view))),
        changes.get("count", batch.record_count),
        (batch.base_offset, batch.base_timestamp, changes.get("append_time")),
        ("topic", 3, 7, start),
        changes.get("readers", (None, None)),
    )


def taken(cursor: Any, step: int) -> list[Any]:
    found: list[Any] = []
    while cursor.left:
        cursor.take(found, step)
    return found


def parts(record: Any) -> tuple[Any, ...]:
    return (
        record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type,
        record.key, record.value, record.headers, record.leader_epoch,
    )  # fmt: skip


@given(records=record_lists(), step=st.integers(1, 30), skipped=st.integers(0, 5))
@settings(deadline=None, max_examples=100)
def test_loop_and_twin_return_the_same_records(
    records: list[Record], step: int, skipped: int
) -> None:
    start = records[0].offset + skipped
    found = [list(map(parts, taken(cursor_of(loops, records, start), step))) for loops in LOOPS]
    assert found[0] == found[1]
    wanted = [record.offset for record in records if record.offset >= start]
    assert [one[2] for one in found[0]] == wanted


@pytest.mark.parametrize("loops", LOOPS)
def test_the_next_offset_is_after_the_last_record_returned(loops: Any) -> None:
    cursor = cursor_of(loops, simple_records(5))
    found: list[Any] = []
    assert cursor.take(found, 2) == 2
    assert (cursor.next_offset, cursor.left) == (found[-1].offset + 1, 3)


@pytest.mark.parametrize("loops", LOOPS)
def test_append_time_is_every_records_time(loops: Any) -> None:
    found = taken(cursor_of(loops, simple_records(3), append_time=99), 10)
    assert {(one.timestamp, one.timestamp_type) for one in found} == {(99, 1)}


@pytest.mark.parametrize("loops", LOOPS)
def test_readers_convert_keys_and_values_but_not_null(loops: Any) -> None:
    records = [Record(0, 1, b"k", b"1"), Record(1, 1, None, None)]
    found = taken(cursor_of(loops, records, readers=(bytes.decode, int)), 10)
    assert [(one.key, one.value) for one in found] == [("k", 1), (None, None)]


@pytest.mark.parametrize("loops", LOOPS)
def test_records_before_a_bad_one_are_returned_first(loops: Any) -> None:
    records = [Record(0, 1, None, b"1"), Record(1, 1, None, b"x"), Record(2, 1, None, b"3")]
    cursor = cursor_of(loops, records, readers=(None, int))
    found: list[Any] = []
    assert cursor.take(found, 10) == 1
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            cursor.take(found, 10)
    assert cursor.next_offset == 1


@pytest.mark.parametrize("loops", LOOPS)
def test_damage_is_an_error_and_never_a_record(loops: Any) -> None:
    with pytest.raises(KafkaError, match="runs past its batch"):
        taken(cursor_of(loops, simple_records(1), end=70), 10)
    with pytest.raises(KafkaError, match="records cannot be"):
        cursor_of(loops, simple_records(1), count=1000)
    with pytest.raises(KafkaError, match="bytes are left"):
        taken(cursor_of(loops, simple_records(3), count=2), 10)


@pytest.mark.parametrize("loops", LOOPS)
def test_records_can_be_pickled_and_printed(loops: Any) -> None:
    record = taken(cursor_of(loops, simple_records(1)), 1)[0]
    assert parts(pickle.loads(pickle.dumps(record))) == parts(record)
    assert "topic='topic', partition=3" in repr(record)
