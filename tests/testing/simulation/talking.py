"""A client in a simulation: it speaks the shipped codec over the simulated network, and retries as
real clients do.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelError, ChannelOptions, RequestChannel
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages import response_class
from moldau.protocol.wire.schema import Message

TIMEOUT_MS = 8_000
PATIENCE_MS = 240_000
"""Far more than any fault lasts."""
_PAUSE_MS = 60

PASSING = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)

CodeOf = Callable[[Any], int]


class Client:
    """One connection, made anew when it breaks. Asks one thing, or several in order, at a time."""

    def __init__(self, clock: Clock, address: tuple[str, int], name: str) -> None:
        self.clock = clock
        self._address = Address(*address)
        self._options = ChannelOptions(
            client_id=name, connect_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS
        )
        self._channel: RequestChannel | None = None

    async def ask(self, request: Message, version: int) -> Any:
        """One attempt. Raises ChannelError."""
        (answer,) = await self.ask_in_order([request], version)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def ask_in_order(self, requests: Sequence[Message], version: int) -> list[Any]:
        """All on one connection: where one is lost, all after it are. Returns answers and
        ChannelErrors.
        """
        try:
            channel = await self._connected()
        except ChannelError as error:
            return [error] * len(requests)
        asking = [
            channel.ask(request, response_class(ApiKey(request.API_KEY)), version)
            for request in requests
        ]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ChannelError):
                raise answer
        return answers

    async def _connected(self) -> RequestChannel:
        if self._channel is None or self._channel.is_closed:
            self._channel = await RequestChannel.open(self._address, self.clock, self._options)
        return self._channel

    async def persist(self, request: Message, version: int, code_of: CodeOf) -> Any:
        """Attempts until there is an answer that counts. Raises KafkaError for an error that no
        retry cures.
        """
        deadline_ms = self.clock.mono_ms() + PATIENCE_MS
        while True:
            try:
                answer = await self.ask(request, version)
            except ChannelError:
                code = ErrorCode.NETWORK_EXCEPTION
            else:
                code = ErrorCode(code_of(answer))
                if code is ErrorCode.NONE:
                    return answer
            if code is not ErrorCode.NETWORK_EXCEPTION and code not in PASSING:
                raise KafkaError(code, type(request).__name__)
            if self.clock.mono_ms() > deadline_ms:
                raise AssertionError(f"{type(request).__name__}: still {code.name}")
            await self.clock.sleep(_PAUSE_MS)


def only_code(answer: Any) -> int:
    return int(answer.error_code)
