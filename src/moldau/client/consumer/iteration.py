"""Records one by one. One counts as done when the next is asked for, so that nothing is committed
that its user has not seen; what a loop left over is given to the next poll. A loop runs over a
plain list: where it stands is found out only when somebody asks for positions.
"""

import sys
from collections.abc import Iterable, Iterator
from operator import length_hint

from moldau.core.consumer.positions import PartitionState, Positions
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.types import TopicPartition


class HandingOut:
    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._given: list[ConsumerRecord] = []
        """What a loop goes over; its last one is at hand when positions are asked for."""
        self._each: Iterator[ConsumerRecord] = iter(())
        self._left: list[ConsumerRecord] = []
        """Taken away from the loop, which may have to leave some of them out."""
        self._behind: dict[tuple[str, int], tuple[PartitionState, int, int]] | None = None
        """If positions were set back: state, version and position behind all records."""

    def begin(self, records: list[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        """What a poll gave, one by one."""
        self._given = records
        self._each = iter(records)
        return self._each

    def settle(self) -> None:
        """Positions are where the loop is. Called before they are used or changed."""
        if not self._given and not self._left:
            return
        count = len(self._given) - length_hint(self._each)
        # The loop ends behind what it has, and asks for the rest with `take_left`.
        self._left[:0] = self._given[count:]
        del self._given[count:]
        self._set_back([*self._given[-1:], *self._left])

    def take_left(self, count: int = sys.maxsize) -> list[ConsumerRecord]:
        """What a loop left over: what it had is done with."""
        if not self._left and self._behind is None and not length_hint(self._each):
            # The usual case: nobody asked where the loop is.
            self._given = []
            return []
        self.settle()
        self._given = []
        current = [one for one in self._left if self._is_current(one)]
        found, self._left = current[:count], current[count:]
        if self._left:
            self._set_back(self._left)
        else:
            self._end()
        return found

    @property
    def is_holding(self) -> bool:
        return bool(self._left) or length_hint(self._each) > 0

    def put_back(self) -> None:
        """What a loop left over is fetched again, by who wants it in another form."""
        first: dict[tuple[str, int], ConsumerRecord] = {}
        for record in self.take_left():
            first.setdefault((record.topic, record.partition), record)
        for place, record in first.items():
            state = self._positions.get(TopicPartition(*place))
            if state is not None:
                state.seek(record.offset)

    def _set_back(self, undone: Iterable[ConsumerRecord]) -> None:
        if self._behind is None:
            places = dict.fromkeys((one.topic, one.partition) for one in self._given + self._left)
            self._behind = {
                place: (state, state.version, state.position)
                for place in places
                if (state := self._positions.get(TopicPartition(*place))) is not None
                and state.position is not None
            }
        first: dict[tuple[str, int], int] = {}
        for record in undone:
            first.setdefault((record.topic, record.partition), record.offset)
        for place, (state, version, position) in self._behind.items():
            if state.version == version:
                state.position = first.get(place, position)

    def _is_current(self, record: ConsumerRecord) -> bool:
        known = (self._behind or {}).get((record.topic, record.partition))
        return known is not None and known[0].version == known[1]

    def _end(self) -> None:
        """Behind the last record there may be markers that nobody sees."""
        for state, version, position in (self._behind or {}).values():
            if state.version == version:
                state.position = position
        self._behind = None
