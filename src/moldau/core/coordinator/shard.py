"""A shard: the coordinator's state for one partition of its topic.

Its shell replays the log into it, calls `loaded`, and from then on carries out the effects of every
turn. Durable state changes only by replaying records. Other state (waiting requests, joining
members) is lost with the shard, and clients start those requests again.
"""

from typing import Protocol

from moldau.core.coordinator.effects import TimerKey, Turn
from moldau.core.coordinator.records import CoordinatorRecord
from moldau.protocol.error_codes import ErrorCode
from moldau.types import NO_PRODUCER_ID


class Shard(Protocol):
    def replay(
        self, record: CoordinatorRecord, offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """With a producer id, the record takes effect when that producer's transaction commits."""

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """The log has the marker of the producer's transaction."""

    def loaded(self, turn: Turn) -> None:
        """The whole log has been replayed: timers may start."""

    def unloaded(self, turn: Turn) -> None:
        """Another broker is the coordinator now: refuse the waiting requests. The shell stops the
        timers.
        """

    def timer_fired(self, key: TimerKey, turn: Turn) -> None: ...

    def appended(self, sequel: object, turn: Turn) -> None:
        """Called directly after the append; no other event came in between."""

    def committed(self, sequel: object, turn: Turn) -> None:
        """Called after the commit; other events may have come since the append."""

    def failed(self, sequel: object, code: ErrorCode, turn: Turn) -> None:
        """The log refused the append, or its commit was not confirmed in time."""
