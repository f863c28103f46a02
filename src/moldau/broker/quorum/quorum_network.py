"""How the quorum's requests reach the other nodes. The machine keeps the time-outs: a network only
carries requests and responses.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

from moldau.core.quorum.events import NotDelivered, Responded
from moldau.core.quorum.rpc import Destination, Failure, Request

OnEvent: TypeAlias = Callable[[Responded | NotDelivered], None]


class QuorumNetwork(Protocol):
    def start(self, on_event: OnEvent) -> None:
        """`on_event` is called in the event loop, never from within `send`."""

    def send(self, destination: Destination, correlation: int, request: Request) -> None:
        """Every request is followed by one event with its correlation id, unless a newer request to
        the same destination gives it up: then it may be followed by none.
        """

    async def close(self) -> None:
        """No event comes afterwards. Requests under way are given up."""


class NoNetwork:
    """For a node that has no other to talk to: nothing is ever delivered."""

    def __init__(self) -> None:
        self._on_event: OnEvent | None = None

    def start(self, on_event: OnEvent) -> None:
        self._on_event = on_event

    def send(self, destination: Destination, correlation: int, request: Request) -> None:
        del destination, request
        lost = NotDelivered(correlation, Failure.LOST)
        asyncio.get_running_loop().call_soon(self._deliver, lost)

    async def close(self) -> None:
        self._on_event = None

    def _deliver(self, lost: NotDelivered) -> None:
        if self._on_event is not None:
            self._on_event(lost)
