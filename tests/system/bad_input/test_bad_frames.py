"""Bytes that are not Kafka, and broken framing: the connection ends, and no other is affected.

The ids are the rows of the project's list of bad inputs, groups A and B.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running_node import QUICK_SETTINGS, KafkaUnderTest, RunningNode
from support.wire_client import WireClient

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.request_header import RequestHeader
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest
from moldau.protocol.wire.codec import encode

METADATA = int(ApiKey.METADATA)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def head(api_key: int, version: int, *, flexible: bool = False, tags: bytes = b"\0") -> bytes:
    """A request header with correlation id 7 and no client id."""
    start = struct.pack(">hhih", api_key, version, 7, -1)
    return start + tags if flexible else start


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


FLEXIBLE_METADATA = head(METADATA, 12, flexible=True)
METADATA_TAIL = b"\0\0\0"  # two switches and no tags

HANGS_UP: dict[str, bytes] = {
    "BI-001 negative size": struct.pack(">i", -1),
    "BI-001 most negative size": struct.pack(">i", -(2**31)),
    "BI-002 size above socket.request.max.bytes": struct.pack(">i", 104857601),
    "BI-003 size 0": struct.pack(">i", 0),
    "BI-009 HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "BI-010 TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "BI-018 SSH banner": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
    "BI-021 api key -1": frame(head(-1, 0)),
    "BI-021 api key 999": frame(head(999, 0)),
    "BI-022 Fetch 3": frame(head(1, 3) + bytes(40)),
    "BI-022 Produce 2": frame(head(0, 2) + bytes(40)),
    "BI-022 Metadata 99": frame(head(METADATA, 99)),
    "BI-025 version -1": frame(head(METADATA, -1) + b"\xff\xff\xff\xff"),
    "BI-026 api key and version only": frame(struct.pack(">hh", METADATA, 1)),
    "BI-026 header without a body": frame(head(METADATA, 4)),
    "BI-026 two bytes": frame(b"\0\3"),
    "BI-028 array longer than the frame": frame(head(METADATA, 4) + struct.pack(">i", 1000)),
    "BI-028 compact array longer than the frame": frame(FLEXIBLE_METADATA + varint(2**31)),
    "BI-029 many small elements": frame(
        head(METADATA, 4) + struct.pack(">i", 2_000_000) + bytes(4_000_000) + b"\1"
    ),
    "BI-029 many empty structures": frame(
        head(19, 7, flexible=True) + varint(3_000_001) + bytes(3_000_000)
    ),
    "BI-030 negative array": frame(head(19, 2) + struct.pack(">i", -1) + bytes(5)),
    "BI-030 negative string": frame(
        head(METADATA, 4) + struct.pack(">i", 1) + struct.pack(">h", -1) + b"\1"
    ),
    "BI-030 absent compact bytes": frame(head(14, 5, flexible=True) + b"\0" + bytes(20)),
    "BI-031 string of 40,000 bytes": frame(
        head(12, 4, flexible=True) + varint(40_001) + b"g" * 40_000 + bytes(10)
    ),
    "BI-032 varint of ten bytes": frame(FLEXIBLE_METADATA + b"\xff" * 9 + b"\1" + METADATA_TAIL),
    "BI-033 a million tags in the header": frame(
        head(METADATA, 12, flexible=True, tags=varint(1_000_000) + b"\x05\0" * 1_000_000)
    ),
    "BI-034 tag longer than the frame": frame(
        head(METADATA, 12, flexible=True, tags=b"\1\x09" + varint(5000))
    ),
    "BI-035 tags out of order": frame(
        head(METADATA, 12, flexible=True, tags=b"\2\x09\0\x08\0") + b"\1" + METADATA_TAIL
    ),
    "BI-035 a tag twice": frame(
        head(METADATA, 12, flexible=True, tags=b"\2\x09\0\x09\0") + b"\1" + METADATA_TAIL
    ),
    "BI-036 topic that is not UTF-8": frame(
        head(METADATA, 4) + struct.pack(">i", 1) + string(b"\xff\xfe") + b"\1"
    ),
    "BI-038 nested arrays without end": frame(
        head(19, 2) + struct.pack(">i", 10_000) + (string(b"t") + bytes(14)) * 9_999
    ),
    "BI-039 Vote": frame(head(52, 0, flexible=True) + bytes(20)),
    "BI-039 FetchSnapshot": frame(head(59, 0, flexible=True) + bytes(20)),
    "BI-039 BrokerRegistration": frame(head(62, 0, flexible=True) + bytes(60)),
    "BI-039 AlterPartition": frame(head(56, 2, flexible=True) + bytes(20)),
    "BI-040 LeaderAndIsr": frame(head(4, 0) + bytes(20)),
    "BI-040 StopReplica": frame(head(5, 0) + bytes(20)),
    "BI-040 UpdateMetadata": frame(head(6, 0) + bytes(20)),
    "BI-041 Envelope": frame(head(58, 0, flexible=True) + bytes(20)),
}


@pytest.mark.parametrize("content", HANGS_UP.values(), ids=list(HANGS_UP))
def test_the_connection_ends_without_an_answer(client: WireClient, content: bytes) -> None:
    client.send_raw(content)
    assert client.hangs_up()


def test_bi_004_an_announced_frame_takes_no_memory(victim: KafkaUnderTest) -> None:
    with WireClient(victim.address) as client:
        client.send_raw(struct.pack(">i", 104857600) + b"abc")
        # The fixture checks memory and another connection while this one waits.
        with WireClient(victim.address) as other:
            assert other.ask(MetadataRequest(), 12).brokers


def test_bi_005_three_bytes_and_goodbye(client: WireClient) -> None:
    client.send_raw(b"\0\0\0")
    client.finish_sending()
    assert client.hangs_up()


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[RunningNode]:
    settings = {
        **QUICK_SETTINGS,
        "moldau.frame.deadline.ms": "300",
        "moldau.unread.answer.deadline.ms": "300",
        "max.connections.per.ip": "5",
    }
    with RunningNode(tmp_path, settings) as node:
        yield node.start()


def test_bi_006_a_frame_that_trickles_in_is_not_waited_for(impatient: RunningNode) -> None:
    with WireClient(impatient.address) as client:
        client.send_raw(struct.pack(">i", 1000) + b"a")
        assert client.hangs_up()


def test_bi_007_a_client_that_never_reads_is_dropped(impatient: RunningNode) -> None:
    with WireClient(impatient.address) as client:
        asking = frame(encode(_header(ApiKey.API_VERSIONS, 0), 1))
        with pytest.raises(ConnectionError):
            # Two million responses would be a gigabyte; the client does not read them.
            _send_often(client, asking * 1_000, 2_000)


def test_bi_015_one_connection_too_many_from_one_address(impatient: RunningNode) -> None:
    kept = [WireClient(impatient.address) for _ in range(5)]
    try:
        for client in kept:
            assert client.ask(MetadataRequest(), 12).brokers
        with WireClient(impatient.address) as one_more:
            assert one_more.hangs_up()
        assert kept[0].ask(MetadataRequest(), 12).brokers
    finally:
        for client in kept:
            client.close()


def _send_often(client: WireClient, content: bytes, times: int) -> None:
    for _ in range(times):
        client.send_raw(content)


def _header(api_key: ApiKey, version: int, number: int = 7) -> RequestHeader:
    return RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=number, client_id=None
    )


def test_bi_008_ten_thousand_pipelined_requests_are_answered_in_order(client: WireClient) -> None:
    count = 10_000
    step = 500
    for start in range(0, count, step):
        numbers = range(start, start + step)
        client.send_raw(
            b"".join(frame(encode(_header(ApiKey.API_VERSIONS, 0, n), 1)) for n in numbers)
        )
        for number in numbers:
            answered, _ = client.receive(ApiKey.API_VERSIONS, 0)
            assert answered == number


@pytest.mark.parametrize("number", [-1, -(2**31), 0, 2**31 - 1])
def test_bi_019_correlation_ids_are_echoed(client: WireClient, number: int) -> None:
    for _ in range(2):
        client.send_raw(frame(encode(_header(ApiKey.API_VERSIONS, 0, number), 1)))
        assert client.receive(ApiKey.API_VERSIONS, 0)[0] == number


@pytest.mark.parametrize(
    "client_id",
    [None, "", "c" * 32_767, "a\r\nFAKE LINE\x1b[31m"],
    ids=["null", "empty", "long", "evil"],
)
def test_bi_020_strange_client_ids_are_served(
    victim: KafkaUnderTest, client_id: str | None
) -> None:
    with WireClient(victim.address, client_id) as client:
        assert client.ask(MetadataRequest(), 12).brokers
        client.send_raw(frame(head(999, 0)))
        assert client.hangs_up()
    if victim.node is not None:
        assert "\x1b" not in victim.node.errors
        assert "\nFAKE" not in victim.node.errors


def test_bi_023_a_newer_client_learns_what_is_served(client: WireClient) -> None:
    client.send_raw(frame(head(18, 99, flexible=True) + b"\2a\2b\0"))
    answered, response = client.receive(ApiKey.API_VERSIONS, 0)
    assert isinstance(response, ApiVersionsResponse)
    assert (answered, response.error_code) == (7, 35)
    served = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert served[18] == (0, 4)
    assert client.ask(MetadataRequest(), 12).brokers


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("a", ""), ("-a", "1")])
def test_bi_024_software_names_are_checked(client: WireClient, name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert client.ask(request, 3).error_code == 42


def test_bi_027_bytes_after_a_request_are_ignored(client: WireClient) -> None:
    body = encode(MetadataRequest(topics=[]), 12)
    client.send_raw(frame(FLEXIBLE_METADATA + body + b"leftovers"))
    assert client.receive(ApiKey.METADATA, 12)[1].brokers


def test_bi_037_any_number_but_zero_is_true(client: WireClient) -> None:
    body = struct.pack(">i", 1) + string(b"made-by-a-seven") + b"\x07"
    client.send_raw(frame(head(METADATA, 4) + body))
    (topic,) = client.receive(ApiKey.METADATA, 4)[1].topics
    assert topic.error_code in {0, 5}


def test_bi_038_many_topics_within_the_budget_are_answered(client: WireClient) -> None:
    topics = [MetadataRequestTopic(name=f"absent-{number}") for number in range(10_000)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    assert len(client.ask(request, 12).topics) == 10_000


def test_bi_047_sasl_without_sasl_is_refused_and_the_connection_stays(client: WireClient) -> None:
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 34
    assert client.ask(MetadataRequest(), 12).brokers
