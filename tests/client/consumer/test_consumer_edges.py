"""Rare cases of consumers: paused partitions that fill the buffer, recreated topics."""

import contextlib
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from client.consumed import consumer_of, fresh_name, fresh_topic, poll_until, produce, read, values

from moldau import Admin, Consumer
from moldau.client.admin.groups import Group
from moldau.core.consumer.assignors import RangeAssignor
from moldau.core.consumer.membership import RejoinNeeded
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.errors import ClientError, ConfigError, KafkaError
from moldau.testing import ThreadBroker, broker
from moldau.types import TopicPartition

LARGE = [bytes(10_000)] * 100


def test_paused_partitions_do_not_block_others(node: ThreadBroker) -> None:
    held, wanted = fresh_topic(node), fresh_topic(node)
    for topic in (held, wanted):
        produce(node.bootstrap, topic, LARGE, 0)
    with consumer_of(
        node, fetch_max_bytes=50_000, max_partition_fetch_bytes=50_000, max_poll_records=1
    ) as consumer:
        consumer.assign([(held, 0)])
        first = read(consumer, 1)
        consumer.pause((held, 0))
        consumer.assign([(held, 0), (wanted, 0)])
        assert {one.topic for one in read(consumer, 100)} == {wanted}
        consumer.resume()
        rest = read(consumer, 99)
        assert [one.offset for one in first + rest] == list(range(100))


def test_a_seek_while_all_is_paused_drops_what_was_fetched(node: ThreadBroker) -> None:
    moved, other = fresh_topic(node), fresh_topic(node)
    for topic in (moved, other):
        produce(node.bootstrap, topic, LARGE, 0)
    with consumer_of(node, max_partition_fetch_bytes=50_000, max_poll_records=1) as consumer:
        consumer.assign([(moved, 0), (other, 0)])
        read(consumer, 5)
        for _ in range(5):
            consumer.pause()
            consumer.seek((moved, 0), 0)
            consumer.resume((other, 0))
            read(consumer, 1)
            consumer.resume((moved, 0))
        consumer.seek((moved, 0), 0)
        consumer.pause((other, 0))
        assert [one.offset for one in read(consumer, 100)] == list(range(100))


def test_a_recreated_topic_is_read(tmp_path: Path) -> None:
    with broker(directory=tmp_path) as running:
        assert isinstance(running, ThreadBroker)
        running.create_topic("again", 1)
        # Every start makes a new epoch of the leader.
        running.restart()
        produce(running.bootstrap, "again", [b"old"] * 3, 0)
        with consumer_of(running, group_id=None) as consumer, Admin(running.bootstrap) as admin:
            consumer.assign([("again", 0)])
            assert values(read(consumer, 3)) == [b"old"] * 3
            admin.delete_topics(["again"])
            running.create_topic("again", 1)
            produce(running.bootstrap, "again", [b"new"], 0)
            assert values(read(consumer, 1)) == [b"new"]


