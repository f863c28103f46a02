"""A request on its way to its answer, as its connection keeps it."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from moldau.broker.context import Staged
from moldau.broker.dispatch import Begun
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.schema import Message

if TYPE_CHECKING:
    import asyncio

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
