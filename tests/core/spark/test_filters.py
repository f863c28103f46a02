"""Conditions of a query that let a reader skip records."""

from moldau.core.spark.filters import Comparison, RowFilter
from moldau.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def narrowed(*comparisons: tuple[str, str, object]) -> RowFilter:
    found = RowFilter()
    for one in comparisons:
        found = found.narrowed(Comparison(*one))
    return found


def test_partitions_and_topics() -> None:
    found = narrowed(("partition", "=", 0), ("topic", "in", ("a", "c")))
    assert [found.takes(one) for one in (A0, A1, B0)] == [True, False, False]


def test_offsets() -> None:
    assert narrowed(("offset", ">=", 5), ("offset", "<", 9)).clip(0, 100) == (5, 9)
    assert narrowed(("offset", ">", 5), ("offset", "<=", 9)).clip(7, 100) == (7, 10)
    assert narrowed(("offset", "=", 5)).clip(0, 100) == (5, 6)
    assert narrowed(("offset", "in", (9, 5))).clip(0, 100) == (5, 10)


def test_times_only_bound_the_beginning() -> None:
    assert narrowed(("timestamp", ">=", 70), ("timestamp", "<", 90)).since_ms == 70
    assert narrowed(("timestamp", "<", 90)) == RowFilter()


def test_unsupported_conditions_filter_nothing() -> None:
    assert (
        narrowed(("value", "=", b"x"), ("partition", "<", 2), ("offset", "=", None)) == RowFilter()
    )
