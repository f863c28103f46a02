"""Records on their way into batches, by the compiled appender and by its twin: the same bytes, the
same partitions, the same refusals.
"""

import contextlib
import importlib.util
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.producer import _batching_twin
from moldau.core.producer.batching import Hooks, Limits
from moldau.protocol.records.batch_builder import (
    BatchFacts,
    BatchOptions,
    build_batch,
    finish_batch,
)
from moldau.protocol.records.batches import Record, RecordBatch

IMPLEMENTATIONS: list[Any] = [_batching_twin]
if importlib.util.find_spec("moldau.core.producer._batching"):
    from moldau.core.producer import _batching  # type: ignore[attr-defined, unused-ignore]

    IMPLEMENTATIONS.append(_batching)

both = pytest.mark.parametrize("loops", IMPLEMENTATIONS, ids=lambda loops: loops.__name__[-13:])

octets = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), octets), max_size=3).map(tuple)
times = st.integers(0, 2**62)
records = st.lists(st.tuples(octets, octets, headers, times), min_size=1, max_size=20)


def appender(loops: Any, *, batch: int = 200, growth: int = 400, memory: int = 10_000) -> Any:
    woken: list[bool] = []
    made = loops.Appender(
        Limits(batch, growth, record_bytes_max=5_000, memory_bytes=memory),
        Hooks(
            now_ms=lambda: 7,
            wake=lambda: woken.append(True),
            choose=lambda topic: (topic.sticky + 1) % topic.partition_count,
            waiter=None,
            lock=contextlib.nullcontext(),
        ),
    )
    return made, woken


def finished(batch: Any) -> RecordBatch:
    facts = BatchFacts(0, batch.count - 1, batch.base_timestamp, batch.max_timestamp, batch.count)
    return RecordBatch(bytes(finish_batch(batch.seal(), BatchOptions(), facts)))


@both
@given(offered=records)
def test_a_batch_holds_what_was_appended_byte_for_byte(loops: Any, offered: Any) -> None:
    made, _ = appender(loops, growth=100_000, memory=200_000)
    made.add_topic(loops.TopicBuffers("t", 1, True, True))
    for index, (key, value, heads, time) in enumerate(offered):
        delivery = made.append("t", key, value, 0, time, heads)
        assert (delivery.index, delivery.timestamp) == (index, time)
    (batch,) = made.take_begun()
    expected = build_batch(
        [Record(i, time, key, value, h) for i, (key, value, h, time) in enumerate(offered)]
    )
    assert bytes(finished(batch).view) == expected


@both
def test_keys_choose_the_partition_that_java_chooses(loops: Any) -> None:
    assert loops.murmur2(b"21") & 0x7FFFFFFF == -973932308 & 0x7FFFFFFF
    assert loops.murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert loops.murmur2(b"a-little-bit-long-string") == -985981536 & 0xFFFFFFFF
    made, _ = appender(loops)
    made.add_topic(loops.TopicBuffers("t", 7, True, True))
    delivery = made.append("t", b"foobar", None, None, None, ())
    assert delivery.batch.partition == (-790332482 & 0x7FFFFFFF) % 7


@given(keys=st.lists(st.binary(max_size=12), max_size=30))
def test_a_column_of_keys_is_hashed_like_single_keys(keys: list[bytes]) -> None:
    ends = [0]
    for key in keys:
        ends.append(ends[-1] + len(key))
    offsets = b"".join(end.to_bytes(4, "little") for end in ends)
    for loops in IMPLEMENTATIONS:
        found = loops.partitions_of_keys(offsets, b"".join(keys), 0, len(keys), 5)
        expected = [(loops.murmur2(key) & 0x7FFFFFFF) % 5 for key in keys]
        assert list(memoryview(found).cast("i")) == expected


@both
def test_records_without_a_key_stay_with_a_partition_for_a_batch(loops: Any) -> None:
    made, _ = appender(loops)
    made.add_topic(loops.TopicBuffers("t", 3, True, True))
    partitions = [made.append("t", None, bytes(50), None, 1, ()).batch.partition for _ in range(12)]
    assert partitions == [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0]


@both
def test_a_batch_grows_while_it_waits_and_no_further_than_it_may(loops: Any) -> None:
    made, woken = appender(loops)
    made.add_topic(loops.TopicBuffers("t", 1, True, True))
    batches = [made.append("t", None, bytes(90), None, 1, ()).batch for _ in range(4)]
    assert batches[0] is batches[1] is batches[2]
    assert batches[3] is not batches[2]
    assert batches[0].is_ready
    assert len(woken) == 1
    assert len(made.take_begun()) == 2


