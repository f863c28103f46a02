"""A controller's listener that answers as the test says, one request after the other."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from moldau.broker.controller.envelope import unwrapped, wrapped_response
from moldau.broker.server.error_responses import error_response
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.wire.frame import build_response, read_request
from moldau.protocol.wire.schema import Message

Answer = Callable[[Message, int], Message | None]
"""Called with a request and its version; None closes the connection instead of answering."""


def refused(code: ErrorCode) -> Answer:
    return lambda request, version: error_response(request, version, code)


def done(request: Message, version: int) -> Message | None:
    """The request, or the one in an envelope, was served."""
    if not isinstance(request, EnvelopeRequest):
        return error_response(request, version, ErrorCode.NONE)
    frame = unwrapped(request).request
    response = error_response(frame.decode_body(), frame.version, ErrorCode.NONE)
    assert response is not None
    return EnvelopeResponse(response_data=wrapped_response(response, frame.version, 0))


def closes(_request: Message, _version: int) -> None:
    return None


@dataclass
class ScriptedController:
    port: int = 0
    answers: list[Answer] = field(default_factory=list)
    """The answers to the next requests; ApiVersions is always answered."""
    newest: dict[ApiKey, int] = field(default_factory=dict)
    """Where it serves less than we know."""
    freezes: bool = False
    """Without an answer the connection stays open."""
    requests: list[tuple[ApiKey, int]] = field(default_factory=list)
    """The requests that came, with their versions."""
    connections: int = 0
    """The number of connections so far."""

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = read_request(await reader.readexactly(size))
                answer = self._answer(frame.api_key, frame.version, frame.decode_body())
                if answer is None and self.freezes:
                    await reader.read()
                if answer is None:
                    return
                correlation_id = frame.header.correlation_id
                writer.writelines(
                    build_response(answer, frame.version, correlation_id=correlation_id)
                )
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()

    def _answer(self, api_key: ApiKey, version: int, request: Message) -> Message | None:
        if api_key is ApiKey.API_VERSIONS:
            return ApiVersionsResponse(api_keys=self._served())
        self.requests.append((api_key, version))
        return self.answers.pop(0)(request, version)

    def _served(self) -> list[ApiVersion]:
        return [
            ApiVersion(
                api_key=key,
                min_version=versions.controller[0],
                max_version=self.newest.get(key, versions.controller[1]),
            )
            for key, versions in API_VERSIONS.items()
            if versions.controller is not None
        ]


@asynccontextmanager
async def scripted_controller(*answers: Answer) -> AsyncIterator[ScriptedController]:
    controller = ScriptedController(answers=list(answers))
    server = await asyncio.start_server(controller.serve, "127.0.0.1", 0)
    controller.port = server.sockets[0].getsockname()[1]
    async with server:
        yield controller
