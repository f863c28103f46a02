"""Records one by one. A position is behind a record only when the next one is asked for, so that
nothing is committed that its user has not seen; what a loop left over is given to the next poll.
"""

from collections import deque

from moldau.core.client.positions import PartitionState, Positions
from moldau.protocol.record_loops import ConsumerRecord
from moldau.types import TopicPartition


class HandingOut:
    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._left: deque[ConsumerRecord] = deque()
        self._versions: dict[tuple[str, int], tuple[PartitionState, int, int]] = {}
        self._last: ConsumerRecord | None = None

    def put(self, records: list[ConsumerRecord]) -> None:
        """What a poll gave: positions go back to where its user stands."""
        self._left = deque(records)
        self._versions = {}
        self._last = None
        for record in records:
            place = record.topic, record.partition
            if place not in self._versions:
                state = self._positions.get(TopicPartition(*place))
                if state is not None and state.position is not None:
                    self._versions[place] = state, state.version, state.position
                    state.position = record.offset

    def next(self) -> ConsumerRecord | None:
        """None: all were given."""
        self._note_done()
        while self._left:
            record = self._left.popleft()
            if self._is_current(record):
                self._last = record
                return record
        self._catch_up()
        return None

    def rest(self, count: int) -> list[ConsumerRecord]:
        """What is left, for a poll; it moves the positions at once."""
        if not self._left and self._last is None:
            return []
        self._note_done()
        given: list[ConsumerRecord] = []
        while self._left and len(given) < count:
            record = self._left.popleft()
            if self._is_current(record):
                given.append(record)
                self._move(record)
        if not self._left:
            self._catch_up()
        return given

    def _is_current(self, record: ConsumerRecord) -> bool:
        known = self._versions.get((record.topic, record.partition))
        return known is not None and known[0].version == known[1]

    def _note_done(self) -> None:
        last, self._last = self._last, None
        if last is not None and self._is_current(last):
            self._move(last)

    def _move(self, record: ConsumerRecord) -> None:
        self._versions[record.topic, record.partition][0].position = record.offset + 1

    def _catch_up(self) -> None:
        """Behind the last record there may be markers that nobody sees."""
        for state, version, position in self._versions.values():
            if state.version == version:
                state.position = position
        self._versions = {}
