"""Memory stays bounded, and other clients continue, with any number of unfinished frames and
responses.
"""

import asyncio

import pytest
from broker.connection_server import Client, Server, echo, serving
from support.waiting import take_turns, until

from moldau.broker.server.context import RequestContext
from moldau.broker.server.memory_budget import MemoryBudget
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from moldau.protocol.messages.produce import ProduceRequest, ProduceResponse
from moldau.protocol.messages.sync_group import SyncGroupResponse
from moldau.protocol.wire.frame import build_request
from moldau.protocol.wire.schema import Message

MIB = 1 << 20
FRAME_BYTES = 8 * MIB
SMALL = {"moldau_inflight_bytes_max": str(4 * MIB), "socket_request_max_bytes": str(FRAME_BYTES)}


async def half_sent(server: Server, size: int, sent: int) -> Client:
    """A frame that announces `size` bytes, of which only `sent` ever arrive."""
    client = await Client.to(server)
    client.writer.write(size.to_bytes(4, "big") + bytes(sent))
    return client


async def all_read(server: Server) -> None:
    """Waits until nothing more is read."""
    before = -1
    while before != server.metrics.bytes_in:
        before = server.metrics.bytes_in
        await take_turns()


async def some_time_passes(server: Server) -> None:
    for _ in range(10):
        await all_read(server)
        server.clock.advance(600)


async def is_served(client: Client) -> bool:
    client.send(1)
    return (await client.answer())[0] == 1


async def test_announced_frames_take_next_to_nothing() -> None:
    async with serving(echo) as server:
        for _ in range(300):
            await half_sent(server, 100 * MIB, 5)
        await until(lambda: server.listener.connection_count == 300)
        await all_read(server)
        assert server.budget.unfinished <= 300 * 4096


async def test_unfinished_frames_are_bounded_and_others_are_served() -> None:
    async with serving(echo, **SMALL) as server:
        other = await Client.to(server)
        for _ in range(20):
            await half_sent(server, FRAME_BYTES, FRAME_BYTES - 1)
        await all_read(server)
        # Buffers that were begun may grow beyond the limit one more time.
        assert server.budget.unfinished < 1.25 * FRAME_BYTES
        assert await is_served(other)


async def test_of_frames_that_wait_for_each_other_the_oldest_is_completed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(echo, **SMALL) as server:
        oldest, *others = [await Client.to(server) for _ in range(20)]
        await until(lambda: server.listener.connection_count == 20)
        oldest.writer.write(_padded(HeartbeatRequest(group_id="g"), FRAME_BYTES))
        for client in others:
            client.writer.write(FRAME_BYTES.to_bytes(4, "big") + bytes(FRAME_BYTES - 1))
        await some_time_passes(server)
        assert (await oldest.answer())[0] == 7
        assert "is held back: disconnected: memory for unfinished requests" in caplog.text
        assert server.metrics.held_back.by_kind["memory"] > 0


