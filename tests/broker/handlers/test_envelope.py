"""Envelopes on the controller listener: the request inside is served as its client's, and every
error is reported where Kafka reports it.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker.controller_bench import Bench, bench
from broker.gated_threads import gated_threads
from support.waiting import take_turns

from moldau.broker.controller.envelope import (
    decoded_principal,
    encoded_principal,
    unwrapped,
    unwrapped_response,
    wrapped,
)
from moldau.broker.server.context import Peer
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.wire.schema import Message

CLIENT = Peer(9, "OUTSIDE", "10.1.2.3", 4, principal="User:alice", client_id="admin")


def create(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def changed(**fields: Any) -> EnvelopeRequest:
    envelope = wrapped(create("t"), 7, CLIENT)
    for name, value in fields.items():
        setattr(envelope, name, value)
    return envelope


async def served(node: Bench, envelope: Message) -> EnvelopeResponse:
    answer = await node.serve(envelope, listener="CONTROLLER")
    assert isinstance(answer, EnvelopeResponse)
    return answer


async def test_the_request_in_an_envelope_is_served(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        for version in (2, 7):
            name = f"t{version}"
            answer = await served(node, wrapped(create(name), version, CLIENT))
            assert (answer.error_code, name in node.image.topics) == (ErrorCode.NONE, True)
            response: Any = unwrapped_response(
                answer.response_data or b"", ApiKey.CREATE_TOPICS, version
            )
            assert [(each.name, each.error_code) for each in response.topics] == [(name, 0)]


async def test_a_refusal_of_the_request_is_inside_of_the_response(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        answer = await served(node, wrapped(create("bad/name"), 7, CLIENT))
        response: Any = unwrapped_response(answer.response_data or b"", ApiKey.CREATE_TOPICS, 7)
        assert answer.error_code == ErrorCode.NONE
        assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_controller_that_does_not_lead_says_so_outside(tmp_path: Path) -> None:
    """So that the broker looks for the leader, and does not answer its client."""
    async with bench(tmp_path / "data") as node:
        node.controller.close()
        answer = await served(node, wrapped(create("t"), 7, CLIENT))
        assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)


async def test_a_large_request_is_decoded_and_its_response_encoded_in_a_thread(
    tmp_path: Path,
) -> None:
    """A small part of a megabyte, but thousands of elements."""
    topics = [
        CreatableTopic(name=f"t-{number}", num_partitions=1, replication_factor=1)
        for number in range(5_000)
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
    async with bench(tmp_path / "data") as node:
        with gated_threads() as threads:
            serving = asyncio.ensure_future(served(node, wrapped(request, 7, CLIENT)))
            for _ in ("decoding", "deciding", "encoding"):
                gate = await threads.gates.get()
                await take_turns()
                assert threads.gates.empty()
                assert not serving.done()
                gate.set()
            answer = await serving
        response: Any = unwrapped_response(answer.response_data or b"", ApiKey.CREATE_TOPICS, 7)
        assert [each.error_code for each in response.topics] == [ErrorCode.NONE] * 5_000


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (changed(request_principal=b"\0\1"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (changed(request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (changed(client_host_address=b"123"), ErrorCode.INVALID_REQUEST),
        (changed(request_data=b""), ErrorCode.UNSUPPORTED_VERSION),
        (changed(request_data=b"\x7f\x7f\0\0"), ErrorCode.UNSUPPORTED_VERSION),
        (wrapped(MetadataRequest(), 12, CLIENT), ErrorCode.INVALID_REQUEST),
        (wrapped(wrapped(create("t"), 7, CLIENT), 0, CLIENT), ErrorCode.INVALID_REQUEST),
    ],
    ids=["version", "no principal", "address", "empty", "unknown API", "Metadata", "Envelope"],
)
async def test_a_broken_envelope_is_refused(
    tmp_path: Path, envelope: EnvelopeRequest, code: ErrorCode
) -> None:
    async with bench(tmp_path / "data") as node:
        answer = await served(node, envelope)
        assert (ErrorCode(answer.error_code), answer.response_data) == (code, None)


async def test_a_request_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    async with bench(tmp_path / "data") as node:
        whole = wrapped(create("t"), 7, CLIENT).request_data
        answer = await served(node, changed(request_data=whole[:-2]))
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_the_client_is_kept() -> None:
    forwarded = unwrapped(wrapped(create("t"), 7, CLIENT))
    assert forwarded.principal == "User:alice"
    assert forwarded.host == "10.1.2.3"
    assert forwarded.request.header.client_id == "admin"
    scoped = Peer(9, "OUTSIDE", "fe80::1%eth0", 4)
    assert unwrapped(wrapped(create("t"), 7, scoped)).host == "fe80::1"


def test_principals_look_as_kafka_writes_them() -> None:
    assert encoded_principal("User:al:ice") == b"\0\0\x05User\x07al:ice\0\0"
    assert decoded_principal(encoded_principal("User:al:ice")) == "User:al:ice"


def test_requests_of_brokers_themselves_are_forwardable_only_where_kafka_says_so() -> None:
    assert unwrapped(wrapped(AllocateProducerIdsRequest(), 0, CLIENT)).principal == "User:alice"
    with pytest.raises(KafkaError) as refused:
        unwrapped(wrapped(MetadataRequest(), 12, CLIENT))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
