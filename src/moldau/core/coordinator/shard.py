"""A shard: all that a coordinator knows from one partition of its topic.

Its shell loads it (`replay` in the log's order), tells it so, and from then on performs the effects
of every turn. Replaying is the only way that what is in the log changes the state; what a shard
knows besides (who waits, who joins) is gone with it, and its clients start that again.
"""

from typing import Any, Protocol, TypeAlias

from moldau.core.coordinator.effects import RequestT, SequelT, TimerKey, Turn
from moldau.core.coordinator.records import CoordinatorRecord
from moldau.protocol.error_codes import ErrorCode
from moldau.types import NO_PRODUCER_ID


class Shard(Protocol[SequelT, RequestT]):
    def replay(
        self, record: CoordinatorRecord, offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """With a producer id, the record takes effect when that producer's transaction commits."""

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """A marker in the log."""

    def loaded(self, turn: Turn[SequelT, RequestT]) -> None:
        """Everything is replayed: timers may start."""

    def unloaded(self, turn: Turn[SequelT, RequestT]) -> None:
        """Somebody else coordinates from now on: whoever waits must be told. The shell stops the
        timers.
        """

    def timer_fired(self, key: TimerKey, turn: Turn[SequelT, RequestT]) -> None: ...

    def appended(self, sequel: SequelT, turn: Turn[SequelT, RequestT]) -> None:
        """In the same breath as the append: nothing happened in between."""

    def committed(self, sequel: SequelT, turn: Turn[SequelT, RequestT]) -> None:
        """Much may have happened since the append."""

    def failed(self, sequel: SequelT, code: ErrorCode, turn: Turn[SequelT, RequestT]) -> None:
        """Refused by the log, or nobody knows in time whether it is committed."""


AnyShard: TypeAlias = Shard[Any, Any]
