"""A consumer whose brokers fail, are slow, hang up, or die: nothing is left out, nothing is given
twice, and nothing hangs.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client.consumed import consumer_of, fresh_name, fresh_topic, produce, read, until, values

from moldau import Consumer
from moldau.client.errors import NoBrokerError
from moldau.protocol.errors import KafkaError
from moldau.testing import ProcessBroker, ThreadBroker, broker

SETTINGS: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 20,
}


@pytest.fixture
def consumer(node: ThreadBroker) -> Iterator[Consumer]:
    with consumer_of(node, heartbeat_interval_ms=100, **SETTINGS) as made:
        yield made


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
        ("Fetch", "FETCH_SESSION_ID_NOT_FOUND"),
        ("Fetch", "INVALID_FETCH_SESSION_EPOCH"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetFetch", "UNSTABLE_OFFSET_COMMIT"),
        ("OffsetFetch", "NOT_COORDINATOR"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("JoinGroup", "NOT_COORDINATOR"),
        ("JoinGroup", "REBALANCE_IN_PROGRESS"),
        ("JoinGroup", "UNKNOWN_MEMBER_ID"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("SyncGroup", "ILLEGAL_GENERATION"),
        ("SyncGroup", "NOT_COORDINATOR"),
        ("Metadata", "LEADER_NOT_AVAILABLE"),
    ],
)
def test_errors_that_pass_are_tried_again(
    node: ThreadBroker, consumer: Consumer, api: str, error: str
) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(50)], 0)
    node.fail_next(api, error, 3)
    consumer.subscribe(topic)
    assert values(read(consumer, 50)) == [b"%d" % i for i in range(50)]


def test_errors_that_nobody_can_cure_are_told_and_reading_goes_on(
    node: ThreadBroker, consumer: Consumer
) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)
    consumer.assign([(topic, 0)])
    node.fail_next("Fetch", "UNKNOWN_SERVER_ERROR", 1)
    with pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"):
        consumer.poll(30)
    assert values(read(consumer, 1)) == [b"a"]


@pytest.mark.parametrize(
    "error",
    [
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
    ],
)
def test_heartbeats_that_are_refused_lead_back_into_the_group(
    node: ThreadBroker, consumer: Consumer, error: str
) -> None:
    topic = fresh_topic(node)
    consumer.subscribe(topic)
    until(lambda: bool(consumer.assignment()), consumer)
    node.fail_next("Heartbeat", error, 2)
    produce(node.bootstrap, topic, [b"a"], 0)
    assert values(read(consumer, 1)) == [b"a"]
    until(lambda: bool(consumer.assignment()), consumer)
    consumer.commit({(topic, 0): 1})


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_commits_are_tried_again(node: ThreadBroker, consumer: Consumer, error: str) -> None:
    topic = fresh_topic(node)
    consumer.subscribe(topic)
    until(lambda: bool(consumer.assignment()), consumer)
    node.fail_next("OffsetCommit", error, 3)
    consumer.commit({(topic, 0): 5})
    (found,) = consumer.committed([(topic, 0)]).values()
    assert found is not None
    assert found.offset == 5


def test_cut_connections_lose_and_double_nothing(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 3)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(9000)])
    found: list[bytes] = []
    settings = {"max_partition_fetch_bytes": 10_000, "max_poll_records": 200}
    with consumer_of(node, heartbeat_interval_ms=100, **SETTINGS, **settings) as consumer:
        consumer.subscribe(topic)
        for _ in range(1000):
            if len(found) == 9000:
                break
            found += values(consumer.poll(10))
            if len(found) % 1000 < 200:
                node.drop_connections()
    assert sorted(map(int, found)) == list(range(9000))


def test_a_slow_broker_is_waited_for(node: ThreadBroker, consumer: Consumer) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)
    node.delay("Fetch", 300, 3)
    node.delay("JoinGroup", 300, 1)
    consumer.subscribe(topic)
    assert values(read(consumer, 1)) == [b"a"]


def test_a_broker_that_does_not_answer_is_given_up(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)
    settings = {"request_timeout_ms": 300, "fetch_max_wait_ms": 100}
    with consumer_of(node, **SETTINGS, **settings) as consumer:
        consumer.assign([(topic, 0)])
        node.delay("Fetch", 5_000, 1)
        assert values(read(consumer, 1, patience_s=20)) == [b"a"]


def test_a_broker_that_is_killed_and_comes_back_is_read_on(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0", "moldau.flush.policy": "group"}
    with broker(settings, directory=tmp_path, process=True) as node:
        assert isinstance(node, ProcessBroker)
        topic = fresh_name()
        node.create_topic(topic, 2)
        produce(node.bootstrap, topic, [b"%d" % i for i in range(2000)])
        with Consumer(
            node.bootstrap,
            group_id=fresh_name("group"),
            auto_offset_reset="earliest",
            max_poll_records=100,
            heartbeat_interval_ms=100,
            **SETTINGS,
        ) as consumer:
            consumer.subscribe(topic)
            found = values(read(consumer, 700))
            node.kill()
            found += values(consumer.poll(1))
            node.start()
            produce(node.bootstrap, topic, [b"%d" % i for i in range(2000, 2500)])
            found += values(read(consumer, 2500 - len(found)))
            assert sorted(map(int, found)) == list(range(2500))
            consumer.commit()


def test_nobody_there_is_said(node: ThreadBroker) -> None:
    with Consumer("127.0.0.1:9", group_id="g", **SETTINGS) as consumer:
        consumer.subscribe("t")
        with pytest.raises(NoBrokerError, match="nothing listens there"):
            consumer.poll(30)


def test_nothing_is_left_behind(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    before = threading.active_count()
    for _ in range(3):
        with consumer_of(node) as consumer:
            consumer.subscribe(topic)
            until(lambda: bool(consumer.assignment()), consumer)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("OffsetFetch", "COORDINATOR_NOT_AVAILABLE"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_trouble_that_outlasts_every_patience_does_not_end_a_loop_of_polls(
    node: ThreadBroker, api: str, error: str
) -> None:
    """As with Kafka's own consumer: what may pass is not the user's to deal with."""
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)
    with consumer_of(node, default_api_timeout_ms=100, request_timeout_ms=100, **SETTINGS) as made:
        node.fail_next(api, error, 15)
        made.subscribe(topic)
        assert values(read(made, 1)) == [b"a"]
