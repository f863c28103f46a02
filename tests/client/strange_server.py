"""A server on loopback that handles each connection with a coroutine function: for peers that do
not behave like Kafka.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from moldau.net.request_channel import Address
from moldau.protocol.wire.frame import RequestFrame, build_response, read_request
from moldau.protocol.wire.schema import Message

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def strange_server(behaviour: Behaviour) -> AsyncIterator[Address]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await behaviour(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def next_request(reader: asyncio.StreamReader) -> RequestFrame:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return read_request(await reader.readexactly(size))


def answer(request: RequestFrame, response: Message) -> bytes:
    chunks = build_response(response, request.version, correlation_id=request.header.correlation_id)
    return b"".join(map(bytes, chunks))