def test_a_permanent_error_is_not_retried_at_once(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with consumer_of(node, retry_backoff_ms=50, retry_backoff_max_ms=50) as consumer:
        consumer.assign([(topic, 0)])
        node.fail_next("Fetch", "TOPIC_AUTHORIZATION_FAILED", 1_000)
        began, errors = time.monotonic(), 0
        while errors < 5:
            with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                consumer.poll(30)
            errors += 1
        # As in Kafka, pauses may be up to a fifth shorter than configured.
        assert time.monotonic() - began > 3 * 0.04


class AlwaysFailing:
    """A listener and an interceptor that always fail."""

    def on_partitions_revoked(self, *_: Any) -> None:
        raise ValueError("revoked")

    def on_consume(self, *_: Any) -> None:
        raise ValueError("consumed")

    def on_commit(self, *_: Any) -> None:
        raise ValueError("committed")


def test_failing_interceptors_lose_no_record(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a", b"b"], 0)
    with consumer_of(node, interceptor_classes=[AlwaysFailing]) as consumer:
        consumer.subscribe(topic)
        assert values(read(consumer, 2)) == [b"a", b"b"]
        consumer.commit()
        assert consumer.committed([(topic, 0)])[TopicPartition(topic, 0)] == OffsetAndMetadata(
            2, "", 0
        )


def test_an_error_in_a_listener_does_not_block_the_group(node: ThreadBroker) -> None:
    topic, group = fresh_topic(node), fresh_name("group")
    produce(node.bootstrap, topic, [b"a"], 0)
    consumer = consumer_of(node, group_id=group)
    consumer.subscribe(topic, listener=AlwaysFailing())
    read(consumer, 1)
    with pytest.raises(ValueError, match="revoked"):
        consumer.close()
    with Admin(node.bootstrap) as admin:
        (found,) = admin.describe_groups([group]).values()
        assert isinstance(found, Group)
        assert not found.members
    with consumer_of(node, group_id=group) as other:
        assert other.committed([(topic, 0)])[TopicPartition(topic, 0)] is not None


def test_a_seek_while_the_buffer_is_full_is_obeyed(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, LARGE, 0)
    with consumer_of(node, max_partition_fetch_bytes=50_000, max_poll_records=1) as consumer:
        consumer.assign([(topic, 0)])
        read(consumer, 1)
        poll_until(lambda: consumer._engine.fetching.wants_room)
        consumer.seek((topic, 0), 90)
        assert [one.offset for one in read(consumer, 10)] == list(range(90, 100))
        consumer.seek((topic, 0), 0)
        read(consumer, 1)
        poll_until(lambda: consumer._engine.fetching.wants_room)
        consumer.seek((topic, 0), 95)
        assert consumer.fetch_arrow(30).column("offset").to_pylist()[:2] == [95, 96]


@pytest.mark.parametrize("offset", [2**63, -1, "5"])
def test_impossible_offsets_are_named_in_the_error(node: ThreadBroker, offset: Any) -> None:
    with consumer_of(node) as consumer:
        consumer.assign([("a", 0)])
        with pytest.raises(ClientError, match="is not an offset"):
            consumer.seek(("a", 0), offset)


def test_interceptors_are_not_given_by_name() -> None:
    with pytest.raises(ConfigError, match="not the name"):
        Consumer("127.0.0.1:1", interceptor_classes=["org.example.Interceptor"])


def test_closing_while_another_thread_polls_is_refused_and_changes_nothing(
    node: ThreadBroker,
) -> None:
    topic = fresh_topic(node)
    with consumer_of(node) as consumer:
        consumer.assign([(topic, 0)])
        consumer.poll(0)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(consumer.poll(60)))
        thread.start()
        poll_until(lambda: consumer._engine.is_polling)
        with pytest.raises(ClientError, match="another thread"):
            consumer.close()
        produce(node.bootstrap, topic, [b"a"], 0)
        thread.join()
        assert values(found) == [b"a"]
    consumer.wakeup()


def test_an_interrupted_poll_leaves_no_tasks(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % number for number in range(50)], 0)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with consumer_of(node) as consumer:
            consumer.subscribe(topic)
            # Interrupts it at any point, from before the first connection to the middle of joining.
            for number in range(30):
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + number * 0.0005)
                with contextlib.suppress(KeyboardInterrupt):
                    consumer.poll(5, 1)
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert consumer.poll(0, 1) is not None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_topic_without_metadata_during_an_assignment_is_assigned_soon_after(
    node: ThreadBroker,
) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)

    class AssignorWithoutMetadata(RangeAssignor):
        must_fail = False

        def user_data(self, view: Any) -> bytes | None:
            if self.must_fail:
                self.must_fail = False
                node.fail_next("Metadata", "LEADER_NOT_AVAILABLE")
            return super().user_data(view)

    assignor = AssignorWithoutMetadata()
    with consumer_of(node, partition_assignment_strategy=[assignor]) as consumer:
        consumer.subscribe(topic)
        assert values(read(consumer, 1)) == [b"a"]
        assignor.must_fail = True
        consumer._do(consumer._engine.group.step, RejoinNeeded("a test wants it"))  # type: ignore[union-attr]
        poll_until(lambda: not assignor.must_fail, consumer)
        produce(node.bootstrap, topic, [b"b"], 0)
        assert values(read(consumer, 1)) == [b"b"]


def test_the_leader_watches_the_topics_of_other_members(node: ThreadBroker) -> None:
    own, others, group = fresh_topic(node), fresh_topic(node), fresh_name("group")
    settings = {"group_id": group, "metadata_max_age_ms": 100, "heartbeat_interval_ms": 50}
    with consumer_of(node, **settings) as leader, consumer_of(node, **settings) as other:
        leader.subscribe(own)
        poll_until(lambda: bool(leader.assignment()), leader)
        other.subscribe(others)
        poll_until(lambda: bool(other.assignment() and leader.assignment()), leader, other)
        with Admin(node.bootstrap) as admin:
            admin.create_partitions({others: 3})
        poll_until(lambda: len(other.assignment()) == 3, leader, other)
