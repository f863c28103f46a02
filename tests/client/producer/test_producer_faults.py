"""Producers with errors, cut connections, lost responses and killed brokers: acknowledged records
are neither lost nor duplicated, each partition keeps its order, and nothing waits beyond its
timeout.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client.clusters import fresh_topic
from client.lossy_proxy import LossyProxy
from client.produced import PATIENCE_S, SMALL, numbered, producer_of, stored, values_of
from client.producer_cases import BlockingAioProducer
from support.running_node import freeze
from support.waiting import wait_for

import moldau.aio
from moldau.errors import ClientTimeoutError, ErrorCode, KafkaError
from moldau.testing import ProcessBroker, ThreadBroker, broker

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
}

ProducerMaker = Callable[..., Any]


@pytest.fixture(params=["blocking", "aio"])
def make_producer(request: pytest.FixtureRequest) -> ProducerMaker:
    """Makes a producer for a node, blocking or asyncio."""
    if request.param == "blocking":
        return producer_of
    return lambda node, **settings: BlockingAioProducer(node.bootstrap, **settings)


PASSING = [
    "NOT_LEADER_OR_FOLLOWER",
    "NOT_ENOUGH_REPLICAS",
    "KAFKA_STORAGE_ERROR",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "CORRUPT_MESSAGE",
]


@pytest.mark.parametrize("error", PASSING)
def test_retriable_errors_neither_reorder_nor_duplicate_records(
    node: ThreadBroker, error: str
) -> None:
    topic = fresh_topic(node)
    values = numbered(400)
    with producer_of(node, **SMALL, **QUICK) as producer:
        producer.send(topic, b"first").result(PATIENCE_S)
        deliveries = []
        for number, value in enumerate(values):
            if number % 100 == 50:
                node.fail_next("Produce", error, 2)
            deliveries.append(producer.send(topic, value))
        producer.flush(PATIENCE_S)
        assert [one.result(0).offset for one in deliveries] == list(range(1, 401))
        assert producer.metrics()["batches_retried"] > 0
    assert values_of(node, topic) == [b"first", *values]


def test_five_requests_are_in_flight_and_a_failed_one_keeps_its_order(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, batch_size=0, linger_ms=0, **QUICK) as producer:
        producer.send(topic, b"first").result(PATIENCE_S)
        node.delay("Produce", 20, 5)
        most = 0
        deliveries = [producer.send(topic, value) for value in numbered(500)]
        while not deliveries[-1].done():
            most = max(most, int(producer.metrics()["requests_in_flight"]))
            if deliveries[20].done() and not deliveries[21].done():
                node.fail_next("Produce", "NOT_ENOUGH_REPLICAS", 1)
        assert most == 5
        assert all(one.exception(0) is None for one in deliveries)
    assert values_of(node, topic) == [b"first", *numbered(500)]


def test_cut_connections_neither_lose_nor_duplicate_records(
    node: ThreadBroker, make_producer: ProducerMaker
) -> None:
    topic = fresh_topic(node, 3)
    with make_producer(node, **SMALL, **QUICK) as producer:
        deliveries = []
        cut = 0
        # So that some requests are in flight when the connection is cut.
        node.delay("Produce", 2, 100)
        for start in range(0, 6_000, 150):
            if start == 5_850:
                # These certainly are in flight.
                producer.flush(PATIENCE_S)
                node.clear_faults()
                node.delay("Produce", PATIENCE_S * 1000, 1)
            values = numbered(150, start)
            deliveries += [
                producer.send_many(topic, values[number::3], partition=number)
                for number in range(3)
            ]
            cut += node.drop_connections()
            if start % 600 == 0:
                producer.flush(PATIENCE_S)

        def is_retried() -> bool:
            node.drop_connections()
            return bool(producer.metrics()["batches_retried"])

        wait_for(is_retried, "a batch that was cut off", PATIENCE_S)
        node.clear_faults()
        producer.flush(PATIENCE_S)
        assert sum(one.records for sent in deliveries for one in sent.result(0)) == 6_000
        assert cut > 10
    for partition, records in stored(node, topic).items():
        assert [record.value for record in records] == numbered(6_000)[partition::3]


def test_requests_cut_in_the_middle_neither_lose_nor_duplicate_records(
    make_producer: ProducerMaker,
) -> None:
    with LossyProxy() as proxy, proxy.broker() as node:
        node.create_topic("t")
        expected = [b"first"]
        with make_producer(node, batch_size=1_000, linger_ms=0, **QUICK) as producer:
            producer.send("t", b"first").result(PATIENCE_S)
            for round_number, request_bytes in enumerate([1, 3, 4, 30, 100, 171, 400, 999, 2_500]):
                values = numbered(1_000, 1_000 * round_number)
                proxy.cut_after(request_bytes)
                sent = producer.send_many("t", values)
                expected += values
                assert sum(one.records for one in sent.result(PATIENCE_S)) == 1_000
                assert proxy.has_cut_request
            assert producer.metrics()["batches_retried"] >= 9
        assert values_of(node, "t") == expected


def test_lost_responses_duplicate_no_records(make_producer: ProducerMaker) -> None:
    with LossyProxy() as proxy, proxy.broker() as node:
        node.create_topic("t")
        expected = [b"first"]
        with make_producer(node, **SMALL, **QUICK) as producer:
            producer.send("t", b"first").result(PATIENCE_S)
            for round_number in range(10):
                values = numbered(30, 1000 * round_number)
                proxy.drop_responses()
                deliveries = [producer.send("t", value) for value in values]
                expected += values
                proxy.cut_after_dropped_response()
                producer.flush(PATIENCE_S)
                assert all(one.exception(0) is None for one in deliveries)
            assert producer.metrics()["batches_retried"] >= 10
        assert values_of(node, "t") == expected


def test_a_broker_that_forgot_the_producer_gets_numbers_from_zero(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, **SMALL, **QUICK) as producer:
        for code in ("UNKNOWN_PRODUCER_ID", "OUT_OF_ORDER_SEQUENCE_NUMBER"):
            producer.send(topic, b"before").result(PATIENCE_S)
            node.fail_next("Produce", code, 1)
            producer.send_many(topic, numbered(50)).result(PATIENCE_S)
    assert values_of(node, topic) == [b"before", *numbered(50)] * 2


def test_a_refused_batch_fails_alone(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, **SMALL, **QUICK) as producer:
        producer.send(topic, b"before").result(PATIENCE_S)
        node.fail_next("Produce", "INVALID_REQUIRED_ACKS", 1)
        refused = producer.send(topic, b"refused")
        with pytest.raises(KafkaError) as caught:
            refused.result(PATIENCE_S)
        assert caught.value.code is ErrorCode.INVALID_REQUIRED_ACKS
        producer.send_many(topic, numbered(100)).result(PATIENCE_S)
    assert values_of(node, topic) == [b"before", *numbered(100)]


def test_a_refused_batch_before_others_in_flight_fails_alone(
    node: ThreadBroker,
) -> None:
    topic = fresh_topic(node)
    with producer_of(node, batch_size=0, linger_ms=0, **QUICK) as producer:
        producer.send(topic, b"before").result(PATIENCE_S)
        node.delay("Produce", 10, 5)
        node.fail_next("Produce", "INVALID_REQUIRED_ACKS", 1)
        deliveries = [producer.send(topic, value) for value in numbered(50)]
        producer.flush(PATIENCE_S)
        good = [one for one in deliveries if one.exception(0) is None]
    lost = len(deliveries) - len(good)
    assert lost >= 1
    assert values_of(node, topic) == [b"before", *numbered(50 - lost, lost)]


def test_refused_records_are_identified_by_index(node: ThreadBroker) -> None:
    topic = fresh_topic(node, cleanup_policy="compact")
    with producer_of(node, linger_ms=50) as producer:
        producer.partitions_for(topic)
        good = producer.send(topic, b"v", b"key")
        bad = producer.send(topic, b"v")
        with pytest.raises(KafkaError) as caught:
            bad.result(PATIENCE_S)
        assert caught.value.code is ErrorCode.INVALID_RECORD
        assert "cannot accept message without key" in str(caught.value)
        with pytest.raises(KafkaError, match="another record"):
            good.result(PATIENCE_S)
        producer.send(topic, b"v", b"key").result(PATIENCE_S)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_batch_that_is_too_large_for_the_topic_is_split(node: ThreadBroker, codec: str) -> None:
    import random

    topic = fresh_topic(node, max_message_bytes="4000")
    rng = random.Random(7)
    values = [rng.randbytes(200) for _ in range(300)]
    heard: list[int] = []
    with producer_of(node, batch_size=60_000, linger_ms=100, compression_type=codec) as producer:
        producer.partitions_for(topic)
        deliveries = [producer.send(topic, value) for value in values]
        for one in deliveries:
            one.add_callback(lambda arrived: heard.append(arrived.result().offset))
        producer.flush(PATIENCE_S)
        assert [one.result(0).offset for one in deliveries] == list(range(300))
        assert sorted(heard) == list(range(300))
        many = producer.send_many(topic, values)
        assert sum(one.records for one in many.result(PATIENCE_S)) == 300
        assert producer.metrics()["batches_split"] > 1
        assert producer.metrics()["buffer_available_bytes"] == 32 * 1024 * 1024
        # The broker gives no reason.
        with pytest.raises(
            KafkaError, match=r"larger than the topic's max\.message\.bytes"
        ) as caught:
            producer.send(topic, rng.randbytes(5_000)).result(PATIENCE_S)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert values_of(node, topic) == values + values


def test_a_record_fails_when_its_time_is_over_and_the_next_ones_do_not(
    node: ThreadBroker,
) -> None:
    topic = fresh_topic(node)
    settings: dict[str, Any] = {"request_timeout_ms": 300, "delivery_timeout_ms": 400}
    with producer_of(node, linger_ms=0, **settings, **QUICK) as producer:
        producer.send(topic, b"before").result(PATIENCE_S)
        node.delay("Produce", 3_000, 2)
        late = producer.send(topic, b"late")
        with pytest.raises(KafkaError) as caught:
            late.result(PATIENCE_S)
        assert caught.value.code in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION}
        node.clear_faults()
        while producer.send(topic, b"after").exception(PATIENCE_S) is not None:
            pass
        producer.send_many(topic, numbered(10)).result(PATIENCE_S)
    assert values_of(node, topic)[-11:] == [b"after", *numbered(10)]


def test_a_full_buffer_holds_send_back_no_longer_than_max_block_ms(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, buffer_memory=50_000, max_block_ms=300, **SMALL) as producer:
        producer.send(topic, b"first").result(PATIENCE_S)
        node.delay("Produce", 2_000, 1)
        sent: list[Any] = []

        def send_until_it_is_full() -> None:
            for value in numbered(5_000):
                sent.append(producer.send(topic, value * 10))  # noqa: PERF401 - it ends early

        with pytest.raises(ClientTimeoutError, match=r"max\.block\.ms"):
            send_until_it_is_full()
        assert 100 < len(sent) < 2_000
        producer.flush(PATIENCE_S)
        assert all(one.exception(0) is None for one in sent)
        producer.send(topic, b"last").result(PATIENCE_S)
    assert values_of(node, topic) == [
        b"first",
        *(value * 10 for value in numbered(len(sent))),
        b"last",
    ]


def test_a_slow_broker_holds_the_sender_back_and_loses_nothing(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with producer_of(node, buffer_memory=100_000, **SMALL) as producer:
        producer.send(topic, b"first").result(PATIENCE_S)
        node.delay("Produce", 5, 50)
        for value in numbered(20_000):
            producer.send(topic, value)
    assert values_of(node, topic) == [b"first", *numbered(20_000)]


def test_closing_with_a_short_timeout_fails_unsent_records_and_ends_the_thread(
    node: ThreadBroker,
) -> None:
    topic = fresh_topic(node)
    before = set(threading.enumerate())
    producer = producer_of(node)
    producer.send(topic, b"first").result(PATIENCE_S)
    node.delay("Produce", 5_000, 1)
    left = producer.send(topic, b"left")
    producer.close(timeout=0.1)
    assert left.exception(0) is not None
    assert set(threading.enumerate()) <= before


def test_a_closed_producer_leaves_no_socket_and_no_thread(node: ThreadBroker) -> None:
    import psutil

    topic = fresh_topic(node)
    process = psutil.Process()
    producer_of(node).close()
    before = process.num_fds(), process.num_threads()
    for number in range(20):
        with producer_of(node, **QUICK) as producer:
            producer.send(topic, b"v")
            if number % 3 == 0:
                producer.flush(PATIENCE_S)
                node.drop_connections()
                producer.send(topic, b"w").result(PATIENCE_S)
    # The broker closes its ends of the connections a moment later.
    node.drop_connections()
    assert (process.num_fds(), process.num_threads()) <= (before[0] + 2, before[1])


async def test_an_asyncio_producer_leaves_no_task_and_no_socket(node: ThreadBroker) -> None:
    import psutil

    topic = fresh_topic(node)
    process = psutil.Process()
    await moldau.aio.Producer(node.bootstrap).close()
    before = process.num_fds()
    tasks = asyncio.all_tasks()
    for _ in range(10):
        async with moldau.aio.Producer(node.bootstrap, **QUICK) as producer:
            await (await producer.send(topic, b"v"))
            node.drop_connections()
            node.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
            await (await producer.send(topic, b"w"))
            _ = await producer.send(topic, b"x")
        assert asyncio.all_tasks() == tasks
    node.drop_connections()
    assert process.num_fds() <= before + 2


def test_a_restarted_broker_gets_the_remaining_records(
    tmp_path: Path, make_producer: ProducerMaker
) -> None:
    with broker(directory=tmp_path) as node:
        assert isinstance(node, ThreadBroker)
        node.create_topic("t", 2)
        with make_producer(node, **SMALL, **QUICK) as producer:
            values = numbered(4_000)
            for number, value in enumerate(values):
                producer.send("t", value, partition=number % 2)
                if number in {1_000, 2_000, 3_000}:
                    node.restart()
            producer.flush(PATIENCE_S)
            assert producer.metrics()["records_failed"] == 0
        for partition, records in stored(node, "t").items():
            assert [record.value for record in records] == values[partition::2]


def test_a_silent_broker_is_waited_for_until_the_timeouts(make_producer: ProducerMaker) -> None:
    times: dict[str, Any] = {
        "request_timeout_ms": 200,
        "delivery_timeout_ms": 500,
        "max_block_ms": 300,
    }
    with broker(process=True) as node:
        assert isinstance(node, ProcessBroker)
        node.create_topic("t")
        with make_producer(node, linger_ms=0, **times, **QUICK) as producer:
            producer.send("t", b"before").result(PATIENCE_S)
            freeze(node.pid)
            try:
                late = producer.send("t", b"late")
                error = late.exception(PATIENCE_S)
                assert isinstance(error, KafkaError)
                assert error.is_retriable
                with pytest.raises(ClientTimeoutError, match=r"max\.block\.ms"):
                    producer.send("unknown", b"")
                producer.send("t", b"left")
                producer.close(0.1)
            finally:
                os.kill(node.pid, signal.SIGCONT)
        with make_producer(node) as producer:
            producer.send("t", b"after").result(PATIENCE_S)
        found = values_of(node, "t")
    # Abandoned records may or may not be there, but none twice.
    assert found[0] == b"before"
    assert found[-1] == b"after"
    assert len(found) == len(set(found))


@pytest.mark.slow
def test_a_killed_broker_neither_loses_nor_duplicates_acknowledged_records(
    tmp_path: Path, make_producer: ProducerMaker
) -> None:
    with broker({"moldau.flush.policy": "group"}, directory=tmp_path, process=True) as node:
        assert isinstance(node, ProcessBroker)
        node.create_topic("t", 2)
        with make_producer(node, **SMALL, **QUICK) as producer:
            values = numbered(6_000)
            deliveries = []
            for number, value in enumerate(values):
                deliveries.append(producer.send("t", value, partition=number % 2))
                if number % 1_500 == 1_000:
                    node.kill()
                    node.start()
            producer.flush(PATIENCE_S)
            assert all(one.exception(0) is None for one in deliveries)
        for partition, records in stored(node, "t").items():
            assert [record.value for record in records] == values[partition::2]
