"""Frames carry the header version of their message."""

import pytest

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.wire.frame import (
    build_request,
    build_response,
    read_request,
    read_response,
    request_header_version,
    response_header_version,
    with_length,
)


def framed(content: bytes) -> bytes:
    return b"".join(with_length([content]))


@pytest.mark.parametrize(("version", "header", "answer"), [(3, 1, 0), (4, 2, 1)])
def test_flexible_messages_have_flexible_headers(version: int, header: int, answer: int) -> None:
    assert request_header_version(HeartbeatRequest, version) == header
    assert response_header_version(HeartbeatResponse, version) == answer


def test_an_api_versions_answer_never_has_a_flexible_header() -> None:
    assert request_header_version(ApiVersionsRequest, 3) == 2
    assert response_header_version(ApiVersionsResponse, 3) == 0
    frame = b"".join(build_response(ApiVersionsResponse(), 3, correlation_id=7))
    assert frame == bytes.fromhex("0000000c 00000007 0000 01 00000000 00")


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_request_can_be_read_back(version: int) -> None:
    message = HeartbeatRequest(group_id="g", generation_id=2, member_id="m")
    chunks = build_request(message, version, correlation_id=9, client_id="me")
    frame = b"".join(chunks)[4:]
    request = read_request(frame)
    assert (request.api_key, request.version) == (ApiKey.HEARTBEAT, version)
    assert (request.header.correlation_id, request.header.client_id) == (9, "me")
    assert request.is_version_known
    assert request.decode_body() == message


@pytest.mark.parametrize("version", [0, 4])
def test_a_response_can_be_read_back(version: int) -> None:
    message = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    chunks = build_response(message, version, correlation_id=9)
    frame = b"".join(chunks)[4:]
    assert read_response(frame, HeartbeatResponse, version) == (9, message)


def test_long_records_travel_uncopied() -> None:
    records = bytes(50_000)
    part = PartitionProduceData(records=records)
    message = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[part])])
    chunks = build_request(message, 9, correlation_id=1, client_id=None)
    assert any(chunk is records for chunk in chunks)


def test_an_unknown_version_of_api_versions_still_has_a_readable_header() -> None:
    """A newer client uses a future version; the response must still be readable for it."""
    frame = bytes.fromhex("0012 7fff 0000002a 0002 6d65 00 ffff")
    request = read_request(frame)
    assert request.api_key is ApiKey.API_VERSIONS
    assert request.header.correlation_id == 42
    assert not request.is_version_known
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        request.decode_body()


def test_an_unknown_api_is_reported() -> None:
    with pytest.raises(KafkaError, match="there is no API 999") as caught:
        read_request((999).to_bytes(2, "big") + bytes(10))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("frame", ["", "00", "0012 00", "0012 0003", "0012 0003 0000002a 0005 61"])
def test_a_broken_header_is_malformed(frame: str) -> None:
    with pytest.raises(MalformedRequestError):
        read_request(bytes.fromhex(frame))
