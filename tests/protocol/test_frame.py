"""Frames are cut out of any split of the stream, bounded before they are stored, and carry the
header version that their message wants.
"""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.frame import (
    FrameCutter,
    build_request,
    build_response,
    read_request,
    read_response,
    request_header_version,
    response_header_version,
    with_length,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def framed(content: bytes) -> bytes:
    return b"".join(with_length([content]))


@settings(deadline=None, max_examples=100)
@given(contents=st.lists(st.binary(max_size=20), max_size=6), choice=st.data())
def test_frames_survive_any_split_of_the_stream(
    contents: list[bytes], choice: st.DataObject
) -> None:
    stream = b"".join(framed(content) for content in contents)
    cuts = sorted(choice.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    cutter = FrameCutter()
    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += [bytes(frame) for frame in cutter.feed(stream[start:end])]
    assert found == contents
    assert cutter.pending_bytes == 0


def test_a_stream_of_single_bytes_is_cut_as_well() -> None:
    cutter = FrameCutter()
    stream = framed(b"one") + framed(b"") + framed(b"three")
    found = [bytes(frame) for byte in stream for frame in cutter.feed(bytes([byte]))]
    assert found == [b"one", b"", b"three"]


def test_a_frame_in_one_chunk_is_not_copied() -> None:
    chunk = framed(b"hello")
    (frame,) = FrameCutter().feed(chunk)
    assert frame.obj is chunk


@pytest.mark.parametrize("size", [-1, -(1 << 31), 1001, (1 << 31) - 1])
def test_an_impossible_length_is_refused_as_soon_as_it_is_seen(size: int) -> None:
    cutter = FrameCutter(frame_bytes_max=1000)
    with pytest.raises(MalformedRequestError, match=f"frame of {size} bytes, the limit is 1000"):
        list(cutter.feed(size.to_bytes(4, "big", signed=True)))


def test_frames_before_an_impossible_length_are_still_given_out() -> None:
    frames = FrameCutter(frame_bytes_max=1000).feed(framed(b"good") + b"\xff" * 8)
    assert bytes(next(frames)) == b"good"
    with pytest.raises(MalformedRequestError, match="frame of -1 bytes"):
        next(frames)


def test_a_stream_is_lost_for_good_behind_an_impossible_length() -> None:
    cutter = FrameCutter(frame_bytes_max=1000)
    for chunk in (b"\xff" * 8, framed(b"good")):
        with pytest.raises(MalformedRequestError, match="frame of -1 bytes"):
            list(cutter.feed(chunk))


def test_a_chunk_is_taken_in_even_if_its_frames_are_not() -> None:
    cutter = FrameCutter()
    cutter.feed(framed(b"one") + framed(b"two") + framed(b"three")[:5])
    kept = cutter.feed(framed(b"three")[5:] + framed(b"four"))
    later = cutter.feed(framed(b"five"))
    assert [bytes(frame) for frame in [*kept, *later]] == [b"three", b"four", b"five"]


def test_single_bytes_cost_what_they_weigh() -> None:
    """A peer chooses how its bytes are cut; that must not multiply what we keep of them."""
    size = 200_000
    cutter = FrameCutter()
    list(cutter.feed((size + 1).to_bytes(4, "big")))
    byte = bytes(1)
    tracemalloc.start()
    try:
        for _ in range(size):
            cutter.feed(byte)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * size
    (frame,) = cutter.feed(b"!")
    assert (len(frame), frame[-1]) == (size + 1, ord("!"))


def test_a_frame_of_exactly_the_limit_passes() -> None:
    (frame,) = FrameCutter(frame_bytes_max=1000).feed(framed(bytes(1000)))
    assert len(frame) == 1000


def test_an_announced_length_reserves_nothing() -> None:
    cutter = FrameCutter(frame_bytes_max=1 << 30)
    assert list(cutter.feed((1 << 30).to_bytes(4, "big") + b"x")) == []
    assert cutter.pending_bytes == 5


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
    (frame,) = FrameCutter().feed(b"".join(chunks))
    request = read_request(frame)
    assert (request.api_key, request.version) == (ApiKey.HEARTBEAT, version)
    assert (request.header.correlation_id, request.header.client_id) == (9, "me")
    assert request.is_version_known
    assert request.decode_body() == message


@pytest.mark.parametrize("version", [0, 4])
def test_a_response_can_be_read_back(version: int) -> None:
    message = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    chunks = build_response(message, version, correlation_id=9)
    (frame,) = FrameCutter().feed(b"".join(chunks))
    assert read_response(frame, HeartbeatResponse, version) == (9, message)


def test_long_records_travel_uncopied() -> None:
    records = bytes(50_000)
    part = PartitionProduceData(records=records)
    message = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[part])])
    chunks = build_request(message, 9, correlation_id=1, client_id=None)
    assert any(chunk is records for chunk in chunks)


def test_an_unknown_version_of_api_versions_still_has_a_readable_header() -> None:
    """A newer client asks in a version from the future; the answer has to reach it."""
    frame = bytes.fromhex("0012 7fff 0000002a 0002 6d65 00 ffff")
    request = read_request(frame)
    assert request.api_key is ApiKey.API_VERSIONS
    assert request.header.correlation_id == 42
    assert not request.is_version_known
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        request.decode_body()


def test_an_unknown_api_is_named() -> None:
    with pytest.raises(KafkaError, match="there is no API 999") as caught:
        read_request((999).to_bytes(2, "big") + bytes(10))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("frame", ["", "00", "0012 00", "0012 0003", "0012 0003 0000002a 0005 61"])
def test_a_broken_header_is_malformed(frame: str) -> None:
    with pytest.raises(MalformedRequestError):
        read_request(bytes.fromhex(frame))
