"""Responses leave in the order of their requests, and no client costs memory without bound."""

import asyncio
import gc
import weakref
from typing import Any, cast

import pytest
from broker.connection_server import Client, Server, echo, serving
from support.proofs import proves
from support.waiting import until

from moldau.broker.metrics.counters import HeldBack, HeldBackClient
from moldau.broker.server.context import RequestContext, Staged
from moldau.broker.server.exchange import ANSWER_BYTES_MAX
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.sync_group import SyncGroupResponse
from moldau.protocol.wire.frame import ResponseTooLongError, build_response
from moldau.protocol.wire.schema import Message


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(echo) as server:
        client = await Client.to(server)
        for number in range(1000):
            client.send(number)
        answers = [await client.answer() for _ in range(1000)]
        assert [number for number, _ in answers] == list(range(1000))


async def test_a_staged_request_lets_the_next_begin_and_still_answers_first() -> None:
    seen: list[int] = []
    gate = asyncio.Event()

    def outcome(_ctx: RequestContext, request: HeartbeatRequest) -> Staged | HeartbeatResponse:
        seen.append(request.generation_id)
        if request.generation_id > 0:
            gate.set()
            return HeartbeatResponse()

        async def second_stage() -> HeartbeatResponse:
            await gate.wait()
            return HeartbeatResponse(throttle_time_ms=7)

        return Staged(second_stage())

    async with serving(outcome) as server:
        client = await Client.to(server)
        client.send(0)
        client.send(1)
        assert [(await client.answer())[0] for _ in range(2)] == [0, 1]
        assert seen == [0, 1]


async def test_a_waiting_request_keeps_the_next_from_beginning() -> None:
    gate = asyncio.Event()
    seen: list[int] = []

    async def outcome(_ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        seen.append(request.generation_id)
        await gate.wait()
        return HeartbeatResponse()

    async with serving(outcome) as server:
        client, other = await Client.to(server), await Client.to(server)
        client.send(0)
        client.send(1)
        other.send(2)
        await until(lambda: 2 in seen)
        assert 1 not in seen
        gate.set()
        assert [(await client.answer())[0] for _ in range(2)] == [0, 1]


async def test_a_request_that_takes_its_place_late_lets_the_next_begin_then() -> None:
    seen: list[int] = []
    placed, gate = asyncio.Event(), asyncio.Event()

    async def outcome(_ctx: RequestContext, request: HeartbeatRequest) -> Any:
        seen.append(request.generation_id)
        if request.generation_id > 0:
            gate.set()
            return HeartbeatResponse()

        async def second_stage() -> HeartbeatResponse:
            await gate.wait()
            return HeartbeatResponse()

        await placed.wait()
        return Staged(second_stage())

    async with serving(outcome) as server:
        client, other = await Client.to(server), await Client.to(server)
        client.send(0)
        client.send(1)
        other.send(2)
        await until(lambda: 2 in seen)
        assert 1 not in seen
        placed.set()
        assert [(await client.answer())[0] for _ in range(2)] == [0, 1]


async def test_a_handler_with_a_bug_answers_unknown_server_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        if request.generation_id == 0:
            raise RuntimeError("a bug")
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)

    async with serving(broken) as server:
        client = await Client.to(server)
        client.send(0)
        client.send(1)
        codes = [cast("HeartbeatResponse", (await client.answer())[1]).error_code for _ in range(2)]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_GROUP_ID]
        assert "a bug" in caplog.text


