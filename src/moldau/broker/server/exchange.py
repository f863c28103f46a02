"""A request on its way to its answer, as its connection keeps it, and the answer's bytes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from moldau.broker.server.context import Staged
from moldau.broker.server.dispatch import Begun, failed
from moldau.broker.server.large_messages import QUESTIONS
from moldau.broker.server.message_weight import weight_of
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.wire.codec import NO_BUDGET, MessageTooLargeError
from moldau.protocol.wire.frame import AnswerTooLongError, build_response
from moldau.protocol.wire.primitives import LENGTH_MAX
from moldau.protocol.wire.schema import Message
from moldau.types import Buffer
from moldau.unexpected import log_unexpected

if TYPE_CHECKING:
    from moldau.broker.server.large_messages import LargeMessages
    from moldau.broker.server.listener import Listener
    from moldau.broker.server.memory_budget import Holder
    from moldau.protocol.messages.fetch import FetchResponse

_log = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 100 * 1024 * 1024
"""Of anything but records. Kafka's largest answers, about all of 100,000 partitions, have some ten
million bytes, and many clients take no more than this.
"""
_DECODED_TIMES = 8
"""How much more memory a request takes than its bytes, unless they are mostly records."""
_LARGE_DECODED_TIMES = 16
"""Of requests with thousands of elements, which are short then."""
_WRITTEN_BYTES_MIN = 64 * 1024
"""What an answer takes before it is worth a thread."""
_DECODED_BYTES_MAX = 40 * 1024 * 1024
"""Beside the bytes: so much take as many elements as a request may have."""


_REFUSALS = (KafkaError, MalformedRequestError)


class Exchange:
    """`bytes`: what it takes of the memory that connections share."""

    __slots__ = ("answer", "begun", "bytes", "chunks", "is_done", "started_ms", "task")

    def __init__(self, begun: Begun, size: int, started_ms: float) -> None:
        self.begun = begun
        self.bytes = size
        if begun.api_key is not ApiKey.PRODUCE and not self.is_large_question:
            times = _LARGE_DECODED_TIMES if begun.is_large else _DECODED_TIMES
            self.bytes += min(size * (times - 1), _DECODED_BYTES_MAX)
        self.started_ms = started_ms
        self.answer: Message | None = None
        self.chunks: list[Buffer] | None = None
        """The answer's, if they were made elsewhere."""
        self.is_done = False
        self.task: asyncio.Future[Any] | None = None

    @property
    def is_large_question(self) -> bool:
        """It is not even read before its turn comes."""
        return self.begun.is_large and self.begun.api_key in QUESTIONS

    def charge(self, message: Message, holder: "Holder") -> int:
        """For a request that was read, or an answer that waits to be written: how much."""
        count = weight_of(message)
        self.bytes += count
        holder.hold(count)
        return count

    def count_records(self) -> int:
        """For a fetch that waits for the answers before it: what its records add to `bytes`."""
        count = 0
        if self.begun.api_key is ApiKey.FETCH:
            for topic in cast("FetchResponse", self.answer).responses:
                count += sum(len(each.records or b"") for each in topic.partitions)
        self.bytes += count
        return count

    @property
    def is_being_appended(self) -> bool:
        """Records that a thread looks at, or some of many: nobody else takes them along."""
        is_staged = isinstance(self.begun.outcome, Staged)
        return self.begun.api_key is ApiKey.PRODUCE and not self.is_done and not is_staged

    @property
    def to_send(self) -> "tuple[Begun, Message | None, float, list[Buffer] | None]":
        return self.begun, self.answer, self.started_ms, self.chunks


async def _awaited(answer: Awaitable[Message | Staged | None]) -> Message | Staged | None:
    """As a coroutine, of which tasks are made."""
    return await answer


def task_of(
    exchange: Exchange, answer: Awaitable[Message | Staged | None], listener: "Listener"
) -> "asyncio.Future[Message | Staged | None]":
    """What works on the answer."""
    if isinstance(answer, asyncio.Future):
        return answer
    # A coroutine itself: one inside another is never begun if the node stops right now.
    work = answer if asyncio.iscoroutine(answer) else _awaited(answer)
    # Refusals are for the client to hear, not for the log.
    name = f"{exchange.begun.api_key.name} of {listener.name}"
    return listener.tasks.start(work, name, expects=_REFUSALS)


def outcome_of(
    begun: Begun, task: "asyncio.Future[Message | Staged | None]"
) -> Message | Staged | None:
    """Of a task that is done. Raises MalformedRequestError if there is no answer to give."""
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, Exception):
        raise error
    return failed(begun.api_key, begun.request, begun.answer_version, error)


def answer_chunks(
    begun: Begun, answer: Message, bytes_max: int = ANSWER_BYTES_MAX, *, budget: int = NO_BUDGET
) -> list[Buffer]:
    """A frame. Raises MessageTooLargeError if it has more elements than the budget,
    AnswerTooLongError, also if it has more bytes than `bytes_max` and they are no records, or
    MalformedRequestError if this cannot be sent.
    """
    api_key = begun.api_key
    if api_key is ApiKey.FETCH:
        bytes_max = LENGTH_MAX
    try:
        return build_response(
            answer,
            begun.answer_version,
            correlation_id=begun.correlation_id,
            bytes_max=bytes_max,
            budget=budget,
        )
    except MessageTooLargeError:
        raise
    except AnswerTooLongError as error:
        raise AnswerTooLongError(
            f"The answer to {api_key.name} would be {error}, more than {bytes_max}: "
            "ask for less at once."
        ) from None
    except Exception as error:
        # Our own bug, but this connection alone shall suffer from it.
        log_unexpected(_log, f"writing the answer to {api_key.name}", error)
        raise MalformedRequestError(f"no answer to {api_key.name}") from error


async def serve_large_question(
    exchange: Exchange,
    listener: "Listener",
    large: "LargeMessages",
    holder: "Holder",
    too_long: Callable[[AnswerTooLongError], None],
) -> Message | Staged | None:
    """What it was answered, if need be with its chunks; few are served at once."""
    begun = exchange.begun
    async with large.questions:
        answer = await task_of(exchange, begun.outcome, listener)
        assert isinstance(answer, Message)
        exchange.charge(begun.request, holder)
        if exchange.charge(answer, holder) >= _WRITTEN_BYTES_MIN:
            exchange.answer = answer
            await write_large(exchange, large, holder, too_long)
    return answer


async def write_large(
    exchange: Exchange,
    large: "LargeMessages",
    holder: "Holder",
    too_long: Callable[[AnswerTooLongError], None],
) -> Message:
    """The answer, once the exchange has its chunks. Raises MalformedRequestError."""
    begun, answer = exchange.begun, exchange.answer
    assert answer is not None
    if begun.api_key is ApiKey.FETCH:
        # There is room for its records: the handler has asked.
        exchange.chunks = await large.in_thread(lambda: answer_chunks(begun, answer))
        return answer
    async with holder.large_answers.turn(is_privileged=holder.is_privileged):
        try:
            chunks = await large.in_thread(lambda: answer_chunks(begun, answer))
        except AnswerTooLongError as error:
            too_long(error)
            chunks = await large.in_thread(partial(_refusal_chunks, begun, error))
        exchange.chunks = chunks
        holder.hold_large(sum(map(len, chunks)))
    return answer


def _refusal_chunks(begun: Begun, error: AnswerTooLongError) -> list[Buffer]:
    """What is sent instead. Raises MalformedRequestError if the API has no place for an error."""
    refusal = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    instead = failed(begun.api_key, begun.request, begun.answer_version, refusal)
    return answer_chunks(begun, instead)
