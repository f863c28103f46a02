"""A request on its way to its answer, as its connection keeps it, and the answer's bytes."""

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from moldau.broker.context import Staged
from moldau.broker.dispatch import Begun, failed
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.frame import LENGTH_MAX, AnswerTooLongError, build_response
from moldau.protocol.schema import Message
from moldau.types import Buffer

if TYPE_CHECKING:
    import asyncio

_log = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 100 * 1024 * 1024
"""Of anything but records. Kafka's largest answers, about all of 100,000 partitions, have some ten
million bytes, and many clients take no more than this.
"""
_DECODED_TIMES = 8
"""How much more memory a request takes than its bytes, unless they are mostly records."""


class Exchange:
    """`bytes`: what it takes of the memory that connections share."""

    __slots__ = ("answer", "begun", "bytes", "is_done", "started_ms", "task")

    def __init__(self, begun: Begun, size: int, started_ms: float) -> None:
        self.begun = begun
        self.bytes = size if begun.api_key is ApiKey.PRODUCE else size * _DECODED_TIMES
        self.started_ms = started_ms
        self.answer: Message | None = None
        self.is_done = False
        self.task: asyncio.Future[Message | Staged | None] | None = None


async def awaited(answer: Awaitable[Message | Staged | None]) -> Message | Staged | None:
    """As a coroutine, of which tasks are made."""
    return await answer


def answer_chunks(begun: Begun, answer: Message) -> list[Buffer]:
    """A frame. Raises AnswerTooLongError, or MalformedRequestError if this cannot be sent."""
    api_key = begun.api_key
    bytes_max = LENGTH_MAX if api_key is ApiKey.FETCH else ANSWER_BYTES_MAX
    try:
        return build_response(
            answer, begun.answer_version, correlation_id=begun.correlation_id, bytes_max=bytes_max
        )
    except AnswerTooLongError as error:
        raise AnswerTooLongError(
            f"The answer to {api_key.name} would be {error}, more than {bytes_max}: "
            "ask for less at once."
        ) from None
    except Exception as error:
        # Our own bug, but this connection alone shall suffer from it.
        _log.exception("the answer to %s cannot be written", api_key.name)
        raise MalformedRequestError(f"no answer to {api_key.name}") from error


def refusal_chunks(begun: Begun, error: AnswerTooLongError) -> list[Buffer]:
    """What is sent instead. Raises MalformedRequestError if the API has no place for an error."""
    refusal = KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    instead = failed(begun.api_key, begun.request, begun.answer_version, refusal)
    return answer_chunks(begun, instead)