async def test_a_late_refusal_goes_to_the_client_and_not_to_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refusing(_ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        await asyncio.sleep(0)
        if request.generation_id == 0:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        raise RuntimeError("a bug")

    async with serving(refusing) as server:
        client = await Client.to(server)
        client.send(0)
        assert cast("HeartbeatResponse", (await client.answer())[1]).error_code == (
            ErrorCode.INVALID_GROUP_ID
        )
        assert caplog.text == ""
        client.send(1)
        assert cast("HeartbeatResponse", (await client.answer())[1]).error_code == (
            ErrorCode.UNKNOWN_SERVER_ERROR
        )
        assert "a bug" in caplog.text


async def test_a_client_that_never_reads_stops_being_read() -> None:
    served = 0

    def outcome(_ctx: RequestContext, _request: HeartbeatRequest) -> Any:
        nonlocal served
        served += 1
        return SyncGroupResponse(assignment=bytes(100_000))

    async with serving(outcome) as server:
        client = await Client.to(server)
        for number in range(20_000):
            client.send(number)
        before = -1
        while before != served:
            before = served
            for _ in range(100):
                await asyncio.sleep(0)
        # Responses of 2 GB are requested; only what fits into sockets and buffers is made.
        assert served < 2000
        server.clock.advance(70_000)
        await until(lambda: server.listener.connection_count == 0)


@proves("moldau.unread.answer.deadline.ms")
async def test_a_slow_reader_is_waited_for_and_a_stopped_one_is_not() -> None:
    # Much more than the sockets buffer.
    size = 48 << 20

    def long_answer(_ctx: RequestContext, _request: HeartbeatRequest) -> FetchResponse:
        data = PartitionData(records=b"x" * size)
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])

    async with serving(long_answer, moldau_unread_answer_deadline_ms="6000") as server:
        client = await Client.to(server)
        client.send(1)
        await until(lambda: server.metrics.bytes_out > size)
        for _ in range(10):
            await client.reader.readexactly(3 << 20)
            await _pass(server, 1_500)
            assert server.listener.connection_count == 1
        passed_ms = 0
        while server.listener.connection_count:
            await _pass(server, 1_000)
            passed_ms += 1_000
        assert 6_000 <= passed_ms < 30_000


async def _pass(server: Server, ms: int) -> None:
    """Time enough for the listener to check its connections, and for clients to do their part."""
    server.clock.advance(ms)
    for _ in range(20):
        await asyncio.sleep(0)


async def test_half_a_frame_is_waited_for_and_then_given_up() -> None:
    async with serving(echo) as server:
        client = await Client.to(server)
        client.writer.write(b"\x00\x00\x01\x00abc")
        await client.writer.drain()
        await until(lambda: server.metrics.bytes_in > 0)
        server.clock.advance(31_000)
        assert await client.is_closed()


async def test_an_idle_connection_is_closed() -> None:
    async with serving(echo) as server:
        client = await Client.to(server)
        client.send(0)
        await client.answer()
        server.clock.advance(11 * 60_000)
        assert await client.is_closed()


@pytest.mark.parametrize(
    "settings", [{"max_connections": "2"}, {"max_connections_per_ip": "2"}], ids=str
)
async def test_one_connection_too_many_is_refused(settings: dict[str, str]) -> None:
    async with serving(echo, **settings) as server:
        kept = [await Client.to(server) for _ in range(2)]
        for client in kept:
            client.send(1)
            await client.answer()
        assert await (await Client.to(server)).is_closed()
        kept[0].writer.close()
        await until(lambda: server.listener.connection_count <= 1)
        again = await Client.to(server)
        again.send(3)
        assert (await again.answer())[0] == 3


async def test_the_longer_a_flood_of_bad_clients_lasts_the_rarer_are_the_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(echo) as server:
        for _ in range(120):
            for _ in range(8):
                client = await Client.to(server)
                client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert await client.is_closed()
            await _pass(server, 1_000)
        # Six in the first second, then in the next two, four, eight …
        assert 6 < len(caplog.records) <= 7 * 6
        assert "more such lines were left out" in caplog.text
        for _ in range(120):
            await _pass(server, 1_000)
        caplog.clear()
        client = await Client.to(server)
        client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await client.is_closed()
        assert "HTTP request" in caplog.text