@both
def test_nothing_is_added_to_a_sealed_batch(loops: Any) -> None:
    made, _ = appender(loops)
    made.add_topic(loops.TopicBuffers("t", 1, True, True))
    first = made.append("t", None, b"1", None, 1, ())
    first.batch.seal()
    assert made.append("t", None, b"2", None, 1, ()).batch is not first.batch


@both
def test_records_for_the_slower_path_are_not_written(loops: Any) -> None:
    made, woken = appender(loops, memory=500)
    topic = loops.TopicBuffers("t", 2, False, False)
    made.add_topic(topic)
    refused = [
        made.append("unknown", None, b"", 0, 1, ()),
        made.append("t", None, "text", 0, 1, ()),
        made.append("t", "text", b"", 0, 1, ()),
        made.append("t", None, b"", 2, 1, ()),
        made.append("t", None, b"", -1, 1, ()),
        made.append("t", b"key", b"", None, 1, ()),
        made.append("t", None, b"", None, 1, ()),
        made.append("t", None, b"", 0, 1, [("name", "text")]),
        made.append("t", None, bytes(6_000), 0, 1, ()),
        made.append("t", None, bytes(600), 0, 1, ()),
        made.append(["t"], None, b"", 0, 1, ()),
        made.append("t", None, b"", "0", 1, ()),
        made.append("t", None, b"", True, 1, ()),
        made.append("t", None, b"", 0, 1.5, ()),
        made.append("t", None, b"", 0, -1, ()),
        made.append("t", None, b"", 0, 1 << 63, ()),
        made.append("t", None, b"", 0, 1, {"name": b"value"}),
    ]
    assert refused == [None] * 17
    assert (made.take_begun(), woken, made.room) == ([], [], 500)


@both
def test_batches_and_their_growth_take_memory(loops: Any) -> None:
    made, _ = appender(loops, memory=1_000)
    made.add_topic(loops.TopicBuffers("t", 9, True, True))
    taken = [made.append("t", None, bytes(90), n, 1, ()) for n in range(9)]
    assert [delivery is not None for delivery in taken] == [True] * 5 + [False] * 4
    assert made.room == 1_000 - sum(batch.held_bytes for batch in made.take_begun())


@both
def test_many_records_are_appended_in_one_call_which_returns_their_batches(loops: Any) -> None:
    made, _ = appender(loops, growth=300, memory=100_000)
    made.add_topic(loops.TopicBuffers("t", 1, True, True))
    pieces: list[Any] = []
    values = [bytes([number]) * 40 for number in range(50)]
    assert made.append_many("t", values, None, (None, 5), 0, pieces) == 50
    assert sum(count for _, _, count in pieces) == 50
    assert [batch for batch, _, _ in pieces] == made.take_begun()
    stored = [record.value for batch, _, _ in pieces for record in finished(batch).records()]
    assert stored == values
    with pytest.raises(ValueError, match="1 keys for 50 values"):
        made.append_many("t", values, [b""], (None, 5), 0, pieces)


@both
def test_appending_many_stops_at_a_record_for_the_slower_path(loops: Any) -> None:
    made, _ = appender(loops, memory=100_000)
    made.add_topic(loops.TopicBuffers("t", 1, True, True))
    assert made.append_many("t", [b"1", "2", b"3"], None, (None, None), 0, []) == 1
    assert made.append_many("t", [b"1", "2", b"3"], None, (None, None), 2, []) == 1
    assert made.append_many("t", [], None, (None, None), 0, []) == 0


@both
def test_threads_that_append_while_batches_are_sealed_lose_nothing(loops: Any) -> None:
    guard = threading.RLock()
    made = loops.Appender(
        Limits(200, 400, record_bytes_max=5_000, memory_bytes=1 << 40),
        Hooks(lambda: 7, lambda: None, lambda topic: topic.sticky, None, guard),
    )
    made.add_topic(loops.TopicBuffers("t", 1, True, True))

    def work(name: bytes) -> None:
        for number in range(3_000):
            assert made.append("t", name, b"%d" % number, 0, 1, ()) is not None

    threads = [threading.Thread(target=work, args=(b"%d" % n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    found: list[Any] = []
    while any(thread.is_alive() for thread in threads):
        for batch in made.take_begun():
            with guard:
                batch.seal()
            found.append(batch)
    found += made.take_begun()
    stored: dict[bytes | None, list[bytes | None]] = {}
    for batch in found:
        for record in finished(batch).records():
            stored.setdefault(record.key, []).append(record.value)
    assert stored == {b"%d" % n: [b"%d" % number for number in range(3_000)] for n in range(3)}
