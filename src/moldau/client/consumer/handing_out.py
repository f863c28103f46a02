"""Records one by one. One counts as done when the next is asked for, so that nothing is committed
that its user has not seen; what a loop left over is given to the next poll. Positions are set right
only when somebody asks for them: a loop costs next to nothing.
"""

from collections.abc import Iterator

from moldau.core.client.positions import PartitionState, Positions
from moldau.protocol.record_loops import ConsumerRecord
from moldau.types import TopicPartition


class HandingOut:
    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._records: list[ConsumerRecord] = []
        self._at = 0
        """The record that the loop has now, or that a poll gave last."""
        self._is_done = False
        """Whether that one is done with."""
        self._behind: dict[tuple[str, int], tuple[PartitionState, int, int]] | None = None
        """If positions were set back: state, version and position behind all records."""

    def each(self, records: list[ConsumerRecord]) -> Iterator[ConsumerRecord]:
        """What a poll gave, one by one."""
        self._records = records
        self._at = 0
        self._is_done = False
        self._behind = None
        while self._at < len(self._records):
            record = self._records[self._at]
            if self._behind is None or self._is_current(record):
                yield record
            self._at += 1
            self._is_done = False
        self._end()

    def settle(self) -> None:
        """Positions are where the loop is. Called before they are used or changed."""
        if not self._records:
            return
        first: dict[tuple[str, int], int] = {}
        for record in reversed(self._records[self._at + self._is_done :]):
            first[record.topic, record.partition] = record.offset
        if self._behind is None:
            self._behind = {
                place: (state, state.version, state.position)
                for place in dict.fromkeys((one.topic, one.partition) for one in self._records)
                if (state := self._positions.get(TopicPartition(*place))) is not None
                and state.position is not None
            }
        for place, (state, version, position) in self._behind.items():
            if state.version == version:
                state.position = first.get(place, position)

    def rest(self, count: int) -> list[ConsumerRecord]:
        """What a loop left over, for a poll: what it had is done with."""
        if not self._records:
            return []
        self._is_done = True
        self.settle()
        given: list[ConsumerRecord] = []
        while self._at + 1 < len(self._records) and len(given) < count:
            self._at += 1
            if self._is_current(self._records[self._at]):
                given.append(self._records[self._at])
        if self._at + 1 < len(self._records):
            self.settle()
        else:
            self._end()
        return given

    def _is_current(self, record: ConsumerRecord) -> bool:
        known = (self._behind or {}).get((record.topic, record.partition))
        return known is not None and known[0].version == known[1]

    def _end(self) -> None:
        """Behind the last record there may be markers that nobody sees."""
        for state, version, position in (self._behind or {}).values():
            if state.version == version:
                state.position = position
        self._records = []
        self._at = 0
        self._behind = None