async def test_a_trickle_of_bad_clients_is_logged_ever_more_rarely_as_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(echo) as server:
        for _ in range(120):
            for _ in range(3):
                client = await Client.to(server)
                client.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert await client.is_closed()
            await _pass(server, 1_000)
        assert len(caplog.records) <= 7 * 6


async def test_a_client_that_is_held_back_is_named_once_however_often_it_connects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def outcome(_ctx: RequestContext, _request: HeartbeatRequest) -> Message:
        return SyncGroupResponse(assignment=bytes(ANSWER_BYTES_MAX))

    async with serving(outcome) as server:
        for number in range(4):
            client = await Client.to(server)
            client.send(number)
            assert (await client.answer())[0] == number
        assert caplog.text.count("is held back") == 1
        assert server.metrics.held_back.by_kind["answer"] == 4
        named = HeldBackClient("127.0.0.1", "test", "answer")
        assert server.metrics.held_back.by_client == {named: 4}


def test_of_clients_that_are_held_back_few_are_named_and_safely() -> None:
    held_back = HeldBack()
    for _ in range(3):
        held_back.add("memory", "10.0.0.1", "greedy")
    for number in range(1_000):
        held_back.add("time", "10.0.0.2", f"another {number}" + "x" * number)
    held_back.add("time", "10.0.0.3", 'new\nline "quoted" \u202e')
    assert held_back.by_kind == {"memory": 3, "time": 1_001}
    assert len(held_back.by_client) == 10
    assert held_back.by_client[HeldBackClient("10.0.0.1", "greedy", "memory")] == 3
    assert all(each.client_id.isprintable() for each in held_back.by_client)
    assert max(len(each.client_id) for each in held_back.by_client) < 70
    assert "10.0.0.3" in [each.host for each in held_back.by_client]


async def test_waiting_requests_are_cancelled_when_the_client_goes() -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def outcome(_ctx: RequestContext, _request: HeartbeatRequest) -> HeartbeatResponse:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return HeartbeatResponse()

    async with serving(outcome) as server:
        client = await Client.to(server)
        client.send(0)
        await began.wait()
        client.writer.close()
        await ended.wait()
        await until(lambda: len(server.tasks) == 0)
        assert server.budget.held == 0


class _Mark(str):  # noqa: SLOT000 - weak references need a place
    """A text whose deallocation is observed."""


