"""A connection for benchmarks with many concurrent requests."""

import asyncio
import struct
from typing import Any

from node_peers import HOST

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages import response_class
from moldau.protocol.wire.frame import build_request, read_response
from moldau.protocol.wire.schema import Message


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection(HOST, port))

    async def exchange(self, frame: bytes) -> bytes:
        self._writer.write(frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    async def ask(self, request: Message, version: int | None = None) -> Any:
        version = request.VERSIONS[1] if version is None else version
        frame = b"".join(build_request(request, version, correlation_id=1, client_id="bench"))
        answered = response_class(ApiKey(request.API_KEY))
        return read_response(await self.exchange(frame), answered, version)[1]

    def close(self) -> None:
        self._writer.close()
