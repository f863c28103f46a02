"""A connection of a simulation: two ends, in memory. Each direction keeps its order, as TCP does,
and nothing else: bytes arrive late, and in other pieces than they were sent in.
"""

import asyncio
import contextvars
from collections import deque
from typing import TYPE_CHECKING, Any
from zlib import crc32

from moldau.testing.simulation.process import process_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from moldau.testing.simulation.network import SimulatedNetwork

_WINDOW_BYTES = 256 * 1024
"""Bytes on their way that no program has to hold."""
_HIGH_BYTES = 64 * 1024


class End(asyncio.Transport):
    """One end of a connection, as its protocol sees it."""

    def __init__(
        self, network: "SimulatedNetwork", name: str, protocol: Any, context: contextvars.Context
    ) -> None:
        super().__init__()
        self.name = name
        self.process = process_of(context)
        self.context = context
        self.other: End
        self.port = 0
        self.is_lost = False
        self.not_before_s = 0.0
        """When the last bytes sent from here arrive."""
        self._network = network
        self._loop = network.loop
        self._protocol = protocol
        self._is_closing = False
        self._is_reading = True
        self._is_ended = False
        self._received: deque[memoryview] = deque()
        self._sent_bytes = 0
        self._high, self._low = _HIGH_BYTES, _HIGH_BYTES // 4
        self._is_writing_paused = False

    # Used by its program

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: "Iterable[Any]") -> None:
        chunk = b"".join(list_of_data)
        if not chunk or self._is_closing or self.is_lost:
            return
        self._network.trace.add(
            self._loop.time(), self.process.name, "sends", self.name, len(chunk), crc32(chunk)
        )
        self._sent_bytes += len(chunk)
        self._network.send(self, chunk)
        if not self._is_writing_paused and self.get_write_buffer_size() > self._high:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return max(self._sent_bytes - _WINDOW_BYTES, 0)

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._deliver, context=self.context)

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._is_closing or self.is_lost

    def close(self) -> None:
        """Sent bytes still arrive."""
        if not self.is_closing():
            self._is_closing = True
            self._network.send_end(self)
            self._loop.call_soon(self.lose, None, context=self.context)

    def abort(self) -> None:
        if not self.is_lost:
            self._is_closing = True
            self._network.reset(self)
            self._loop.call_soon(self.lose, None, context=self.context)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self.other.process.address, self.other.port
        if name == "sockname":
            return self.process.address, self.port
        return default

    # Used by the network, in the context of the receiver

    def open(self) -> None:
        self._protocol.connection_made(self)

    def arrive(self, chunk: bytes) -> None:
        if not self.is_lost:
            self._received.append(memoryview(chunk))
            self._deliver()

    def end(self) -> None:
        """The other end sends no more."""
        self._is_ended = True
        self._deliver()

    def lose(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._received.clear()
        self._network.forget(self)
        self._network.trace.add(
            self._loop.time(), self.process.name, "loses", self.name, type(error).__name__
        )
        self._protocol.connection_lost(error)

    def taken(self, count: int) -> None:
        """The other program has read that much of what was sent from here."""
        self._sent_bytes -= count
        if self._is_writing_paused and self.get_write_buffer_size() <= self._low:
            self._is_writing_paused = False
            if not self.is_lost:
                self._protocol.resume_writing()

    def _deliver(self) -> None:
        while self._received and self._is_reading and not self.is_closing():
            chunk = self._received.popleft()
            count = self._read(chunk)
            if count < len(chunk):
                self._received.appendleft(chunk[count:])
            self._loop.call_soon(self.other.taken, count, context=self.other.context)
        if self._is_ended and not self._received and not self.is_closing():
            self._is_ended = False
            if not self._protocol.eof_received():
                self.close()

    def _read(self, chunk: memoryview) -> int:
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.data_received(bytes(chunk))
            return len(chunk)
        target = memoryview(self._protocol.get_buffer(-1))
        count = min(len(target), len(chunk))
        target[:count] = chunk[:count]
        self._protocol.buffer_updated(count)
        return count
