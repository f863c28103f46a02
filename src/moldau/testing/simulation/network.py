"""The network of a simulation: addresses, listeners, connections, and faults."""

import asyncio
import contextvars
import errno
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from moldau.net.network import Addresses, NewProtocol
from moldau.testing.simulation.latency import Latency
from moldau.testing.simulation.loop import SimulatedLoop
from moldau.testing.simulation.process import Process, process_of, running_process
from moldau.testing.simulation.trace import Trace
from moldau.testing.simulation.transport import End

_RETRANSMISSION_S = 1.0
_FIRST_FREE_PORT = 40_000
_BYTES_PER_S = 100e6
_LATENCY = Latency(100e-6, 0.2)


@dataclass(slots=True)
class NetworkFaults:
    """How often something goes wrong, for each write of a program."""

    latency: Latency = _LATENCY
    break_rate: float = 0.0
    """The connection breaks, and both ends learn it, at different times. What was written may or
    may not arrive before.
    """
    lost_answer_rate: float = 0.0
    """The same, for writes of the end that accepted the connection: they never arrive."""
    split_rate: float = 0.1
    """The bytes arrive in two pieces."""


class _Port:
    """A port that a process has bound, and its server from `serve` on."""

    def __init__(self, network: "SimulatedNetwork", address: str, port: int) -> None:
        self.port = port
        self.context = contextvars.copy_context()
        self.new_protocol: NewProtocol | None = None
        self.is_listening = False
        self.waiting: list[End] = []
        """Accepted by the machine, but not yet by its program."""
        self._network = network
        self._key = address, port

    def listen(self, queue_size: int) -> None:
        del queue_size
        self.is_listening = True

    async def serve(self, new_protocol: NewProtocol, queue_size: int) -> "_Port":
        self.new_protocol = new_protocol
        self.listen(queue_size)
        for end in self.waiting:
            self._network.accept(self, end)
        self.waiting.clear()
        return self

    def close(self) -> None:
        self._network.ports.pop(self._key, None)
        for end in self.waiting:
            self._network.reset(end)


