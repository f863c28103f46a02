"""Records that a reader can skip because of a query's conditions. It may skip too few, never too
many.
"""

from typing import Any, NamedTuple

from moldau.frozen import frozen
from moldau.types import INT64_MAX, TopicPartition

_ALL_FROM = 0
_ALL_TO = INT64_MAX


class Comparison(NamedTuple):
    column: str
    operator: str
    """One of `= > >= < <= in`."""
    value: Any
    """Times are milliseconds."""


@frozen(kw_only=True)
class RowFilter:
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = _ALL_FROM
    stop: int = _ALL_TO
    since_ms: int | None = None

    def narrowed(self, condition: Comparison) -> "RowFilter":
        match condition.column:
            case "topic":
                return self._with(topics=_intersection(self.topics, _values(condition)))
            case "partition":
                return self._with(partitions=_intersection(self.partitions, _values(condition)))
            case "offset":
                start, stop = _bounds(condition)
                return self._with(start=max(self.start, start), stop=min(self.stop, stop))
            case "timestamp" if condition.operator in {"=", ">", ">="} and isinstance(
                condition.value, int
            ):
                # There is no end by time: a later record may have an earlier time.
                since = max(self.since_ms or 0, condition.value)
                return self._with(since_ms=since)
            case _:
                return self

    def _with(self, **changes: Any) -> "RowFilter":
        from dataclasses import replace

        return replace(self, **changes)

    def takes(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def clip(self, start: int, stop: int) -> tuple[int, int]:
        return max(start, self.start), min(stop, self.stop)


def _values(condition: Comparison) -> frozenset[Any] | None:
    if condition.operator == "=":
        return frozenset([condition.value])
    return frozenset(condition.value) if condition.operator == "in" else None


def _intersection(
    known: frozenset[Any] | None, more: frozenset[Any] | None
) -> frozenset[Any] | None:
    if known is None or more is None:
        return more if known is None else known
    return known & more


def _bounds(condition: Comparison) -> tuple[int, int]:
    match condition:
        case Comparison(_, "=", int(value)):
            return value, value + 1
        case Comparison(_, ">", int(value)):
            return value + 1, _ALL_TO
        case Comparison(_, ">=", int(value)):
            return value, _ALL_TO
        case Comparison(_, "<", int(value)):
            return _ALL_FROM, value
        case Comparison(_, "<=", int(value)):
            return _ALL_FROM, value + 1
        case Comparison(_, "in", tuple(values)) if values:
            return min(values), max(values) + 1
        case _:
            return _ALL_FROM, _ALL_TO
