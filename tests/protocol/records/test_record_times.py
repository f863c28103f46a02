"""The compiled loop and its twin find the same first record at a time, also in damaged bodies."""

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.batch_damage import damage
from protocol.batch_strategies import compiled, outcome, record_lists

from moldau.protocol.records import _record_times_twin
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record, RecordBatch

LOOPS: list[Any] = [compiled, _record_times_twin]


def first_of(loops: Any, body: bytes, batch: RecordBatch, *wanted: Any) -> Any:
    append_time, timestamp_min, offset_min = wanted
    bases = (batch.base_offset, batch.base_timestamp, append_time)
    arguments = ((0, len(body)), batch.record_count, bases, timestamp_min, offset_min)
    return outcome(loops.first_record_at, body, *arguments)


@given(
    records=record_lists(),
    at=st.integers(0, 30),
    later_ms=st.integers(-1, 1),
    skip=st.integers(0, 5),
)
@settings(deadline=None, max_examples=50)
def test_loop_and_twin_find_the_first_record_at_a_time(
    records: list[Record], at: int, later_ms: int, skip: int
) -> None:
    batch = RecordBatch(build_batch(records))
    body = bytes(batch.view[61:])
    timestamp_min = min(records[at % len(records)].timestamp + later_ms, 2**63 - 1)
    offset_min = records[0].offset + skip
    wanted = next(
        (
            (record.offset, record.timestamp)
            for record in records
            if record.timestamp >= timestamp_min and record.offset >= offset_min
        ),
        None,
    )
    for loops in LOOPS:
        assert first_of(loops, body, batch, None, timestamp_min, offset_min) == wanted
        assert first_of(loops, body, batch, 7, 7, records[0].offset) == (records[0].offset, 7)
        assert first_of(loops, body, batch, 7, 8, records[0].offset) is None


@given(records=record_lists(), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_loop_and_twin_give_the_same_errors_for_damaged_records(
    records: list[Record], seed: int
) -> None:
    batch = RecordBatch(build_batch(records))
    body = damage(bytes(batch.view[61:]), Random(seed))
    found = [first_of(loops, body, batch, None, 2**62, 0) for loops in LOOPS]
    assert found[0] == found[1]
