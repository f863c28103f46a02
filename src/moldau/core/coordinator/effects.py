"""What a shard asks its shell to do, collected in a `Turn`: one event's worth of decisions.

What depends on a record changes after the append, which may be refused, and is told after the
commit. So an `Append` names what follows: records to replay, answers to send, a sequel to run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NewType, TypeAlias, TypeVar

from moldau.core.coordinator.records import CoordinatorRecord
from moldau.frozen import frozen

Ticket = NewType("Ticket", int)
"""A request that waits for its answer."""

SequelT = TypeVar("SequelT")
RequestT = TypeVar("RequestT")

TimerKey: TypeAlias = tuple[str, ...]
Answer: TypeAlias = object
"""A response, or what goes into one. An ErrorCode refuses the whole request; the handler knows how
its API says that.
"""


@frozen
class Reply:
    """Nobody may be waiting any more; then it is dropped."""

    ticket: Ticket
    answer: Answer


@frozen
class StartTimer:
    """A timer of that key that is running already starts again."""

    key: TimerKey
    delay_ms: int


@frozen
class StopTimer:
    key: TimerKey


@frozen
class Writer:
    """The producer whose transaction records belong to."""

    producer_id: int
    producer_epoch: int


@frozen(kw_only=True)
class Marker:
    """The end of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transaction_version: int
    commits: bool


@dataclass(slots=True, kw_only=True)
class Append(Generic[SequelT]):
    """In the log's order: appended, replayed, `sequel` told of the append, committed, answered,
    `sequel` told of the commit. If any step fails, answers become refusals and `sequel` is told.
    Without records, the answers wait until everything appended before is committed.
    """

    records: Sequence[CoordinatorRecord]
    replays: bool = False
    """The records are replayed at once. Otherwise the sequel, or who asked, has what is in them."""
    replies: list[Reply] = field(default_factory=list)
    sequel: SequelT | None = None
    is_atomic: bool = True
    """One batch, or nothing. Otherwise as many batches as it takes."""
    may_gather: bool = False
    """No other decision depends on these records: they may share a batch with later ones."""
    writer: Writer | None = None
    """The records take effect when its transaction is committed."""
    marker: Marker | None = None
    """Instead of records."""


@frozen
class Request(Generic[RequestT]):
    """Something outside of the shard and its log: its coordinator knows how."""

    what: RequestT


Effect: TypeAlias = Reply | StartTimer | StopTimer | Append[SequelT] | Request[RequestT]


class Turn(Generic[SequelT, RequestT]):
    """The time at which an event happens, and what is to be done about it, in order."""

    __slots__ = ("effects", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.effects: list[Effect[SequelT, RequestT]] = []

    def reply(self, ticket: Ticket, answer: Answer) -> None:
        self.effects.append(Reply(ticket, answer))

    def reply_when_durable(self, ticket: Ticket, answer: Answer) -> None:
        """After the commit of what this turn appends, if it appends anything."""
        for effect in reversed(self.effects):
            if isinstance(effect, Append):
                effect.replies.append(Reply(ticket, answer))
                return
        self.reply(ticket, answer)

    def start_timer(self, key: TimerKey, delay_ms: int) -> None:
        self.effects.append(StartTimer(key, delay_ms))

    def stop_timer(self, key: TimerKey) -> None:
        self.effects.append(StopTimer(key))

    def append(self, append: Append[SequelT]) -> None:
        self.effects.append(append)

    def request(self, what: RequestT) -> None:
        self.effects.append(Request(what))


AnyTurn: TypeAlias = Turn[Any, Any]
AnyAppend: TypeAlias = Append[Any]
AnyEffect: TypeAlias = Effect[Any, Any]