@pytest.mark.parametrize("ends", ["leaves", "is cut off", "is hung up on", "is refused"])
@pytest.mark.parametrize("more", [0, 1_500_000], ids=["small", "large"])
async def test_nothing_is_left_of_a_request_that_was_not_answered(ends: str, more: int) -> None:
    """Before Python's slow collector runs: requests may be large."""
    began, ending, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def outcome(_ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        request.member_id = _Mark()
        weakref.finalize(request.member_id, gone.set)
        began.set()
        await ending.wait()
        if ends == "is refused":
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        raise MalformedRequestError("a client's mistake")

    async with serving(outcome) as server:
        client = await Client.to(server)
        gc.disable()
        try:
            client.send(0, more=more)
            await began.wait()
            assert not gone.is_set()
            if ends == "leaves":
                client.writer.close()
                await until(lambda: server.listener.connection_count == 0)
            elif ends == "is cut off":
                server.listener.drop_connections()
            ending.set()
            if ends == "is refused":
                assert (await client.answer())[0] == 0
            else:
                await until(lambda: server.listener.connection_count == 0)
            await until(lambda: len(server.tasks) == 0)
            for _ in range(100):
                await asyncio.sleep(0)
            assert gone.is_set()
        finally:
            gc.enable()


@pytest.mark.parametrize(("allowed", "begun"), [(65_536, 1), (600_000, 4)])
@proves("moldau.connection.inflight.bytes.max")
async def test_one_connection_has_no_more_in_flight_than_it_may(allowed: int, begun: int) -> None:
    gate = asyncio.Event()
    seen = 0

    def outcome(_ctx: RequestContext, _request: HeartbeatRequest) -> Staged:
        nonlocal seen
        seen += 1

        async def second_stage() -> HeartbeatResponse:
            await gate.wait()
            return HeartbeatResponse()

        return Staged(second_stage())

    async with serving(outcome, moldau_connection_inflight_bytes_max=str(allowed)) as server:
        client = await Client.to(server)
        # Each takes eight times its bytes when it is decoded.
        for number in range(10):
            client.send(number, "m" * 20_000)
        await until(lambda: seen == begun)
        for _ in range(100):
            await asyncio.sleep(0)
        assert seen == begun
        gate.set()
        assert [(await client.answer())[0] for _ in range(10)] == list(range(10))


@proves("moldau.inflight.bytes.max")
async def test_the_total_of_held_bytes_is_bounded() -> None:
    """Waiting requests of many connections share one budget."""
    gate = asyncio.Event()
    began = 0

    def outcome(_ctx: RequestContext, _request: HeartbeatRequest) -> Staged:
        nonlocal began
        began += 1

        async def second_stage() -> HeartbeatResponse:
            await gate.wait()
            return HeartbeatResponse()

        return Staged(second_stage())

    async with serving(outcome, moldau_inflight_bytes_max="1048576") as server:
        clients = [await Client.to(server) for _ in range(10)]
        for client in clients:
            for number in range(50):
                client.send(number, "m" * 20_000)
        before = -1
        while before != began:
            before = began
            for _ in range(100):
                await asyncio.sleep(0)
        assert began < 300
        gate.set()
        for client in clients:
            assert [(await client.answer())[0] for _ in range(50)] == list(range(50))


async def test_unread_answers_leave_less_room_for_more() -> None:
    def outcome(_ctx: RequestContext, _request: HeartbeatRequest) -> Message:
        return SyncGroupResponse(assignment=bytes(1_000_000))

    async with serving(outcome, moldau_inflight_bytes_max="16777216") as server:
        everything = server.budget.room_for_answer()
        client = await Client.to(server)
        for number in range(20):
            client.send(number)
        await until(lambda: server.budget.answer_bytes > 0)
        assert server.budget.room_for_answer() < everything
        client.writer.transport.abort()
        await until(lambda: server.listener.connection_count == 0)
        assert server.budget.room_for_answer() == everything


async def test_an_answer_that_is_too_long_is_refused_to_its_client_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:

    def outcome(_ctx: RequestContext, request: HeartbeatRequest) -> Message:
        if request.generation_id == 0:
            return SyncGroupResponse(assignment=bytes(ANSWER_BYTES_MAX))
        return HeartbeatResponse()

    async with serving(outcome) as server:
        client = await Client.to(server)
        client.send(0)
        client.send(1)
        answers = [cast("HeartbeatResponse", (await client.answer())[1]) for _ in range(2)]
        assert [each.error_code for each in answers] == [ErrorCode.INVALID_REQUEST, 0]
        assert server.metrics.held_back.by_kind["answer"] == 1
        assert "request less at once" in caplog.text
        assert "Traceback" not in caplog.text


def test_no_frame_announces_a_length_that_does_not_fit() -> None:
    """Two gigabytes that consist of the same view again and again."""
    part = PartitionData(records=memoryview(bytes(1 << 26)))
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=[part] * 32)])
    with pytest.raises(ResponseTooLongError):
        build_response(answer, 16, correlation_id=1)


async def test_an_answer_with_a_bug_ends_its_own_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def outcome(_ctx: RequestContext, request: HeartbeatRequest) -> Any:
        if request.generation_id == 0:
            return SyncGroupResponse(assignment=cast("bytes", 7))
        return HeartbeatResponse()

    async with serving(outcome) as server:
        broken, other = await Client.to(server), await Client.to(server)
        broken.send(0)
        other.send(1)
        assert await broken.is_closed()
        assert (await other.answer())[0] == 1
        assert "writing the answer to HEARTBEAT failed unexpectedly" in caplog.text
