"""Finds the record of a batch that makes a flow fail. Spark reports the failing line, but not the
row: the batch is halved until one row is left, within a time limit.
"""

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as sql

from moldau.core.pipelines.graph import Source, Topic
from moldau.pipelines.compile.values import ROW

_NUMBER = "__moldau_number"
_HALVINGS_MAX = 24
_PATIENCE_S = 20.0
_TEXT_MAX = 300


def failing_record(rows: Any, source: Source, fails: Callable[[Any], bool]) -> str | None:
    """The record, as text, that makes a flow of a pass fail. `fails` says whether the flows fail
    with a part of the rows. Returns None if no single row fails, or if the search takes too long.
    """
    numbered = rows.withColumn(_NUMBER, sql.monotonically_increasing_id()).persist()
    try:
        found = _halved(_Numbered(numbered), fails)
        return None if found is None else _text_of(found.first(), source)
    finally:
        numbered.unpersist()


class _Numbered:
    """Rows with growing numbers, which have gaps between Spark's partitions."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        ends = sql.min(_NUMBER).alias("first"), sql.count(sql.lit(1)).alias("rows")
        pieces = rows.groupBy(sql.shiftright(_NUMBER, 33).alias("piece")).agg(*ends)
        self._pieces = [
            (piece["first"], piece["rows"]) for piece in pieces.orderBy("piece").collect()
        ]
        self.size = sum(size for _, size in self._pieces)

    def between(self, start: int, end: int) -> Any:
        """The rows from `start` to before `end`, counted from 0."""
        first, last = self._number_at(start), self._number_at(end - 1)
        return self._rows.where(sql.col(_NUMBER).between(first, last)).drop(_NUMBER)

    def _number_at(self, index: int) -> int:
        for first, size in self._pieces:
            if index < size:
                return int(first) + index
            index -= size
        raise IndexError(index)


def _halved(rows: _Numbered, fails: Callable[[Any], bool]) -> Any | None:
    start, end = 0, rows.size
    until = time.monotonic() + _PATIENCE_S
    for _ in range(_HALVINGS_MAX):
        if time.monotonic() > until:
            break
        if end - start == 1:
            found = rows.between(start, end)
            return found if fails(found) else None
        middle = (start + end) // 2
        if fails(rows.between(start, middle)):
            end = middle
        else:
            start = middle
    return None


def _text_of(row: Any, source: Source) -> str:
    content = str(row[ROW].asDict(recursive=True))
    content = content if len(content) <= _TEXT_MAX else f"{content[:_TEXT_MAX]}…"
    if isinstance(source, Topic) and "offset" in row:
        return f"record {row['topic']}-{row['partition']} offset {row['offset']}: {content}"
    return f"row {content}"
