"""Frames: four bytes of length, a header, a message. Maps each message to the version of its
header.
"""

from struct import Struct
from typing import NamedTuple

from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError, MoldauError
from moldau.protocol.messages import request_class
from moldau.protocol.messages.request_header import RequestHeader
from moldau.protocol.messages.response_header import ResponseHeader
from moldau.protocol.wire.codec import (
    ELEMENT_BUDGET,
    NO_BUDGET,
    decode,
    decode_prefix,
    encode,
    encode_chunks,
)
from moldau.protocol.wire.primitives import LENGTH_MAX
from moldau.protocol.wire.schema import Message
from moldau.types import Buffer

LENGTH_BYTES = 4
FRAME_BYTES_MAX = 100 * 1024 * 1024
"""The default of socket.request.max.bytes."""
# A frame's length and its response header: a correlation id and, in version 1, no tagged fields.
_RESPONSE_HEADS = (Struct(">ii"), Struct(">iix"))


def with_length(chunks: list[Buffer]) -> list[Buffer]:
    """The chunks of a frame, preceded by their length."""
    size = sum(memoryview(chunk).nbytes for chunk in chunks)
    return [size.to_bytes(LENGTH_BYTES, "big"), *chunks]


def request_header_version(message_class: type[Message], version: int) -> int:
    return 2 if message_class.is_flexible(version) else 1


def response_header_version(message_class: type[Message], version: int) -> int:
    # A client that sent a version we do not know must still find the error code, so ApiVersions
    # responses never have a flexible header (KIP-511).
    if message_class.API_KEY == ApiKey.API_VERSIONS:
        return 0
    return 1 if message_class.is_flexible(version) else 0


def build_request(
    message: Message,
    version: int,
    *,
    correlation_id: int,
    client_id: str | None,
    budget: int = NO_BUDGET,
) -> list[Buffer]:
    """A whole frame, in chunks; long `records` are not copied. Raises MessageTooLargeError if the
    message has more elements than the budget.
    """
    header = RequestHeader(
        request_api_key=message.API_KEY,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    head = encode(header, request_header_version(type(message), version))
    return with_length([head, *encode_chunks(message, version, budget=budget)])


class ResponseTooLongError(MoldauError):
    """The response has more bytes than allowed."""


def build_response(
    message: Message,
    version: int,
    *,
    correlation_id: int,
    bytes_max: int = LENGTH_MAX,
    budget: int = NO_BUDGET,
) -> list[Buffer]:
    """A whole frame, in chunks; long `records` are not copied. Raises ResponseTooLongError, or
    MessageTooLargeError if it has more elements than the budget.
    """
    chunks = encode_chunks(message, version, budget=budget)
    head = _RESPONSE_HEADS[response_header_version(type(message), version)]
    size = head.size - LENGTH_BYTES
    for chunk in chunks:
        size += len(chunk)
    if size > bytes_max:
        raise ResponseTooLongError(f"{size} bytes")
    # No message begins with records, so the first chunk is short; joining it saves one buffer.
    chunks[0] = head.pack(size, correlation_id) + bytes(chunks[0])
    return chunks


class RequestFrame(NamedTuple):
    """A request with its header decoded and its body not yet decoded."""

    header: RequestHeader
    api_key: ApiKey
    body: memoryview

    @property
    def version(self) -> int:
        return self.header.request_api_version

    @property
    def is_version_known(self) -> bool:
        """If not, ApiVersions is answered in version 0, and for any other API the connection is
        closed.
        """
        first, last = request_class(self.api_key).VERSIONS
        return first <= self.version <= last

    def decode_body(self, *, budget: int = ELEMENT_BUDGET) -> Message:
        """Raises KafkaError(UNSUPPORTED_VERSION) or MalformedRequestError."""
        return decode(request_class(self.api_key), self.version, self.body, budget=budget)


def read_request(frame: Buffer) -> RequestFrame:
    """Reads the header. Raises MalformedRequestError if it is broken, KafkaError(INVALID_REQUEST)
    if no such API exists.
    """
    view = memoryview(frame).cast("B")
    if len(view) < 4:
        raise MalformedRequestError(f"request of {len(view)} bytes has no header")
    number = int.from_bytes(view[0:2], "big", signed=True)
    version = int.from_bytes(view[2:4], "big", signed=True)
    if number not in API_VERSIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no API {number}")
    header_version = request_header_version(request_class(number), version)
    header, end = decode_prefix(RequestHeader, header_version, view)
    return RequestFrame(header, ApiKey(number), view[end:])


def read_response(
    frame: Buffer, message_class: type[Message], version: int, *, budget: int = ELEMENT_BUDGET
) -> tuple[int, Message]:
    """Returns the correlation id and the message. `version` is that of the request."""
    header_version = response_header_version(message_class, version)
    view = memoryview(frame).cast("B")
    header, end = decode_prefix(ResponseHeader, header_version, view)
    return header.correlation_id, decode(message_class, version, view[end:], budget=budget)
