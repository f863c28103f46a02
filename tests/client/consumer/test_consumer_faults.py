"""A consumer whose brokers fail, are slow, hang up or die: records are neither skipped nor
duplicated, and nothing hangs.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from client.consumed import consumer_of, fresh_name, fresh_topic, poll_until, produce, read, values
from client.lossy_proxy import LossyProxy

import moldau.aio
from moldau import Consumer
from moldau.client.errors import NoBrokerError
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.testing import ProcessBroker, ThreadBroker, broker

SETTINGS: dict[str, Any] = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 20,
}


@pytest.fixture
def consumer(node: ThreadBroker) -> Iterator[Consumer]:
    # A member that is reported as unknown waits until its former membership has expired.
    settings = {"heartbeat_interval_ms": 100, "session_timeout_ms": 3000}
    with consumer_of(node, **settings, **SETTINGS) as made:
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
def test_retriable_errors_are_retried(
    node: ThreadBroker, consumer: Consumer, api: str, error: str
) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(50)], 0)
    node.fail_next(api, error, 3)
    consumer.subscribe(topic)
    assert values(read(consumer, 50)) == [b"%d" % i for i in range(50)]


def test_permanent_errors_are_raised_and_reading_continues(
    node: ThreadBroker, consumer: Consumer
) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)
    node.fail_next("Fetch", "UNKNOWN_SERVER_ERROR", 1)
    consumer.assign([(topic, 0)])
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
def test_a_refused_heartbeat_makes_the_member_rejoin(
    node: ThreadBroker, consumer: Consumer, error: str
) -> None:
    topic = fresh_topic(node)
    consumer.subscribe(topic)
    poll_until(lambda: bool(consumer.assignment()), consumer)
    node.fail_next("Heartbeat", error, 2)
    produce(node.bootstrap, topic, [b"a"], 0)
    assert values(read(consumer, 1)) == [b"a"]
    poll_until(lambda: bool(consumer.assignment()), consumer)
    consumer.commit({(topic, 0): 1})


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_commits_are_retried(node: ThreadBroker, consumer: Consumer, error: str) -> None:
    topic = fresh_topic(node)
    consumer.subscribe(topic)
    poll_until(lambda: bool(consumer.assignment()), consumer)
    node.fail_next("OffsetCommit", error, 3)
    consumer.commit({(topic, 0): 5})
    (found,) = consumer.committed([(topic, 0)]).values()
    assert found is not None
    assert found.offset == 5


def test_cut_connections_neither_lose_nor_duplicate_records(node: ThreadBroker) -> None:
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


def test_reading_resumes_after_a_broker_is_killed_and_restarted(tmp_path: Path) -> None:
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


def test_an_unreachable_cluster_is_an_error(node: ThreadBroker) -> None:
    with Consumer("127.0.0.1:9", group_id="g", **SETTINGS) as consumer:
        consumer.subscribe("t")
        with pytest.raises(NoBrokerError, match="nothing listens there"):
            consumer.poll(30)


def test_responses_cut_in_the_middle_neither_lose_nor_duplicate_records() -> None:
    written = [b"%d" % i for i in range(5000)]
    with LossyProxy() as proxy, proxy.broker() as node:
        topic = fresh_name()
        node.create_topic(topic, 1)
        produce(node.bootstrap, topic, written, 0)
        settings = {"max_partition_fetch_bytes": 10_000, "max_poll_records": 100}
        with consumer_of(node, **SETTINGS, **settings) as consumer:
            consumer.assign([(topic, 0)])
            proxy.cut_in_the_middle(5)
            assert values(read(consumer, 5000)) == written
            assert proxy.has_cut_responses
            assert consumer.metrics()["fetches_failed"] >= 5


def test_a_commit_whose_response_was_lost_is_retried() -> None:
    with LossyProxy() as proxy, proxy.broker() as node:
        topic = fresh_name()
        node.create_topic(topic, 1)
        with consumer_of(node, heartbeat_interval_ms=100, **SETTINGS) as consumer:
            consumer.subscribe(topic)
            poll_until(lambda: bool(consumer.assignment()), consumer)
            proxy.drop_responses()
            cutter = threading.Thread(target=proxy.cut_after_dropped_response)
            cutter.start()
            consumer.commit({(topic, 0): 7})
            cutter.join()
            assert _committed(consumer, topic) == 7


def _committed(consumer: Consumer, topic: str) -> int:
    (found,) = consumer.committed([(topic, 0)]).values()
    return 0 if found is None else found.offset


def test_committed_offsets_never_go_back(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(2000)], 0)
    settings = {"max_poll_records": 20, "auto_commit_interval_ms": 1, "heartbeat_interval_ms": 50}
    with consumer_of(node, **SETTINGS, **settings) as consumer:
        consumer.subscribe(topic)
        seen = [0]
        for turn in range(100):
            records = read(consumer, 20)
            assert [one.offset for one in records] == list(range(turn * 20, turn * 20 + 20))
            if turn % 10 == 3:
                node.fail_next("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", 2)
            if turn % 10 == 6:
                node.delay("OffsetCommit", 50, 1)
            if turn % 10 == 9:
                consumer.commit()
            if turn % 25 == 12:
                node.drop_connections()
            if turn % 5 == 0:
                seen.append(_committed(consumer, topic))
        consumer.commit()
        seen.append(_committed(consumer, topic))
    assert seen == sorted(seen)
    assert seen[-1] == 2000


@pytest.mark.parametrize(
    "use",
    [
        lambda consumer, topic: consumer.commit({(topic, 0): 1}),
        lambda consumer, topic: consumer.committed([(topic, 0)]),
        lambda consumer, topic: consumer.end_offsets([(topic, 0)]),
    ],
    ids=["commit", "committed", "end_offsets"],
)
def test_a_silent_broker_is_waited_for_until_the_timeout(use: Any) -> None:
    with LossyProxy() as proxy, proxy.broker() as node:
        topic = fresh_name()
        node.create_topic(topic, 1)
        settings = {"default_api_timeout_ms": 400, "request_timeout_ms": 300}
        with consumer_of(node, **SETTINGS, **settings) as consumer:
            consumer.subscribe(topic)
            poll_until(lambda: bool(consumer.assignment()), consumer)
            proxy.drop_responses()
            with pytest.raises(MoldauError):
                use(consumer, topic)
            # Polling continues, without records.
            assert consumer.poll(0.1) == []
            consumer.close(timeout=0.2)


def _sockets() -> int:
    return sum(one.status != psutil.CONN_LISTEN for one in psutil.Process().net_connections())


def test_the_asyncio_consumer_leaves_no_tasks_or_sockets(node: ThreadBroker) -> None:
    """After any of these faults."""
    topic = fresh_topic(node, 2)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(100)])
    node.drop_connections()
    poll_until(lambda: node.drop_connections() == 0)

    async def disturbed() -> None:
        for fault in ("cut", "refused", "slow", "cancelled"):
            async with moldau.aio.Consumer(
                node.bootstrap,
                group_id=fresh_name("group"),
                auto_offset_reset="earliest",
                **SETTINGS,
            ) as consumer:
                consumer.subscribe(topic)
                assert await consumer.poll(60)
                if fault == "cut":
                    node.drop_connections()
                elif fault == "refused":
                    node.fail_next("Heartbeat", "UNKNOWN_MEMBER_ID", 1)
                elif fault == "slow":
                    node.delay("Fetch", 1000, 1)
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.01):
                            await consumer.position((topic, 0))
                await consumer.poll(0.1)
            node.clear_faults()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(disturbed())
    # The broker closes its sockets when it notices.
    poll_until(lambda: node.drop_connections() == 0)


def test_a_closed_consumer_leaves_no_tasks_or_sockets(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    before = threading.active_count()
    poll_until(lambda: node.drop_connections() == 0)
    sockets = _sockets()
    for turn in range(3):
        with consumer_of(node, **SETTINGS) as consumer:
            consumer.subscribe(topic)
            poll_until(lambda: bool(consumer.assignment()), consumer)
            if turn == 1:
                node.drop_connections()
    assert threading.active_count() == before
    poll_until(lambda: _sockets() <= sockets)


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("OffsetFetch", "COORDINATOR_NOT_AVAILABLE"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_errors_longer_than_any_timeout_do_not_end_a_loop_of_polls(
    node: ThreadBroker, api: str, error: str
) -> None:
    """As with Kafka's own consumer, users need not handle retriable errors."""
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)
    with consumer_of(node, default_api_timeout_ms=100, request_timeout_ms=100, **SETTINGS) as made:
        node.fail_next(api, error, 15)
        made.subscribe(topic)
        assert values(read(made, 1)) == [b"a"]
