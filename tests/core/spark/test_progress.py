"""A running query's progress while its topics change."""

from moldau.core.spark.offset_json import QueryOffsets
from moldau.core.spark.planning import OffsetRange
from moldau.core.spark.progress import Limits, first_end, losses, next_end, ranges_between
from moldau.types import TopicPartition, Uuid, uuid_text

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OLD, NEW = uuid_text(Uuid(b"o" * 16)), uuid_text(Uuid(b"n" * 16))


def position(topic_id: str = OLD, **offsets: int) -> QueryOffsets:
    names = {"a0": A0, "a1": A1, "b0": B0}
    found = {names[name]: offset for name, offset in offsets.items()}
    return QueryOffsets(found, {"a": topic_id})


def test_no_batch_without_new_records() -> None:
    assert next_end(position(a0=5), position(a0=5), Limits(), 0) is None


def test_new_records_are_read_up_to_the_limit() -> None:
    end = next_end(position(a0=5, a1=0), position(a0=105, a1=100), Limits(rows_max=50), 0)
    assert end is not None
    assert end.offsets == {A0: 30, A1: 25}


def test_a_new_partition_begins_at_its_first_record() -> None:
    start, latest = position(a0=5), position(a0=5, a1=3)
    assert losses(start, latest) == []
    end = next_end(start, latest, Limits(), 0)
    assert end == latest
    ranges, lost = ranges_between(start, latest)
    assert ranges == [OffsetRange(A1, 0, 3, b"o" * 16)]
    assert lost == []


def test_a_small_backlog_waits_until_it_is_large_or_late() -> None:
    limits = Limits(rows_min=10, delay_ms_max=1000)
    start = position(a0=0)
    assert next_end(start, position(a0=9), limits, 999) is None
    assert next_end(start, position(a0=9), limits, 1000) is not None
    assert next_end(start, position(a0=10), limits, 0) is not None


def test_a_deleted_partition_is_a_loss_and_then_left_out() -> None:
    start, latest = position(a0=5, b0=7), position(a0=5)
    assert [(one.partition, one.reason) for one in losses(start, latest)] == [(B0, "it is deleted")]
    end = next_end(start, latest, Limits(), 0)
    assert end is not None
    assert B0 not in end.offsets
    assert ranges_between(start, end) == ([], [])


def test_a_recreated_topic_is_detected_by_its_id_even_if_it_is_longer() -> None:
    start, latest = position(a0=5), position(NEW, a0=50)
    (lost,) = losses(start, latest)
    assert "created again" in lost.reason
    end = next_end(start, latest, Limits(), 0)
    assert end is not None
    ranges, _ = ranges_between(start, end)
    assert ranges == [OffsetRange(A0, 0, 50, b"n" * 16)]


def test_a_recreated_topic_with_as_many_records_is_a_new_batch() -> None:
    end = next_end(position(a0=5), position(NEW, a0=5), Limits(), 0)
    assert end is not None
    assert ranges_between(position(a0=5), end)[0] == [OffsetRange(A0, 0, 5, b"n" * 16)]


def test_a_log_that_became_shorter_is_a_loss() -> None:
    (lost,) = losses(position(a0=5), position(a0=3))
    assert lost.reason == "the log ends at 3 now"


def test_a_start_after_the_stored_end_is_a_loss() -> None:
    ranges, (lost,) = ranges_between(position(a0=9), position(a0=5))
    assert ranges == []
    assert "explicit startingOffsets" in lost.reason


def test_a_first_batch_begins_where_it_was_planned_in_any_run() -> None:
    end = first_end(position(a0=5), position(a0=8), position(a0=8))
    # Another run began at other offsets.
    ranges, lost = ranges_between(position(a0=20), end)
    assert ranges == [OffsetRange(A0, 5, 8, b"o" * 16)]
    assert lost == []


def test_a_first_batch_comes_even_if_it_is_empty() -> None:
    end = first_end(position(a0=5), position(a0=5), None)
    assert end.offsets == {A0: 5}
    assert end != position(a0=5)
    assert ranges_between(position(a0=20), end) == ([], [])


def test_a_first_batch_of_a_recreated_topic_begins_with_the_new_topic() -> None:
    end = first_end(position(a0=5), position(NEW, a0=3), position(NEW, a0=3))
    assert ranges_between(position(NEW, a0=3), end)[0] == [OffsetRange(A0, 0, 3, b"n" * 16)]


def test_positions_of_sparks_own_source_without_ids_continue() -> None:
    start = QueryOffsets({A0: 5}, {})
    assert losses(start, position(a0=8)) == []
    assert ranges_between(start, position(a0=8))[0] == [OffsetRange(A0, 5, 8, b"o" * 16)]