class SimulatedNetwork:
    """Connections of all machines. `cut` parts two of them, in one direction or in both, and
    `delay` slows what one sends to the other.
    """

    def __init__(self, loop: SimulatedLoop, chance: Random, trace: Trace) -> None:
        self.loop = loop
        self.trace = trace
        self.faults = NetworkFaults()
        self.ports: dict[tuple[str, int], _Port] = {}
        self.silent: dict[str, None] = {}
        """Addresses of machines without power."""
        self.on_send: Callable[[End, bytes], None] = _nothing
        """Called with everything that a program sends, whether it arrives or not."""
        self._chance = chance
        self._numbers = count(1)
        self._free_ports = count(_FIRST_FREE_PORT)
        self._open: dict[End, None] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._delays_s: dict[tuple[str, str], float] = {}
        self._held: list[tuple[End, bytes | None]] = []
        loop.network = self

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Hold back everything that the machine at address `source` sends to the one at `target`,
        until `heal`. The other direction still works.
        """
        self._cuts[source, target] = None
        self.trace.add(self.loop.time(), source, "cut off from", target)

    def delay(self, source: str, target: str, seconds: float) -> None:
        """Everything that `source` sends to `target` takes so much longer, until `heal`."""
        self._delays_s[source, target] = seconds
        self.trace.add(self.loop.time(), source, "slow to", target, seconds)

    def heal(self) -> None:
        """Ends all cuts and delays. What was held back arrives now."""
        self._cuts.clear()
        self._delays_s.clear()
        held, self._held = self._held, []
        for end, chunk in held:
            if end.is_lost and end.process.is_dead:
                continue
            if chunk is None:
                self.send_end(end)
            else:
                self._carry(end, chunk)

    def break_connections(self, address: str) -> None:
        """Breaks all connections of that machine; their ends learn it soon."""
        for end in list(self._open):
            if end.process.address == address:
                self._break(end)
                self._break(end.other)

    def stopped(self, process: Process, *, is_silent: bool) -> None:
        """The process is dead. Unless the whole machine is silent, its peers learn it."""
        for port_key, port in list(self.ports.items()):
            if process_of(port.context) is process:
                del self.ports[port_key]
        for end in list(self._open):
            if end.process is process:
                end.is_lost = True
                if not is_silent:
                    self.forget(end)
                    self._break(end.other)

    def powered(self, address: str) -> None:
        """The machine has power again: it does not know the connections of before."""
        self.silent.pop(address, None)
        for end in list(self._open):
            if end.is_lost and end.process.address == address:
                self.forget(end)
                self._break(end.other)

    # Connections

    async def resolve(self, host: str, port: int) -> Addresses | list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (str(host), port))]

    async def connect(
        self, new_protocol: NewProtocol, host: str, port_number: int
    ) -> tuple[End, asyncio.BaseProtocol]:
        process = running_process()
        await asyncio.sleep(self._latency_s())
        while self._is_apart(process.address, host):  # noqa: ASYNC110 - TCP asks again, too
            await asyncio.sleep(_RETRANSMISSION_S)
        port = self.ports.get((host, port_number))
        if port is None or not port.is_listening:
            self.trace.add(self.loop.time(), process.name, "refused", host, port_number)
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        number = next(self._numbers)
        protocol = new_protocol()
        near = End(self, f"{number}>", protocol, contextvars.copy_context())
        far = End(self, f"{number}<", None, port.context.copy())
        near.other, far.other = far, near
        near.port, far.port = next(self._free_ports), port_number
        self._open[near] = self._open[far] = None
        self.trace.add(self.loop.time(), process.name, "connects", near.name, host, port_number)
        if port.new_protocol is None:
            port.waiting.append(far)
        else:
            self.accept(port, far)
        opened = self.loop.create_future()
        self.loop.call_soon(near.open)
        self.loop.call_soon(_open, opened)
        try:
            await opened
        except BaseException:
            near.close()
            raise
        return near, protocol

    def accept(self, port: _Port, end: End) -> None:
        end.other.not_before_s = self.loop.time() + self._latency_s()
        self.loop.call_at(end.other.not_before_s, self._open_far, port, end, context=end.context)

    def _open_far(self, port: _Port, end: End) -> None:
        if end.is_lost:
            return
        assert port.new_protocol is not None, "it serves"
        end.set_protocol(port.new_protocol())
        end.open()

    def send(self, end: End, chunk: bytes) -> None:
        self.on_send(end, chunk)
        faults = self.faults
        if end.name[-1] == "<" and self._chance.random() < faults.lost_answer_rate:
            self._break_both(end)
            return
        if self._chance.random() < faults.break_rate:
            self._break_both(end)
        self._carry(end, chunk)

    def _break_both(self, end: End) -> None:
        self._break(end)
        self._break(end.other)

    def send_end(self, end: End) -> None:
        if self._is_held(end, None):
            return
        self._schedule(end, 0, end.other.end)

    def reset(self, end: End) -> None:
        """The other end learns it, before or after what is on its way."""
        if not end.other.is_lost:
            self._break(end.other)

    def forget(self, end: End) -> None:
        self._open.pop(end, None)

    def _break(self, end: End) -> None:
        error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        when_s = self.loop.time() + self._latency_s()
        if self._chance.random() < 0.5:
            when_s = max(when_s, end.other.not_before_s)
        self.loop.call_at(when_s, self._broken, end, error, context=end.context)

    def _broken(self, end: End, error: Exception) -> None:
        if end.get_protocol() is None:
            # Its program has not accepted it yet.
            end.is_lost = True
            self.forget(end)
        else:
            end.lose(error)

    def _carry(self, end: End, chunk: bytes) -> None:
        if self._is_held(end, chunk):
            return
        if len(chunk) > 1 and self._chance.random() < self.faults.split_rate:
            at = self._chance.randrange(1, len(chunk))
            self._schedule(end, at, end.other.arrive, chunk[:at])
            self._schedule(end, len(chunk) - at, end.other.arrive, chunk[at:])
        else:
            self._schedule(end, len(chunk), end.other.arrive, chunk)

    def _schedule(self, end: End, size: int, call: Any, *args: Any) -> None:
        arrival_s = self.loop.time() + self._latency_s() + size / _BYTES_PER_S
        way = end.process.address, end.other.process.address
        arrival_s += self._delays_s.get(way, 0.0)
        end.not_before_s = max(end.not_before_s, arrival_s)
        self.loop.call_at(end.not_before_s, call, *args, context=end.other.context)

    def _is_held(self, end: End, chunk: bytes | None) -> bool:
        is_cut = (end.process.address, end.other.process.address) in self._cuts
        if is_cut:
            self._held.append((end, chunk))
        return is_cut

    def _is_apart(self, one: str, other: str) -> bool:
        return (one, other) in self._cuts or (other, one) in self._cuts or other in self.silent

    def _latency_s(self) -> float:
        return self.faults.latency.draw(self._chance)

    # What a node's listeners use

    def bind(self, address: str, port: int) -> _Port:
        port = port or next(self._free_ports)
        if (address, port) in self.ports:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        bound = self.ports[address, port] = _Port(self, address, port)
        return bound


class MachineNetwork:
    """The network as one machine sees it."""

    def __init__(self, network: SimulatedNetwork, address: str) -> None:
        self._network = network
        self._address = address

    def addresses_of(self, host: str) -> Addresses:
        return [(socket.AF_INET, host or self._address)]

    def bind(
        self, _family: socket.AddressFamily, address: str, port: int, _buffers: Mapping[int, int]
    ) -> _Port:
        return self._network.bind(address, port)

    def full_name(self) -> str:
        return self._address


def _open(opened: "asyncio.Future[None]") -> None:
    """Unless its program has given it up."""
    if not opened.done():
        opened.set_result(None)


def _nothing(_end: End, _chunk: bytes) -> None:
    """In place of an observer."""
