"""A running node under damaged requests: valid frames are cut, modified and spliced. For each of
them the node answers or closes the connection, and continues; nothing in it fails unexpectedly.
"""

import random
import struct
from collections.abc import Iterator

import pytest
from support.running_node import KafkaUnderTest
from support.wire_client import HungUpError, WireClient
from system.bad_input.test_bad_produce import batch, producing

from moldau.broker.handlers.table import HANDLERS
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.messages import request_class
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.wire.frame import build_request
from moldau.protocol.wire.schema import Message

CASES_PER_SEED = 250
SEEDS = range(8)
LENGTHS = (-2, -1, 0, 1, 2**15 - 1, 2**15, 2**31 - 1)


def corpus() -> list[tuple[Message, int]]:
    produce = producing("fuzzed", (0, bytes(batch(b"a", b"b"))))
    fetch = FetchRequest(
        max_bytes=1000,
        topics=[FetchTopic(topic="fuzzed", partitions=[FetchPartition(partition=0)])],
    )
    offsets = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="fuzzed", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
        ],
    )
    commit = OffsetCommitRequest(
        group_id="fuzzed",
        topics=[
            OffsetCommitRequestTopic(
                name="fuzzed", partitions=[OffsetCommitRequestPartition(committed_offset=1)]
            )
        ],
    )
    join = JoinGroupRequest(
        group_id="fuzzed",
        session_timeout_ms=6000,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"xyz")],
    )
    metadata = MetadataRequest(
        topics=[MetadataRequestTopic(name="fuzzed")], allow_auto_topic_creation=False
    )
    topics = CreateTopicsRequest(
        topics=[CreatableTopic(name="fuzzed", num_partitions=1, replication_factor=1)],
        validate_only=True,
    )
    versions = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
    requests = [
        (produce, (3, 7, 9)),
        (fetch, (4, 11, 12)),
        (offsets, (1, 7)),
        (commit, (2, 8)),
        (join, (4, 9)),
        (metadata, (4, 12)),
        (topics, (2, 7)),
        (versions, (0, 3)),
    ]
    return [(request, version) for request, versions in requests for version in versions]


def damaged(rng: random.Random, whole: bytes, other: bytes) -> bytes:
    """A frame whose length is right and whose content is not."""
    body = bytearray(whole[4:])
    match rng.randrange(4):
        case 0:
            del body[rng.randrange(4, len(body)) :]
        case 1:
            # There are lengths in it, or bytes that a decoder mistakes for one.
            place = rng.randrange(8, len(body))
            kind = rng.choice((">h", ">i"))
            value = rng.choice([n for n in LENGTHS if kind == ">i" or -(2**15) <= n < 2**15])
            packed = struct.pack(kind, value)
            body[place : place + len(packed)] = packed
        case 2:
            for _ in range(rng.randint(1, 4)):
                body[rng.randrange(8, len(body))] = rng.randrange(256)
        case _:
            tail = other[4:]
            body[rng.randrange(8, len(body)) :] = tail[rng.randrange(8, len(tail)) :]
    return struct.pack(">i", len(body)) + bytes(body)


def cases(seed: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    frames = [
        b"".join(build_request(request, version, correlation_id=1, client_id="fuzz"))
        for request, version in corpus()
    ]
    for _ in range(CASES_PER_SEED):
        yield damaged(rng, rng.choice(frames), rng.choice(frames))


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_requests_are_answered_or_refused(victim: KafkaUnderTest, seed: int) -> None:
    """Each connection closes its own side after the bad frame: then the node must close its
    side.
    """
    for content in cases(seed):
        with WireClient(victim.address) as client:
            try:
                client.send_raw(content)
                client.finish_sending()
                while not client.hangs_up():
                    pass
            except HungUpError:
                pass
    if victim.node is not None:
        assert "failed unexpectedly" not in victim.node.errors


EMPTY_REQUESTS = [
    (api_key, version)
    for api_key in HANDLERS
    for version in range(
        request_class(api_key).VERSIONS[0], (API_VERSIONS[api_key].broker or (0, -1))[1] + 1
    )
]


@pytest.mark.parametrize("api_key", HANDLERS, ids=lambda api_key: api_key.name)
def test_bi_042_empty_requests_are_answered_or_refused(
    victim: KafkaUnderTest, api_key: ApiKey
) -> None:
    """Nothing but defaults, in every version: empty lists, empty names, zeros."""
    for version in [version for key, version in EMPTY_REQUESTS if key is api_key]:
        with WireClient(victim.address) as client:
            request = request_class(api_key)()
            client.send(request, version)
            client.send(ApiVersionsRequest(), 0)
            try:
                client.receive_frame()
            except HungUpError:
                assert api_key is not ApiKey.METADATA
    if victim.node is not None:
        assert "failed unexpectedly" not in victim.node.errors
