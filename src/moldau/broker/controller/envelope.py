"""Envelopes (KIP-590): a broker forwards a client's request with its principal and address, and the
controller serves it as if the client had sent it.
"""

import ipaddress
from typing import NamedTuple

from moldau.broker.server.context import Peer
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.messages import response_class
from moldau.protocol.messages.default_principal_data import DefaultPrincipalData
from moldau.protocol.messages.envelope import EnvelopeRequest
from moldau.protocol.wire.codec import NO_BUDGET, TRUSTED_ELEMENT_BUDGET, decode, encode
from moldau.protocol.wire.frame import (
    LENGTH_BYTES,
    RequestFrame,
    build_request,
    build_response,
    read_request,
    read_response,
)
from moldau.protocol.wire.schema import Message

_VERSION_BYTES = 2
_PRINCIPAL_VERSION = 0
_CORRELATION_ID = 0


class Forwarded(NamedTuple):
    """The contents of an envelope."""

    request: RequestFrame
    principal: str
    """As "type:name"."""
    host: str
    """The client's address."""


def wrapped(
    request: Message, version: int, peer: Peer, *, budget: int = NO_BUDGET
) -> EnvelopeRequest:
    """Raises MessageTooLargeError if the request has more elements than the budget."""
    frame = build_request(
        request,
        version,
        correlation_id=_CORRELATION_ID,
        client_id=peer.client_id,
        budget=budget,
    )
    return EnvelopeRequest(
        # Without the length of the frame.
        request_data=b"".join(map(bytes, frame[1:])),
        request_principal=encoded_principal(peer.principal),
        client_host_address=ipaddress.ip_address(peer.host.partition("%")[0]).packed,
    )


def unwrapped(envelope: EnvelopeRequest) -> Forwarded:
    """Raises KafkaError with the code that Kafka answers for what is wrong with the envelope."""
    principal = decoded_principal(envelope.request_principal or b"")
    try:
        host = str(ipaddress.ip_address(envelope.client_host_address))
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the client's address: {error}") from None
    try:
        request = read_request(envelope.request_data)
    except (KafkaError, MalformedRequestError) as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
    if not API_VERSIONS[request.api_key].forwardable:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.api_key.name} is not forwarded")
    return Forwarded(request, principal, host)


def wrapped_response(
    response: Message, version: int, correlation_id: int, *, budget: int = NO_BUDGET
) -> bytes:
    """Raises MessageTooLargeError if the response has more elements than the budget."""
    chunks = build_response(response, version, correlation_id=correlation_id, budget=budget)
    return b"".join(map(bytes, chunks))[LENGTH_BYTES:]


def unwrapped_response(
    content: bytes, api_key: ApiKey, version: int, *, budget: int = TRUSTED_ELEMENT_BUDGET
) -> Message:
    """Raises MalformedRequestError, also if the response has more elements than the budget."""
    _, response = read_response(content, response_class(api_key), version, budget=budget)
    return response


def encoded_principal(principal: str) -> bytes:
    """As Kafka's DefaultKafkaPrincipalBuilder does."""
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name)
    version = _PRINCIPAL_VERSION.to_bytes(_VERSION_BYTES, "big")
    return version + bytes(encode(data, _PRINCIPAL_VERSION))


def decoded_principal(content: bytes) -> str:
    """Raises PRINCIPAL_DESERIALIZATION_FAILURE."""
    failure = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    version = int.from_bytes(content[:_VERSION_BYTES], "big")
    if len(content) < _VERSION_BYTES or version != _PRINCIPAL_VERSION:
        raise KafkaError(failure, f"version {version} of a principal is not known")
    try:
        data = decode(DefaultPrincipalData, version, content[_VERSION_BYTES:])
    except MalformedRequestError as error:
        raise KafkaError(failure, str(error)) from None
    return f"{data.type}:{data.name}"
