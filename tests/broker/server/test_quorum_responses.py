"""Records and snapshots of the quorum leave a listener whole, whatever their size."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from broker.connection_server import Server, serving

from moldau.broker.controller_handlers.table import controller_table
from moldau.broker.server.context import RequestContext
from moldau.core.quorum import rpc
from moldau.core.quorum.messages.translation import read_response, response_message
from moldau.core.quorum.positions import LogPosition
from moldau.protocol import messages as m
from moldau.protocol.messages import response_class
from moldau.protocol.wire.frame import build_request
from moldau.protocol.wire.frame import read_response as read_frame
from moldau.protocol.wire.schema import Message
from moldau.types import LeaderEpoch, Offset

LISTENER = "CONTROLLER"
LEADERSHIP = rpc.Leadership(LeaderEpoch(3))
SNAPSHOT = LogPosition(LeaderEpoch(2), Offset(100))
SIZES = [0, 1, 20_000, 1 << 20, 40 << 20]


def records(size: int) -> rpc.FetchResponse:
    return rpc.FetchResponse(leadership=LEADERSHIP, records=bytes(range(256)) * (size // 256))


def snapshot(size: int) -> rpc.FetchSnapshotResponse:
    content = bytes(range(256)) * (size // 256)
    return rpc.FetchSnapshotResponse(
        leadership=LEADERSHIP, snapshot=SNAPSHOT, size=len(content), content=content
    )


async def asked(server: Server, request: Message, version: int) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    try:
        writer.writelines(build_request(request, version, correlation_id=1, client_id="test"))
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
    finally:
        writer.transport.abort()
    _, message = read_frame(frame, response_class(request.API_KEY), version)
    return message


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("request_", "version", "make"),
    [(m.FetchRequest(), 18, records), (m.FetchSnapshotRequest(), 1, snapshot)],
    ids=["records", "snapshot"],
)
async def test_content_of_any_size_is_sent_whole(
    request_: Message, version: int, make: Callable[[int], rpc.Response], size: int
) -> None:
    expected = make(size)

    def serve(ctx: RequestContext, request: Message) -> Message:
        return response_message(expected, request, ctx.version, LISTENER)

    async with serving(serve) as server:
        server.dispatcher.table = controller_table()
        message = await asked(server, request_, version)
    assert read_response(message, LISTENER) == expected
