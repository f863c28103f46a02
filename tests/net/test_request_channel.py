"""The client side of a connection: responses reach their requests, and every failure has one
line.
"""

import asyncio
import socket

import pytest
from client.strange_server import answer, next_request, strange_server

from moldau.net.clock import Clock, ShiftedClock
from moldau.net.request_channel import Address, ChannelError, ChannelOptions, RequestChannel
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse

METADATA = MetadataRequest(topics=[])
VERSION = 12


async def ask(channel: RequestChannel) -> str | None:
    return (await channel.ask(METADATA, MetadataResponse, VERSION)).cluster_id


async def test_pipelined_responses_reach_their_requests() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting = [await next_request(reader) for _ in range(10)]
        for request in waiting:
            number = request.header.correlation_id
            writer.write(answer(request, MetadataResponse(cluster_id=f"answer {number}")))

    async with strange_server(serve) as address:
        channel = await RequestChannel.open(address, Clock())
        found = await asyncio.gather(*(ask(channel) for _ in range(10)))
        await channel.close()
    assert found == [f"answer {number}" for number in range(10)]


async def test_a_response_may_arrive_in_pieces() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in answer(await next_request(reader), MetadataResponse(cluster_id="whole")):
            writer.write(bytes([byte]))
            await writer.drain()

    async with strange_server(serve) as address:
        channel = await RequestChannel.open(address, Clock())
        assert await ask(channel) == "whole"
        await channel.close()


async def test_no_more_than_the_limit_is_under_way() -> None:
    heard_three = asyncio.Event()
    may_answer = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting = [await next_request(reader) for _ in range(3)]
        heard_three.set()
        await may_answer.wait()
        for request in waiting:
            writer.write(answer(request, MetadataResponse()))
        writer.write(answer(await next_request(reader), MetadataResponse(cluster_id="fourth")))

    async with strange_server(serve) as address:
        channel = await RequestChannel.open(address, Clock(), ChannelOptions(in_flight_max=3))
        requested = [asyncio.ensure_future(ask(channel)) for _ in range(4)]
        await heard_three.wait()
        assert channel.in_flight == 3
        may_answer.set()
        assert (await asyncio.gather(*requested))[3] == "fourth"
        await channel.close()


async def test_a_late_response_fails_all_waiting_requests() -> None:
    received = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next_request(reader)
        received.set()
        await reader.read()

    clock = ShiftedClock()
    async with strange_server(serve) as address:
        channel = await RequestChannel.open(address, clock)
        requested = [asyncio.ensure_future(ask(channel)) for _ in range(2)]
        await received.wait()
        clock.advance(30_001)
        outcomes = await asyncio.gather(*requested, return_exceptions=True)
        await channel.close()
    assert [str(outcome) for outcome in outcomes] == [f"{address}: no response in time"] * 2
    with pytest.raises(ChannelError):
        await ask(channel)


async def test_an_unexpected_response_ends_the_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await next_request(reader)
        request.header.correlation_id = 77
        writer.write(answer(request, MetadataResponse()))
        await reader.read()

    async with strange_server(serve) as address:
        channel = await RequestChannel.open(address, Clock())
        with pytest.raises(ChannelError, match="unknown correlation id"):
            await ask(channel)
        assert channel.is_closed


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x50", "speaks TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "frame of"),
        (b"\xff\xff\xff\xff", "frame of -1 bytes"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x00\x01\x02\x03\x04", "127.0.0.1"),
        (b"", "requires TLS or SASL"),
    ],
)
async def test_a_peer_that_is_not_kafka_is_named(reply: bytes, reason: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next_request(reader)
        writer.write(reply)

    async with strange_server(serve) as address:
        channel = await RequestChannel.open(address, Clock())
        with pytest.raises(ChannelError, match=reason) as caught:
            await ask(channel)
        await channel.close()
    assert len(str(caught.value).splitlines()) == 1


async def test_a_broken_connection_fails_waiting_requests() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await next_request(reader), MetadataResponse()))
        await next_request(reader)

    async with strange_server(serve) as address:
        channel = await RequestChannel.open(address, Clock())
        await ask(channel)
        with pytest.raises(ChannelError, match="the connection was lost"):
            await ask(channel)


async def test_a_node_that_knows_only_old_versions_is_understood() -> None:
    """KIP-511: the response to an unknown version of ApiVersions has version 0."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await next_request(reader)
        request.header.request_api_version = 0
        known = ApiVersion(api_key=18, min_version=0, max_version=2)
        code = ErrorCode.UNSUPPORTED_VERSION
        writer.write(answer(request, ApiVersionsResponse(error_code=code, api_keys=[known])))
        await reader.read()

    async with strange_server(serve) as address:
        channel = await RequestChannel.open(address, Clock())
        found = await channel.ask(ApiVersionsRequest(), ApiVersionsResponse, 4)
        await channel.close()
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert found.api_keys[0].max_version == 2


async def test_a_cancelled_request_does_not_disturb_others() -> None:
    first_heard = asyncio.Event()
    may_answer = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = [await next_request(reader), await next_request(reader)]
        first_heard.set()
        await may_answer.wait()
        writer.write(answer(requests[0], HeartbeatResponse(error_code=1)))
        writer.write(answer(requests[1], HeartbeatResponse(error_code=2)))

    async with strange_server(serve) as address:
        channel = await RequestChannel.open(address, Clock())
        requested = [
            asyncio.ensure_future(channel.ask(HeartbeatRequest(), HeartbeatResponse, 4))
            for _ in range(2)
        ]
        await first_heard.wait()
        requested[0].cancel()
        may_answer.set()
        assert (await requested[1]).error_code == 2
        await channel.close()


async def test_an_address_without_a_listener_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with pytest.raises(ChannelError, match=f"cannot reach 127.0.0.1:{port}: nothing listens there"):
        await RequestChannel.open(Address("127.0.0.1", port), Clock())


async def test_an_unknown_name_is_reported() -> None:
    with pytest.raises(ChannelError, match="the name is not known"):
        await RequestChannel.open(Address("no-such-host.invalid", 9092), Clock())


async def test_all_addresses_of_a_name_are_tried() -> None:
    """`localhost` may resolve to ::1 first; a broker that listens on 127.0.0.1 is still found."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(await next_request(reader), MetadataResponse(cluster_id="here")))

    async with strange_server(serve) as address:
        channel = await RequestChannel.open(Address("localhost", address.port), Clock())
        assert await ask(channel) == "here"
        await channel.close()
