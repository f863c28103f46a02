"""The effects that a shard requests from its shell. A `Turn` collects those of one event.

State that depends on a record changes after the append, which may be refused, and is reported after
the commit. So an `Append` names what follows it: records to replay, answers to send, a sequel.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from moldau.core.coordinator.records import CoordinatorRecord
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.types import ProducerEpoch

AnswerT = TypeVar("AnswerT")
SequelT = TypeVar("SequelT")
RequestT = TypeVar("RequestT")

TimerKey: TypeAlias = tuple[str, ...]


class Ticket(int, Generic[AnswerT]):
    """Identifies a request that waits for an answer of this type: a response, or its content."""

    __slots__ = ()


@frozen
class Reply(Generic[AnswerT]):
    """An answer to a request. It is dropped if the request is gone."""

    ticket: Ticket[AnswerT]
    answer: AnswerT | ErrorCode
    """An ErrorCode refuses the whole request; the API's handler builds the response for it."""


@frozen
class StartTimer:
    """Starts a timer, or restarts the one with the same key."""

    key: TimerKey
    delay_ms: int


@frozen
class StopTimer:
    key: TimerKey


@frozen
class Writer:
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: ProducerEpoch


@frozen(kw_only=True)
class Marker:
    """The end of a producer's transaction."""

    producer_id: int
    producer_epoch: ProducerEpoch
    coordinator_epoch: int
    transaction_version: int
    commits: bool


AnyTicket: TypeAlias = Ticket[Any]
AnyReply: TypeAlias = Reply[Any]


@dataclass(slots=True, kw_only=True)
class Append(Generic[SequelT]):
    """In this order: append, replay, `appended(sequel)`, commit, replies, `committed(sequel)`. If a
    step fails, the replies become refusals and the shard gets `failed(sequel)`. Without records,
    the replies wait for the commit of everything appended before.
    """

    records: Sequence[CoordinatorRecord]
    replays: bool = False
    """Replay the records after the append. Otherwise the sequel or the caller applies them."""
    replies: list[AnyReply] = field(default_factory=list)
    sequel: SequelT | None = None
    is_atomic: bool = True
    """All records in one batch. Otherwise they may be split into several."""
    may_gather: bool = False
    """The records may share a batch with later ones: no other decision depends on them."""
    writer: Writer | None = None
    """The records take effect when this producer's transaction is committed."""
    marker: Marker | None = None
    """Appended instead of records."""


@frozen
class Request(Generic[RequestT]):
    """Work outside the shard and its log. The coordinator carries it out."""

    what: RequestT


Effect: TypeAlias = AnyReply | StartTimer | StopTimer | Append[SequelT] | Request[RequestT]


class Turn(Generic[SequelT, RequestT]):
    """The time of one event, and its effects in order."""

    __slots__ = ("effects", "now_ms")

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.effects: list[Effect[SequelT, RequestT]] = []

    def reply(self, ticket: Ticket[AnswerT], answer: AnswerT | ErrorCode) -> None:
        self.effects.append(Reply(ticket, answer))

    def reply_when_durable(self, ticket: Ticket[AnswerT], answer: AnswerT | ErrorCode) -> None:
        """Replies after the commit of this turn's last append, or at once if there is none."""
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
