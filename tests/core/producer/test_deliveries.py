"""Deliveries: what a user's thread learns of a record, by the compiled class and by its twin."""

import contextlib
from typing import Any

import pytest
from core.producer.test_batching import both

from moldau.core.producer.batching import Hooks, Limits
from moldau.core.producer.outcomes import Failed, Written
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError


class Waiter:
    """The client's thread: it finishes a batch as soon as a user waits for it."""

    def __init__(self) -> None:
        self.outcome: Written | Failed = Written(100)
        self.timeouts: list[float | None] = []

    def wait(self, delivery: Any, timeout: float | None) -> Written | Failed:
        self.timeouts.append(timeout)
        delivery.batch.outcome = self.outcome
        return self.outcome

    async def awaited(self, delivery: Any) -> str:
        return f"{delivery.batch.topic}-{delivery.index}"


def deliveries(loops: Any, waiter: Waiter, count: int = 3) -> list[Any]:
    """Records of one batch."""
    made = loops.Appender(
        Limits(10_000, 10_000, record_bytes_max=5_000, memory_bytes=100_000),
        Hooks(
            now_ms=lambda: 7,
            wake=lambda: None,
            choose=lambda topic: topic.sticky,
            waiter=waiter,
            lock=contextlib.nullcontext(),
        ),
    )
    made.add_topic(loops.TopicBuffers("t", 1, True, True))
    return [made.append("t", None, b"v", None, number, ()) for number in range(count)]


def batch_of(loops: Any, count: int) -> Any:
    return loops.Batch.of_rows("t", 0, bytearray(100), (count, 1, 2))


@both
def test_a_user_waits_for_the_result(loops: Any) -> None:
    waiter = Waiter()
    delivery = deliveries(loops, waiter)[2]
    assert not delivery.done()
    assert delivery.result(5) == ("t", 0, 102, 2)
    assert waiter.timeouts == [5]
    assert delivery.done()
    assert delivery.exception() is None
    assert delivery.result() == ("t", 0, 102, 2)
    assert waiter.timeouts == [5], "the second time there is nothing to wait for"


@both
def test_the_error_of_a_record_is_raised(loops: Any) -> None:
    waiter = Waiter()
    waiter.outcome = Failed(KafkaError(ErrorCode.INVALID_RECORD), {1: "no key"})
    first, second, _ = deliveries(loops, waiter)
    with pytest.raises(KafkaError, match="another record"):
        first.result()
    assert "no key" in str(second.exception())


@both
async def test_a_task_awaits_the_result(loops: Any) -> None:
    waiter = Waiter()
    assert await deliveries(loops, waiter)[1] == "t-1"


@both
def test_callbacks_are_kept_until_the_batch_is_done(loops: Any) -> None:
    seen: list[Any] = []
    first, second, _ = deliveries(loops, Waiter())
    first.add_callback(seen.append)
    second.add_callback(seen.append)
    assert seen == []
    assert [(index, delivery) for index, _, delivery in first.batch.callbacks] == [
        (0, first),
        (1, second),
    ]
    first.batch.outcome = Written(1)
    first.add_callback(seen.append)
    assert seen == [first], "at once, because it is done"
    assert len(first.batch.callbacks) == 2


@both
def test_the_records_of_a_split_batch_are_found_in_its_parts(loops: Any) -> None:
    seen: list[Any] = []
    waiter = Waiter()
    all_of_them = deliveries(loops, waiter, 5)
    parts = [batch_of(loops, 2), batch_of(loops, 3)]
    all_of_them[0].batch.parts = parts
    last = all_of_them[4]
    assert not last.done()
    last.add_callback(seen.append)
    assert [index for index, _, _ in parts[1].callbacks] == [2]
    parts[1].outcome = Written(50)
    assert last.done()
    assert last.result().offset == 52
    assert not all_of_them[1].done()
    last.add_callback(seen.append)
    assert seen == [last]


@both
def test_a_record_that_no_part_has_is_our_own_mistake(loops: Any) -> None:
    delivery = deliveries(loops, Waiter())[2]
    delivery.batch.parts = [batch_of(loops, 1)]
    with pytest.raises(IndexError):
        delivery.done()


@both
def test_rows_that_were_encoded_elsewhere_are_sent_as_they_are(loops: Any) -> None:
    batch = batch_of(loops, 4)
    assert (batch.count, batch.base_timestamp, batch.max_timestamp) == (4, 1, 2)
    assert (batch.is_open, batch.is_ready, batch.size_bytes) == (False, True, 100)
    assert len(batch.seal()) == 100


@both
@pytest.mark.parametrize(
    ("start", "rows", "partitions"), [(0, 1, 0), (-1, 1, 3), (0, -1, 3), (0, 3, 3), (2, 1, 3)]
)
def test_columns_that_contradict_their_bytes_are_refused(
    loops: Any, start: int, rows: int, partitions: int
) -> None:
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 2, 5))
    with pytest.raises(ValueError):  # noqa: PT011 - the texts differ
        loops.partitions_of_keys(offsets, b"abcde", start, rows, partitions)
    beyond = b"".join(number.to_bytes(4, "little") for number in (0, 9))
    with pytest.raises(ValueError):  # noqa: PT011
        loops.partitions_of_keys(beyond, b"abcde", 0, 1, 3)


@both
def test_a_topic_has_a_partition_and_keeps_to_those_that_it_has(loops: Any) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        loops.TopicBuffers("t", 0, True, True)
    topic = loops.TopicBuffers("t", 3, True, True)
    topic.sticky = 2
    topic.resize(3)
    assert topic.sticky == 2
    topic.resize(2)
    assert (topic.partition_count, topic.sticky) == (2, 0)
