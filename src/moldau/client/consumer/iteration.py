"""Iterates over records. A record counts as processed when the next one is requested, so that
nothing is committed before the user has seen it; the next poll returns the records that a loop did
not reach. A loop runs over a plain list, and how far it got is computed only when positions are
needed.
"""

import sys
from collections.abc import Iterable, Iterator
from operator import length_hint

from moldau.core.consumer.positions import PartitionState, Positions
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.types import TopicPartition


class RecordLoop:
    """The records of the last poll, while a loop runs over them."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._current: list[ConsumerRecord] = []
        """The list that a loop runs over. Its last record is the current one when positions are
        needed.
        """
        self._each: Iterator[ConsumerRecord] = iter(())
        self._left: list[ConsumerRecord] = []
        """Taken away from the loop, since a seek may have outdated some of them."""
        self._ends: dict[tuple[str, int], tuple[PartitionState, int, int]] | None = None
        """If positions were set back: state, version and the position after all records."""

    def begin(self, records: list[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        """Iterates over the records of a poll."""
        self._current = records
        self._each = iter(records)
        return self._each

    def update_positions(self) -> None:
        """Sets the positions to where the loop is. Called before they are used or changed."""
        if not self._current and not self._left:
            return
        count = len(self._current) - length_hint(self._each)
        # The loop ends after what it has, and gets the others with `take_left`.
        self._left[:0] = self._current[count:]
        del self._current[count:]
        self._set_back([*self._current[-1:], *self._left])

    def take_left(self, count: int = sys.maxsize) -> list[ConsumerRecord]:
        """The records that a loop left over. Those that it had count as processed."""
        if not self._left and self._ends is None and not length_hint(self._each):
            # The usual case: no position was needed during the loop.
            self._current = []
            return []
        self.update_positions()
        self._current = []
        current = [record for record in self._left if self._is_current(record)]
        taken, self._left = current[:count], current[count:]
        if self._left:
            self._set_back(self._left)
        else:
            self._end()
        return taken

    @property
    def is_holding(self) -> bool:
        return bool(self._left) or length_hint(self._each) > 0

    def put_back(self) -> None:
        """Lets the records that a loop left over be fetched again, in another form."""
        first: dict[tuple[str, int], ConsumerRecord] = {}
        for record in self.take_left():
            first.setdefault((record.topic, record.partition), record)
        for partition, record in first.items():
            state = self._positions.get(TopicPartition(*partition))
            if state is not None:
                state.seek(record.offset)

    def _set_back(self, undone: Iterable[ConsumerRecord]) -> None:
        if self._ends is None:
            records = self._current + self._left
            partitions = dict.fromkeys((record.topic, record.partition) for record in records)
            self._ends = {
                partition: (state, state.version, state.position)
                for partition in partitions
                if (state := self._positions.get(TopicPartition(*partition))) is not None
                and state.position is not None
            }
        first: dict[tuple[str, int], int] = {}
        for record in undone:
            first.setdefault((record.topic, record.partition), record.offset)
        for partition, (state, version, position) in self._ends.items():
            if state.version == version:
                state.position = first.get(partition, position)

    def _is_current(self, record: ConsumerRecord) -> bool:
        known = (self._ends or {}).get((record.topic, record.partition))
        return known is not None and known[0].version == known[1]

    def _end(self) -> None:
        """Sets positions after the last record, where there may be control records."""
        for state, version, position in (self._ends or {}).values():
            if state.version == version:
                state.position = position
        self._ends = None
