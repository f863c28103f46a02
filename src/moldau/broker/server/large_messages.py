"""Requests and responses with thousands of elements: they are decoded and encoded in a thread,
which yields the interpreter to the event loop in between. One at a time: with many threads at
work the loop would be one of many that wait for the interpreter. Large queries are also served
only a few at a time, from decoding to encoding: their responses may be a hundred times as large.
"""

import asyncio
from typing import TYPE_CHECKING, TypeVar

from moldau.net.frame_reader import SCRATCH_BYTES
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.wire.codec import decode_prefix
from moldau.protocol.wire.schema import Message
from moldau.types import Buffer

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 4_000
"""Elements that the event loop itself decodes and encodes: a millisecond of work."""
AT_ONCE_BYTES = 1 << 20
"""Likewise, in bytes of everything but records, which are not copied."""
_QUERIES_AT_ONCE = 2
QUERIES = frozenset(
    {
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
    }
)
"""Queries: they only read, and do not wait for anything that a client could prolong."""

MessageT = TypeVar("MessageT", bound=Message)
ResultT = TypeVar("ResultT")


class LargeMessages:
    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self.queries = asyncio.Semaphore(_QUERIES_AT_ONCE)

    def kept(self, frame: memoryview) -> Buffer:
        """Copies a frame that may lie in the shared read buffer."""
        return bytes(frame) if len(frame) <= SCRATCH_BYTES else frame

    async def read(
        self, message_class: type[MessageT], version: int, frame: Buffer, start: int
    ) -> MessageT:
        """Raises MalformedRequestError."""
        request, _ = await self.in_thread(
            lambda: decode_prefix(message_class, version, frame, start)
        )
        return request

    async def in_thread(self, work: "Callable[[], ResultT]") -> ResultT:
        async with self._one_at_a_time:
            return await asyncio.to_thread(work)
