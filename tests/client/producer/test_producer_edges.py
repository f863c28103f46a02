"""Rare cases of producers: acks=0, calls in callbacks, the end of a program."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from enum import IntEnum
from typing import Any

import pytest
from client.clusters import fresh_topic
from client.produced import PATIENCE_S, numbered, producer_of, values_of
from support.running_node import freeze
from support.waiting import wait_for
from support.wire_client import parse_address

from moldau import Producer
from moldau.errors import ClientError, ClientTimeoutError, ConfigError, ErrorCode, KafkaError
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.records.compression import Compression
from moldau.protocol.wire.frame import build_request
from moldau.testing import ProcessBroker, ThreadBroker, broker
from moldau.types import TopicPartition


def test_with_acks_0_memory_is_bounded_and_closing_loses_nothing() -> None:
    with broker(process=True) as running:
        assert isinstance(running, ProcessBroker)
        running.create_topic("stalled", 1)
        with producer_of(running, acks=0, buffer_memory=4 << 20, max_block_ms=300) as producer:
            producer.send("stalled", b"first").result(PATIENCE_S)
            freeze(running.pid)
            taken = 1
            try:
                with contextlib.suppress(ClientTimeoutError):
                    for _ in range(10_000):
                        producer.send("stalled", bytes(10_000))
                        taken += 1
            finally:
                os.kill(running.pid, signal.SIGCONT)
        assert taken < 10_000
        with producer_of(running) as producer:
            assert producer.send("stalled", b"last").result(PATIENCE_S).offset == taken


def test_with_acks_0_order_is_kept(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, acks=0, batch_size=0, linger_ms=0) as producer:
        deliveries = [producer.send(topic, value) for value in numbered(2_000)]
    assert all(one.exception(0) is None for one in deliveries)
    # With acks=0 no broker confirms them.
    wait_for(lambda: len(values_of(node, topic)) == 2_000, "all records")
    assert values_of(node, topic) == numbered(2_000)


def test_a_queued_batch_is_written_after_its_client_disconnected(
    running_broker: ThreadBroker,
) -> None:
    topic = fresh_topic(running_broker)
    records = build_batch([Record(0, 1, None, b"v", ())])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(records=records)])
    request = ProduceRequest(acks=0, topic_data=[data])
    frame = b"".join(build_request(request, 9, correlation_id=1, client_id=None))
    for _ in range(5):
        with socket.create_connection(parse_address(running_broker.bootstrap)) as client:
            client.sendall(frame * 3_000)
    wait_for(lambda: len(values_of(running_broker, topic)) == 15_000, "all records")


def test_a_batch_in_use_by_a_thread_is_written_after_its_client_disconnected(
    running_broker: ThreadBroker,
) -> None:
    """A compressed batch of this size is not checked in the event loop."""
    topic = fresh_topic(running_broker)
    value = random.Random(1).randbytes(800_000)
    options = BatchOptions(compression=Compression.GZIP)
    records = build_batch([Record(0, 1, None, value, ())], options)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(records=records)])
    request = ProduceRequest(acks=0, topic_data=[data])
    frame = b"".join(build_request(request, 9, correlation_id=1, client_id=None))
    for _ in range(5):
        with socket.create_connection(parse_address(running_broker.bootstrap)) as client:
            client.sendall(frame)
    wait_for(lambda: len(values_of(running_broker, topic)) == 5, "all records")


@pytest.mark.parametrize("has_uvloop", [True, False])
def test_a_program_that_ends_without_closing_loses_nothing(
    node: ThreadBroker, has_uvloop: bool
) -> None:
    topic = fresh_topic(node)
    program = f"""
        import sys
        if not {has_uvloop}:
            sys.modules["uvloop"] = None
        import moldau
        producer = moldau.Producer({node.bootstrap.replace("127.0.0.1", "localhost")!r})
        for number in range(500):
            producer.send({topic!r}, b"%06d" % number)
        """
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert values_of(node, topic) == numbered(500)


def test_closing_in_a_callback_is_refused_and_changes_nothing(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node) as producer:
        errors: list[Exception] = []
        is_told = threading.Event()

        def close(_: Any) -> None:
            try:
                producer.close()
            except ClientError as error:
                errors.append(error)
            is_told.set()

        producer.send(topic, b"a").add_callback(close)
        assert is_told.wait(PATIENCE_S)
        assert "own thread" in str(errors[0])
        assert producer.send(topic, b"b").result(PATIENCE_S).offset == 1


def test_headers_count_for_the_size_of_a_record(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, max_request_size=10_000) as producer:
        producer.send(topic, b"a").result(PATIENCE_S)
        with pytest.raises(KafkaError, match=r"max\.request\.size") as caught:
            producer.send(topic, b"a", headers=[("long", bytes(10_000))])
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_larger_than_the_buffer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is more than buffer\.memory=1000"):
        Producer("127.0.0.1:1", batch_size=2_000, buffer_memory=1_000)


def test_refused_offsets_fail_unsent_records_at_once(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    producer = producer_of(node, transactional_id=fresh_topic(node), linger_ms=60_000)
    with producer:
        producer.init_transactions()
        producer.begin_transaction()
        delivery = producer.send(topic, b"a")
        node.fail_next("TxnOffsetCommit", "INVALID_PRODUCER_EPOCH")
        with pytest.raises(KafkaError):
            producer.send_offsets({TopicPartition(topic, 0): 1}, "other")
        assert isinstance(delivery.exception(PATIENCE_S), KafkaError)


def test_partitions_that_are_known_but_have_no_buffer_yet_are_not_chosen(
    node: ThreadBroker,
) -> None:
    topic = fresh_topic(node, 2)
    with producer_of(node) as producer:
        producer.send(topic, b"a").result(PATIENCE_S)
        engine = producer._session.opened
        known = engine.cluster.known
        row = known.topics[topic].partitions[0]
        more = {number: row._replace(number=number) for number in range(100)}
        known.topics[topic] = known.topics[topic]._replace(partitions=more)
        assert {engine.next_partition(topic) for _ in range(200)} == {0, 1}


class AlwaysFailing:
    def on_acknowledgement(self, *_: Any) -> None:
        raise ValueError("acknowledged")

    def close(self) -> None:
        raise ValueError("closed")


class Listening:
    def __init__(self) -> None:
        self.offsets: list[int] = []

    def on_acknowledgement(self, metadata: Any, _: Any) -> None:
        self.offsets.append(metadata.offset)


def test_errors_of_interceptors_are_harmless(node: ThreadBroker) -> None:
    topic, listening = fresh_topic(node), Listening()
    with producer_of(node, interceptor_classes=[AlwaysFailing, listening], linger_ms=0) as producer:
        for _ in range(20):
            producer.send(topic, b"a").result(PATIENCE_S)
    assert listening.offsets == list(range(20))


@pytest.mark.parametrize("chosen", [True, IntEnum("Numbers", {"ONE": 1}).ONE])  # type: ignore[attr-defined]
def test_a_partitioner_may_give_any_kind_of_whole_number(node: ThreadBroker, chosen: Any) -> None:
    topic = fresh_topic(node, 2)
    with producer_of(node, partitioner_class=lambda *_: chosen, max_block_ms=5_000) as producer:
        assert producer.send(topic, b"a").result(PATIENCE_S).partition == 1


@pytest.mark.parametrize("servers", [5, b"127.0.0.1:1", [b"127.0.0.1:1"], [5, "a:b"]])
def test_wrong_addresses_are_named_in_the_error(servers: Any) -> None:
    with pytest.raises(ClientError, match="is not"):
        Producer(servers)


@pytest.mark.parametrize("config", ["linger.ms=5", [("linger.ms", 5)], {5: 5}])
def test_settings_must_be_a_mapping(config: Any) -> None:
    with pytest.raises(ConfigError, match=r"dict of names and values|unknown setting"):
        Producer("127.0.0.1:1", config=config)


@pytest.mark.parametrize("headers", [5, "ab", [5], [("a",)], {"a": 5}])
def test_wrong_headers_are_named_in_the_error(node: ThreadBroker, headers: Any) -> None:
    with producer_of(node) as producer, pytest.raises(ClientError, match="header"):
        producer.send("any", b"a", headers=headers)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_gets_no_outcomes_of_its_parents_records(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, linger_ms=60_000) as producer:
        producer.partitions_for(topic)
        delivery = producer.send(topic, b"a")
        child = os.fork()
        if child == 0:
            try:
                delivery.result()
            except ClientError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("offsets", "group", "text"),
    [
        ({("a", 0): -5}, "g", "is not an offset"),
        ({("a", 0): "5"}, "g", "is not an offset"),
        ({"a": 5}, "g", "expected a partition"),
        (5, "g", "expected a dict of partitions"),
        ({("a", 0): 5}, 5, "is not a group"),
        ({("a", 0): 5}, "", "is not a group"),
    ],
)
def test_wrong_offsets_are_an_error_and_the_transaction_continues(
    node: ThreadBroker, offsets: Any, group: Any, text: str
) -> None:
    topic = fresh_topic(node)
    with producer_of(node, transactional_id=fresh_topic(node)) as producer:
        with producer.transaction():
            with pytest.raises(ClientError, match=text):
                producer.send_offsets(offsets, group)
            producer.send_offsets({TopicPartition(topic, 0): 5}, "any")
            delivery = producer.send(topic, b"a")
        assert delivery.result(PATIENCE_S).offset == 0