async def test_a_stalled_frame_yields_to_one_that_progresses() -> None:
    async with serving(echo, **SMALL) as server:
        stalled = await half_sent(server, FRAME_BYTES, FRAME_BYTES * 7 // 8)
        await all_read(server)
        held = server.budget.unfinished
        assert held >= FRAME_BYTES * 7 // 8
        client = await Client.to(server)
        client.writer.write(_padded(HeartbeatRequest(group_id="g"), FRAME_BYTES))
        await some_time_passes(server)
        assert (await client.answer())[0] == 7
        assert await stalled.is_closed()


async def test_a_frame_of_the_largest_size_is_read_to_its_last_byte() -> None:
    async with serving(echo, **SMALL) as server:
        client = await Client.to(server)
        frame = _padded(HeartbeatRequest(group_id="g"), FRAME_BYTES)
        client.writer.write(frame[:FRAME_BYTES])
        await until(lambda: server.metrics.bytes_in == FRAME_BYTES)
        client.writer.write(frame[FRAME_BYTES:])
        assert (await client.answer())[0] == 7


async def silent_client(server: Server) -> Client:
    client = await Client.to(server)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    return client


def much_or_little(_ctx: RequestContext, request: HeartbeatRequest) -> Message:
    """A response with as many bytes as the member's name says."""
    if request.member_id:
        return SyncGroupResponse(assignment=bytes(int(request.member_id)))
    return HeartbeatResponse()


async def test_a_client_that_does_not_read_yields_when_memory_is_short() -> None:
    async with serving(much_or_little, **SMALL) as server:
        other = await Client.to(server)
        silent = [await silent_client(server) for _ in range(20)]
        for place, client in enumerate(silent):
            # More than the sockets buffer, and of different sizes, as equal ones might fit into
            # them.
            for _ in range(100):
                client.send(1, str(MIB - 1_000 - 30_000 * place))
        await until(lambda: server.budget.room_for_answer() == 0)
        assert await is_served(other)
        await some_time_passes(server)
        await until(lambda: server.budget.room_for_answer() > 0)
        assert server.metrics.held_back.by_kind["memory"] > 0
        assert await is_served(other)


async def test_unread_large_responses_do_not_affect_others() -> None:
    async with serving(much_or_little, **SMALL) as server:
        other, larger = await Client.to(server), await Client.to(server)
        for _ in range(10):
            (await silent_client(server)).send(1, str(16 * MIB))
        await until(lambda: server.budget.large_answers.is_waited_for)
        # One is always written; requests in the queue have none.
        assert 0 < server.budget.large_answers.bytes < 16 * MIB
        assert server.budget.room_for_answer() > MIB, "consumers get what they requested"
        assert not server.budget.is_tight
        assert await is_served(other)
        larger.send(2, str(MIB // 2))
        assert await larger.answered() == 2


async def test_unread_large_responses_yield_to_the_next() -> None:
    async with serving(much_or_little, **SMALL) as server:
        silent = [await silent_client(server) for _ in range(3)]
        for client in silent:
            client.send(1, str(16 * MIB))
        await until(lambda: server.budget.large_answers.is_waited_for)
        last = await Client.to(server)
        last.send(2, str(16 * MIB))
        for _ in range(3):
            await some_time_passes(server)
        assert await last.answered() == 2
        await until(lambda: server.budget.large_answers.bytes == 0)
        assert server.listener.connection_count == 1


async def test_a_large_response_may_be_read_late_if_no_other_is_requested() -> None:
    async with serving(much_or_little, **SMALL) as server:
        late = await silent_client(server)
        late.send(1, str(16 * MIB))
        await until(lambda: server.budget.large_answers.bytes > 0)
        await some_time_passes(server)
        late.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await late.answered() == 1


async def test_a_client_that_holds_next_to_nothing_is_served_however_much_others_hold() -> None:
    """Also beyond the limit: a started request may turn out larger than estimated."""
    async with serving(_waits_if_named, **SMALL) as server:
        other = await Client.to(server)
        waiting = [await Client.to(server) for _ in range(40)]
        for client in waiting:
            # Eight times as much when it is decoded.
            client.send(1, "waits", more=15_000)
        await until(lambda: server.budget.held > 1.25 * server.budget.served_max)
        await all_read(server)
        for _ in range(3):
            assert await is_served(other)
        # A larger frame has to wait until parked requests make room.
        other.send(2, more=MIB // 8)
        await all_read(server)
        assert server.budget.held >= server.budget.served_max
        await some_time_passes(server)
        assert (await other.answer())[0] == 2
        assert server.metrics.held_back.by_kind["memory"] > 0


async def test_other_nodes_have_memory_left_however_much_clients_hold() -> None:
    """A follower's fetch is what commits the records that clients wait for, and a heartbeat that
    is not read fences a broker.
    """
    async with serving(_waits_if_named, **SMALL) as server:
        peer = await Client.to(server, as_peer=True)
        for client in [await Client.to(server) for _ in range(40)]:
            client.send(1, "waits", more=15_000)
        for client in [await half_sent(server, FRAME_BYTES, 0) for _ in range(8)]:
            client.writer.write(bytes(MIB))
        await until(lambda: server.budget.held > 1.25 * server.budget.served_max)
        await all_read(server)
        for number in range(3):
            peer.send(number, more=MIB // 8)
            assert (await peer.answer())[0] == number


async def test_far_beyond_the_limit_the_largest_holder_goes_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(_waits_if_named, moldau_inflight_bytes_max=str(16 * MIB)) as server:
        for client in [await Client.to(server) for _ in range(450)]:
            # Small enough to be read at any time.
            client.send(1, "waits", more=15_000)
        await until(lambda: "memory is very short" in caplog.text)
        await all_read(server)
        assert server.budget.held < server.budget.served_max + 33 * MIB
        assert server.budget.held > server.budget.served_max
        assert await is_served(await Client.to(server))


async def test_records_of_large_frames_that_are_complete_at_once_are_all_taken() -> None:
    """They only move from one share to the other; closing them would gain nothing."""
    may_answer = asyncio.Event()

    async def outcome(_ctx: RequestContext, _request: ProduceRequest) -> Message:
        await may_answer.wait()
        return ProduceResponse()

    size = 6 * MIB
    sent = b"".join(build_request(ProduceRequest(), 9, correlation_id=5, client_id="test"))[4:]
    frame = size.to_bytes(4, "big") + sent + bytes(size - len(sent))
    async with serving(outcome, moldau_inflight_bytes_max=str(64 * MIB)) as server:
        clients = [await Client.to(server) for _ in range(12)]
        # All at the same pace, so that they would be complete at the same time.
        for start in range(0, len(frame), MIB // 4):
            for client in clients:
                client.writer.write(frame[start : start + MIB // 4])
            await all_read(server)
        await all_read(server)
        assert server.budget.held > server.budget.served_max
        may_answer.set()
        for client in clients:
            assert await client.answered() == 5
        assert server.metrics.held_back.by_kind == {}


async def _waits_if_named(_ctx: RequestContext, request: HeartbeatRequest) -> Message:
    if request.member_id:
        await asyncio.Event().wait()
    return HeartbeatResponse()


async def test_a_far_too_slow_reader_yields_as_well() -> None:
    async with serving(much_or_little, **SMALL) as server:
        other, slow = await Client.to(server), await Client.to(server)
        assert await is_served(slow)
        server.clock.advance(950)  # The listener checks its connections once a second.
        # Much more than the sockets buffer.
        slow.send(1, str(96 * MIB))
        await until(lambda: server.budget.large_answers.bytes > server.budget.served_max)
        (await Client.to(server)).send(1, str(16 * MIB))
        await until(lambda: server.budget.large_answers.is_waited_for)
        server.clock.advance(100)
        await all_read(server)
        rounds = 0
        while server.budget.large_answers.is_waited_for and rounds < 10:
            await slow.reader.readexactly(6 * MIB)
            server.clock.advance(1_100)
            await all_read(server)
            rounds += 1
        assert rounds < 10
        assert server.listener.connection_count == 2
        assert await is_served(other)


async def test_large_queries_are_served_a_few_at_a_time_and_other_requests_meanwhile() -> None:
    under_way, most, answered = 0, 0, asyncio.Event()

    async def outcome(_ctx: RequestContext, request: Message) -> Message:
        nonlocal under_way, most
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse()
        under_way += 1
        most = max(most, under_way)
        await answered.wait()
        under_way -= 1
        return MetadataResponse(topics=[MetadataResponseTopic() for _ in range(5_000)])

    names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(5_000)]
    frame = b"".join(
        build_request(MetadataRequest(topics=names), 12, correlation_id=7, client_id="asks")
    )
    async with serving(outcome) as server:
        asking = [await Client.to(server) for _ in range(8)]
        for client in asking:
            client.writer.write(frame)
        await until(lambda: under_way == 2)
        await all_read(server)
        assert await is_served(await Client.to(server))
        # Those that wait are not decoded yet, and take no more than their bytes.
        assert server.budget.held == len(asking) * (len(frame) - 4)
        await _gone(asking.pop(), server)
        answered.set()
        for client in asking:
            assert await client.answered() == 7
        assert most == 2
        await until(lambda: server.budget.held == 0)
        assert server.budget.large_answers.bytes == 0


async def _gone(client: Client, server: Server) -> None:
    before = server.listener.connection_count
    client.writer.transport.abort()
    await until(lambda: server.listener.connection_count < before)


async def test_an_answer_that_waits_to_be_written_is_charged() -> None:
    def outcome(_ctx: RequestContext, _request: HeartbeatRequest) -> Message:
        return MetadataResponse(topics=[MetadataResponseTopic(name=str(n)) for n in range(5_000)])

    async with serving(outcome) as server:
        # Nothing is written during another response's turn.
        async with server.budget.large_answers.turn(is_privileged=False):
            clients = [await Client.to(server) for _ in range(10)]
            for client in clients:
                client.send(3)
            await until(lambda: server.budget.held > 10 * 5_000 * 100)
        for client in clients:
            assert await client.answered() == 3
        assert server.budget.held == 0


async def test_answers_that_are_not_read_leave_room_for_requests() -> None:
    budget = MemoryBudget(lambda: 16 * MIB)
    budget.hold_answers(5 * MIB)
    assert budget.room_for_answer() == 3 * MIB
    budget.hold_answers(MIB)
    assert budget.room_for_answer() == 0
    assert budget.room_for_answer(is_privileged=True) == 2 * MIB
    budget.hold(4 * MIB)
    assert budget.room_for_answer(is_privileged=True) > 0
    budget.hold_answers(-MIB)
    assert budget.room_for_answer() > 0, "however much producers send, consumers get something"


def _padded(request: HeartbeatRequest, size: int) -> bytes:
    """A frame with bytes after the request, which the server ignores."""
    frame = b"".join(build_request(request, 4, correlation_id=7, client_id="test"))
    return size.to_bytes(4, "big") + frame[4:] + bytes(size - len(frame) + 4)
