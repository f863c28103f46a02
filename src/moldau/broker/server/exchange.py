"""A request on its way to its response, as its connection keeps it, and the encoded response."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from moldau.broker.server.context import Staged
from moldau.broker.server.dispatch import Begun, failed
from moldau.broker.server.large_messages import QUERIES
from moldau.broker.server.message_weight import weight_of
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.wire.codec import NO_BUDGET, MessageTooLargeError
from moldau.protocol.wire.frame import ResponseTooLongError, build_response
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
"""For everything but records. Kafka's largest responses, about all of 100,000 partitions, have some
ten million bytes, and many clients accept no more than this.
"""
_DECODED_TIMES = 8
"""Memory that a request takes per byte on the wire, unless it is mostly records."""
_LARGE_DECODED_TIMES = 16
"""The same for requests with thousands of elements, whose elements are short."""
_WRITTEN_BYTES_MIN = 64 * 1024
"""The estimated size at which a response is worth a thread."""
_DECODED_BYTES_MAX = 40 * 1024 * 1024
"""On top of the bytes: the memory of the largest number of elements that a request may have."""


_REFUSALS = (KafkaError, MalformedRequestError)


class Exchange:
    """`bytes`: its share of the memory that connections share."""

    __slots__ = ("answer", "begun", "bytes", "chunks", "is_done", "started_ms", "task")

    def __init__(self, begun: Begun, size: int, started_ms: float) -> None:
        self.begun = begun
        self.bytes = size
        if begun.api_key is not ApiKey.PRODUCE and not self.is_large_query:
            times = _LARGE_DECODED_TIMES if begun.is_large else _DECODED_TIMES
            self.bytes += min(size * (times - 1), _DECODED_BYTES_MAX)
        self.started_ms = started_ms
        self.answer: Message | None = None
        self.chunks: list[Buffer] | None = None
        """The encoded response, if it was made elsewhere."""
        self.is_done = False
        self.task: asyncio.Future[Any] | None = None

    @property
    def is_large_query(self) -> bool:
        """A large query is not even decoded before its turn comes."""
        return self.begun.is_large and self.begun.api_key in QUERIES

    def charge(self, message: Message, holder: "Holder") -> int:
        """Charges for a request that was decoded, or a response that waits to be encoded, and
        returns the amount.
        """
        count = weight_of(message)
        self.bytes += count
        holder.hold(count)
        return count

    def count_records(self) -> int:
        """Adds the records of a fetch that waits for earlier responses to `bytes`, and returns
        their size.
        """
        count = 0
        if self.begun.api_key is ApiKey.FETCH:
            for topic in cast("FetchResponse", self.answer).responses:
                count += sum(len(each.records or b"") for each in topic.partitions)
        self.bytes += count
        return count

    @property
    def is_being_appended(self) -> bool:
        """Whether a thread works on its records: closing the connection would not free them."""
        is_staged = isinstance(self.begun.outcome, Staged)
        return self.begun.api_key is ApiKey.PRODUCE and not self.is_done and not is_staged

    @property
    def to_send(self) -> "tuple[Begun, Message | None, float, list[Buffer] | None]":
        return self.begun, self.answer, self.started_ms, self.chunks


async def _awaited(answer: Awaitable[Message | Staged | None]) -> Message | Staged | None:
    """Wraps an awaitable into a coroutine, which a task requires."""
    return await answer


def task_of(
    exchange: Exchange, answer: Awaitable[Message | Staged | None], listener: "Listener"
) -> "asyncio.Future[Message | Staged | None]":
    """The task that produces the response."""
    if isinstance(answer, asyncio.Future):
        return answer
    # Use a coroutine itself: inside another it would never begin if the node stops right now.
    work = answer if asyncio.iscoroutine(answer) else _awaited(answer)
    # Refusals are for the client, not for the log.
    name = f"{exchange.begun.api_key.name} of {listener.name}"
    return listener.tasks.start(work, name, expects=_REFUSALS)


def outcome_of(
    begun: Begun, task: "asyncio.Future[Message | Staged | None]"
) -> Message | Staged | None:
    """The result of a task that is done. Raises MalformedRequestError if there is no response to
    send.
    """
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, Exception):
        raise error
    return failed(begun.api_key, begun.request, begun.answer_version, error)


def answer_chunks(
    begun: Begun, answer: Message, bytes_max: int = ANSWER_BYTES_MAX, *, budget: int = NO_BUDGET
) -> list[Buffer]:
    """The response as a frame. Raises MessageTooLargeError if it has more elements than the budget,
    ResponseTooLongError, also if it has more bytes than `bytes_max` and they are not records, or
    MalformedRequestError if it cannot be sent.
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
    except ResponseTooLongError as error:
        raise ResponseTooLongError(
            f"The answer to {api_key.name} would be {error}, more than {bytes_max}: "
            "request less at once."
        ) from None
    except Exception as error:
        # A bug in this broker, but only this connection must suffer from it.
        log_unexpected(_log, f"writing the answer to {api_key.name}", error)
        raise MalformedRequestError(f"no answer to {api_key.name}") from error


async def serve_large_query(
    exchange: Exchange,
    listener: "Listener",
    large: "LargeMessages",
    holder: "Holder",
    too_long: Callable[[ResponseTooLongError], None],
) -> Message | Staged | None:
    """The result of a large query, with its encoded chunks if there are any; few are served at
    once.
    """
    begun = exchange.begun
    async with large.queries:
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
    too_long: Callable[[ResponseTooLongError], None],
) -> Message:
    """The response, once the exchange has its chunks. Raises MalformedRequestError."""
    begun, answer = exchange.begun, exchange.answer
    assert answer is not None
    if begun.api_key is ApiKey.FETCH:
        # There is room for its records: the handler has checked.
        exchange.chunks = await large.in_thread(lambda: answer_chunks(begun, answer))
        return answer
    async with holder.large_answers.turn(is_privileged=holder.is_privileged):
        try:
            chunks = await large.in_thread(lambda: answer_chunks(begun, answer))
        except ResponseTooLongError as error:
            too_long(error)
            chunks = await large.in_thread(partial(_refusal_chunks, begun, error))
        exchange.chunks = chunks
        holder.hold_large(sum(map(len, chunks)))
    return answer


def _refusal_chunks(begun: Begun, error: ResponseTooLongError) -> list[Buffer]:
    """The refusal that is sent instead. Raises MalformedRequestError if the API has no field for an
    error.
    """
    refusal = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    instead = failed(begun.api_key, begun.request, begun.answer_version, refusal)
    return answer_chunks(begun, instead)
