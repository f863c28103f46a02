"""The broker for tests is a real one, starts quickly, and fails on demand."""

import contextlib
import socket
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from support.wire_client import WireClient

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.frame import build_request
from moldau.testing import ProcessBroker, ThreadBroker, broker

DEADLINE_S = 30


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def running(request: pytest.FixtureRequest) -> Iterator[ThreadBroker | ProcessBroker]:
    with broker(process=request.param) as started:
        yield started


def produce(bootstrap: str, topic: str, *values: bytes, **settings: object) -> list[object]:
    """The outcome of each record."""
    outcomes: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(DEADLINE_S) == 0
    return outcomes


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        return [message.value() for message in consumer.consume(count, timeout=DEADLINE_S)]
    finally:
        consumer.close()


def times(bootstrap: str, topic: str, count: int) -> list[int]:
    """The append times of the records."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "timer", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        return [each.timestamp()[1] for each in consumer.consume(count, timeout=DEADLINE_S)]
    finally:
        consumer.close()


def test_clients_use_it_like_any_broker(running: ThreadBroker | ProcessBroker) -> None:
    running.create_topic("orders", partitions=1)
    assert produce(running.bootstrap, "orders", b"a", b"b") == [None, None]
    assert read(running.bootstrap, "orders", 2) == [b"a", b"b"]


def test_data_survives_a_restart_on_the_same_port(running: ThreadBroker | ProcessBroker) -> None:
    before = running.bootstrap
    produce(before, "orders", b"kept")
    running.restart()
    assert running.bootstrap == before
    assert read(before, "orders", 1) == [b"kept"]


def test_a_killed_broker_restarts_with_all_acknowledged_records() -> None:
    with broker(process=True) as running:
        assert isinstance(running, ProcessBroker)
        produce(running.bootstrap, "orders", b"kept")
        running.kill()
        running.start()
        assert read(running.bootstrap, "orders", 1) == [b"kept"]


def test_injected_errors_reach_the_client_and_then_stop(
    running: ThreadBroker | ProcessBroker,
) -> None:
    running.create_topic("orders")
    running.fail_next("Produce", "MESSAGE_TOO_LARGE")
    refused, taken = (
        produce(running.bootstrap, "orders", b"a"),
        produce(running.bootstrap, "orders", b"b"),
    )
    assert [str(error) for error in refused if error is not None] != []
    assert taken == [None]
    assert read(running.bootstrap, "orders", 1) == [b"b"]


def test_errors_that_clients_retry_are_survived(running: ThreadBroker | ProcessBroker) -> None:
    running.create_topic("orders")
    running.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    assert produce(running.bootstrap, "orders", b"a", **{"retry.backoff.ms": 1}) == [None]
    assert read(running.bootstrap, "orders", 1) == [b"a"]


def test_a_delayed_response_arrives_when_the_clock_is_moved() -> None:
    with broker() as running, WireClient(running.bootstrap) as client:
        running.delay("Metadata", ms=3_600_000, times=1)
        client.send(MetadataRequest(topics=[]), 12)
        with WireClient(running.bootstrap) as other:
            assert other.ask(ApiVersionsRequest(), 0).error_code == 0
        assert not client.has_answer()
        # Repeated in case the request had not arrived yet: the delay begins on arrival.
        for _ in range(DEADLINE_S):
            running.clock.advance(seconds=3600)
            if client.has_answer(timeout_s=1):
                break
        _, answer = client.receive(ApiKey.METADATA, 12)
        assert answer.brokers


def test_connections_are_dropped_on_demand(running: ThreadBroker | ProcessBroker) -> None:
    host, port = running.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
        for chunk in build_request(ApiVersionsRequest(), 0, correlation_id=1, client_id=None):
            connection.sendall(chunk)
        assert len(connection.recv(4)) == 4
        assert running.drop_connections() == 1
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1000):
                pass
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    assert admin.list_topics(timeout=DEADLINE_S).brokers


def test_an_impossible_fault_is_refused_with_a_hint(
    running: ThreadBroker | ProcessBroker,
) -> None:
    with pytest.raises(ValueError, match="PRODUCE"):
        running.fail_next("Produse", "NONE")
    with pytest.raises(ValueError, match="NOT_LEADER_OR_FOLLOWER"):
        running.fail_next("Produce", "NOT_LEADER")
    with pytest.raises(ValueError, match="at least 1"):
        running.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=0)
    with pytest.raises(ValueError, match="at least 0"):
        running.delay("Produce", ms=-1)
    with pytest.raises(ValueError, match="back"):
        running.clock.advance(seconds=-1)
    with pytest.raises(KafkaError, match="'a b'") as refused:
        running.create_topic("a b")
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_error_may_be_delayed_and_the_connection_stays_open(
    running: ThreadBroker | ProcessBroker,
) -> None:
    running.create_topic("orders")
    partition = PartitionProduceData(records=build_batch([Record(0, 1, None, b"v", ())]))
    topic = TopicProduceData(name="orders", partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
    running.delay("Produce", ms=20, times=3)
    running.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=2)
    with WireClient(running.bootstrap) as client:
        for _ in range(3):
            client.send(request, 9)
        answers = [client.receive(ApiKey.PRODUCE, 9)[1] for _ in range(3)]
    codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
    refused = ErrorCode.NOT_ENOUGH_REPLICAS
    assert codes == [refused, refused, ErrorCode.NONE]


def test_an_error_that_no_response_can_carry_closes_the_connection(
    running: ThreadBroker | ProcessBroker,
) -> None:
    running.create_topic("orders")
    partition = PartitionProduceData(records=build_batch([Record(0, 1, None, b"v", ())]))
    topic = TopicProduceData(name="orders", partition_data=[partition])
    for name, request in (
        ("Produce", ProduceRequest(acks=0, topic_data=[topic])),
        ("Metadata", MetadataRequest(topics=None)),
    ):
        running.fail_next(name, "UNKNOWN_SERVER_ERROR")
        with WireClient(running.bootstrap) as client:
            client.send(request, 9)
            assert client.hangs_up()
    assert produce(running.bootstrap, "orders", b"a", acks=0) == [None]


def test_a_moved_clock_stays_moved(running: ThreadBroker | ProcessBroker) -> None:
    running.create_topic("orders", config={"message.timestamp.type": "LogAppendTime"})
    running.clock.advance(seconds=10_000_000)
    produce(running.bootstrap, "orders", b"before")
    running.restart()
    produce(running.bootstrap, "orders", b"after")
    before_ms, after_ms = times(running.bootstrap, "orders", 2)
    assert before_ms <= after_ms


def test_a_stopped_broker_raises() -> None:
    with broker() as running:
        running.stop()
        with pytest.raises(MoldauError, match="not running"):
            running.create_topic("late")


def test_several_brokers_run_in_one_process() -> None:
    with broker() as first, broker() as second:
        produce(first.bootstrap, "orders", b"first")
        produce(second.bootstrap, "orders", b"second")
        assert read(first.bootstrap, "orders", 1) == [b"first"]
        assert read(second.bootstrap, "orders", 1) == [b"second"]


def test_the_fixtures_exist_once_moldau_is_installed(
    moldau_broker: ThreadBroker, moldau_topic: str
) -> None:
    assert produce(moldau_broker.bootstrap, moldau_topic, b"a") == [None]


def test_metrics_show_requests_logs_and_lag() -> None:
    with broker({"moldau.metrics.port": "0"}) as running:
        assert isinstance(running, ThreadBroker)
        produce(running.bootstrap, "orders", b"a", b"b")
        read(running.bootstrap, "orders", 2)
        url = f"http://127.0.0.1:{running.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            page = answer.read().decode()
    assert 'moldau_request_seconds_count{api="PRODUCE"}' in page
    assert 'moldau_log_end_offset{partition="0",topic="orders"} 2.0' in page
    assert 'moldau_group_lag{group="reader",partition="0",topic="orders"} 0.0' in page
    assert "moldau_event_loop_lag_seconds" in page
    assert "moldau_event_loop_held_max_seconds" in page
