"""A shard: the coordinator's state for one partition of its topic.

Its shell loads it (`replay` in the log's order), reports that, and then performs the effects of
every turn. State that is in the log never runs ahead of the log. It changes in three ways: by
`replay` (loading, and an `Append` with `replays`), in `appended` or `committed` by the sequel that
holds what its records say, or at once where losing the change is harmless. Only two changes are of
the last kind: the epoch that fences a producer before its transaction is aborted, and the members
of a classic group. All three end in the state that replaying the log would give. State that is not
in the log at all (waiting requests, joining members) is lost with the shard, and clients retry.
"""

from typing import Any, Protocol, TypeAlias

from moldau.core.coordinator.effects import RequestT, SequelT, TimerKey, Turn
from moldau.core.coordinator.records import CoordinatorRecord
from moldau.protocol.error_codes import ErrorCode
from moldau.types import NO_PRODUCER_ID, Offset


class Shard(Protocol[SequelT, RequestT]):
    def replay(
        self, record: CoordinatorRecord, offset: Offset, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """With a producer id, the record takes effect when that producer's transaction commits."""

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        """The log has the marker of the producer's transaction."""

    def loaded(self, turn: Turn[SequelT, RequestT]) -> None:
        """The whole log has been replayed: timers may start."""

    def unloaded(self, turn: Turn[SequelT, RequestT]) -> None:
        """Another broker is the coordinator now: refuse the waiting requests. The shell stops the
        timers.
        """

    def timer_fired(self, key: TimerKey, turn: Turn[SequelT, RequestT]) -> None: ...

    def appended(self, sequel: SequelT, turn: Turn[SequelT, RequestT]) -> None:
        """Called directly after the append; no other event came in between."""

    def committed(self, sequel: SequelT, turn: Turn[SequelT, RequestT]) -> None:
        """Called after the commit; other events may have come since the append."""

    def failed(self, sequel: SequelT, code: ErrorCode, turn: Turn[SequelT, RequestT]) -> None:
        """The log refused the append, or its commit was not confirmed in time."""


AnyShard: TypeAlias = Shard[Any, Any]
