"""Consumers where nobody looks: what is paused and in the way, topics that are made again."""

import time
from pathlib import Path

import pytest
from client.consumed import consumer_of, fresh_topic, produce, read, values

from moldau import Admin
from moldau.errors import KafkaError
from moldau.testing import ThreadBroker, broker

LARGE = [bytes(10_000)] * 100


def test_what_is_paused_is_not_in_the_way_of_others(node: ThreadBroker) -> None:
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


def test_a_seek_while_all_is_paused_leaves_nothing_behind(node: ThreadBroker) -> None:
    moved, other = fresh_topic(node), fresh_topic(node)
    for topic in (moved, other):
        produce(node.bootstrap, topic, LARGE, 0)
    with consumer_of(node, max_partition_fetch_bytes=50_000, max_poll_records=1) as consumer:
        consumer.assign([(moved, 0), (other, 0)])
        read(consumer, 5)
        consumer.pause()
        consumer.seek((moved, 0), 0)
        consumer.resume((other, 0))
        read(consumer, 1)
        consumer.resume((moved, 0))
        seen = [one.offset for one in read(consumer, 190) if one.topic == moved]
        assert seen[:50] == list(range(50))


def test_a_topic_that_was_made_again_is_read_on(tmp_path: Path) -> None:
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


def test_an_error_that_stays_is_not_asked_for_again_at_once(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with consumer_of(node, retry_backoff_ms=50, retry_backoff_max_ms=50) as consumer:
        consumer.assign([(topic, 0)])
        node.fail_next("Fetch", "TOPIC_AUTHORIZATION_FAILED", 1_000)
        began, told = time.monotonic(), 0
        while told < 5:
            with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                consumer.poll(30)
            told += 1
        # Kafka's pauses are up to a fifth shorter than they are set.
        assert time.monotonic() - began > 3 * 0.04
