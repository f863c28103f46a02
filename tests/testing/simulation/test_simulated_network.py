"""The network of a simulation: what arrives, in which order, and what a client sees of a fault."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from moldau.testing.simulation import Latency, Machine, Simulation
from moldau.testing.simulation.simulation import OUTSIDE_ADDRESS

PORT = 9092


class Recorder(asyncio.Protocol):
    """Keeps what it gets, and sends it back if it is to."""

    def __init__(self, *, echoes: bool = False) -> None:
        self.echoes = echoes
        self.received = bytearray()
        self.transport: Any = None
        self.lost: list[Exception | None] = []
        self.pauses = 0
        self.note: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.note()
        if self.echoes:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.pauses += 1


class World:
    """A machine that listens, and clients outside of it."""

    def __init__(self, simulation: Simulation, *, echoes: bool = False) -> None:
        self.simulation = simulation
        self.machine: Machine = simulation.machine()
        self.served: list[Recorder] = []
        self._echoes = echoes

    async def listen(self) -> None:
        self.machine.start_process()
        await self.machine.run(self._serve())

    async def _serve(self) -> None:
        bound = self.machine.network.bind(socket.AF_INET, self.machine.address, PORT, {})
        await bound.serve(self._accept, 10)

    def _accept(self) -> Recorder:
        recorder = Recorder(echoes=self._echoes)
        self.served.append(recorder)
        return recorder

    async def connect(self) -> Recorder:
        _, protocol = await self.simulation.loop.create_connection(
            Recorder, self.machine.address, PORT
        )
        assert isinstance(protocol, Recorder)
        await self.simulation.pass_time(1)
        return protocol


def run(story: Callable[[World], Coroutine[Any, Any, Any]], *, echoes: bool = False) -> None:
    for seed in range(5):
        simulation = Simulation(seed)
        simulation.run(story(World(simulation, echoes=echoes)))
        assert not simulation.problems


def test_bytes_arrive_in_their_order_and_come_back() -> None:
    async def story(world: World) -> None:
        await world.listen()
        client = await world.connect()
        sent = b"".join(b"%d;" % number for number in range(500))
        for piece in sent.split(b";")[:-1]:
            client.transport.write(piece + b";")
        await world.simulation.pass_time(60)
        assert world.served[0].received == sent
        assert client.received == sent

    run(story, echoes=True)


def test_connections_do_not_wait_for_each_other() -> None:
    orders: list[list[int]] = []

    async def story(world: World) -> None:
        world.simulation.network.faults.latency = Latency(0.01, 1.0, 0.5)
        await world.listen()
        clients = [await world.connect() for _ in range(6)]
        arrived: list[int] = []
        for number, served in enumerate(world.served):
            served.note = partial(arrived.append, number)
        world.simulation.network.faults.split_rate = 0.0
        for client in clients:
            client.transport.write(b"x")
        await world.simulation.pass_time(60)
        assert sorted(arrived) == list(range(6))
        orders.append(arrived)

    run(story)
    assert len({tuple(order) for order in orders}) > 1


def test_a_port_without_a_listener_refuses() -> None:
    async def story(world: World) -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        await world.listen()
        await world.connect()
        world.machine.kill()
        with pytest.raises(ConnectionRefusedError):
            await world.connect()

    run(story)


def test_a_killed_process_breaks_its_connections_and_a_machine_without_power_is_silent() -> None:
    async def story(world: World) -> None:
        await world.listen()
        client = await world.connect()
        world.machine.kill()
        await world.simulation.pass_time(1)
        assert [type(error) for error in client.lost] == [ConnectionResetError]
        await world.listen()
        client = await world.connect()
        world.machine.cut_power()
        connecting = asyncio.ensure_future(world.connect())
        await world.simulation.pass_time(100)
        assert not client.lost
        assert not connecting.done()
        await world.listen()
        await connecting
        assert [type(error) for error in client.lost] == [ConnectionResetError]

    run(story)


def test_a_cut_in_one_direction_leaves_the_other() -> None:
    async def story(world: World) -> None:
        await world.listen()
        client = await world.connect()
        there = world.machine.address
        world.simulation.network.cut(there, OUTSIDE_ADDRESS)
        client.transport.write(b"first ")
        client.transport.write(b"second")
        await world.simulation.pass_time(30)
        assert world.served[0].received == b"first second"
        assert not client.received
        world.simulation.network.heal()
        await world.simulation.pass_time(30)
        assert client.received == b"first second"

    run(story, echoes=True)


def test_a_slow_way_delays_one_direction_until_it_heals() -> None:
    async def story(world: World) -> None:
        network = world.simulation.network
        network.faults.latency = Latency(0.001, 0.001)
        await world.listen()
        client = await world.connect()
        network.delay(world.machine.address, OUTSIDE_ADDRESS, 10.0)
        client.transport.write(b"request ")
        await world.simulation.pass_time(5)
        assert world.served[0].received == b"request "
        assert not client.received
        await world.simulation.pass_time(6)
        assert client.received == b"request "
        network.heal()
        client.transport.write(b"again")
        await world.simulation.pass_time(1)
        assert client.received == b"request again"

    run(story, echoes=True)


def test_an_observer_sees_what_is_sent_even_if_it_is_lost() -> None:
    async def story(world: World) -> None:
        seen: list[bytes] = []
        world.simulation.network.on_send = lambda _end, chunk: seen.append(chunk)
        world.simulation.network.faults.lost_answer_rate = 1.0
        await world.listen()
        client = await world.connect()
        client.transport.write(b"request")
        await world.simulation.pass_time(30)
        assert b"".join(seen) == b"requestrequest"
        assert not client.received

    run(story, echoes=True)


def test_a_lost_answer_is_a_broken_connection() -> None:
    async def story(world: World) -> None:
        world.simulation.network.faults.lost_answer_rate = 1.0
        await world.listen()
        client = await world.connect()
        client.transport.write(b"request")
        await world.simulation.pass_time(30)
        assert world.served[0].received == b"request"
        assert not client.received
        assert [type(error) for error in client.lost] == [ConnectionResetError]
        assert len(world.served[0].lost) == 1

    run(story, echoes=True)


def test_a_writer_is_held_back_by_a_reader_that_pauses() -> None:
    async def story(world: World) -> None:
        await world.listen()
        client = await world.connect()
        world.served[0].transport.pause_reading()
        client.transport.write(bytes(1 << 20))
        await world.simulation.pass_time(30)
        assert client.pauses == 1
        assert not world.served[0].received
        world.served[0].transport.resume_reading()
        await world.simulation.pass_time(30)
        assert len(world.served[0].received) == 1 << 20
        assert client.transport.get_write_buffer_size() == 0

    run(story)


def test_a_closed_connection_ends_at_the_other_end_after_its_bytes() -> None:
    async def story(world: World) -> None:
        await world.listen()
        client = await world.connect()
        client.transport.write(b"last words")
        client.transport.close()
        await world.simulation.pass_time(30)
        assert world.served[0].received == b"last words"
        assert world.served[0].lost == [None]
        assert client.lost == [None]

    run(story)


def test_a_connection_that_its_program_gives_up_is_closed() -> None:
    async def story(world: World) -> None:
        await world.listen()
        given_up = Recorder()

        def give_up() -> Recorder:
            connecting.cancel()
            return given_up

        connecting = asyncio.ensure_future(
            world.simulation.loop.create_connection(give_up, world.machine.address, PORT)
        )
        await asyncio.wait([connecting])
        await world.simulation.pass_time(1)
        assert connecting.cancelled()
        assert given_up.lost == [None]
        assert [served.lost for served in world.served] == [[None]]

    run(story)
