"""Blocking clients that are dropped without being closed warn, and leave no threads or sockets."""

import gc
import threading

import pytest
from client.consumed import consumer_of, fresh_name, fresh_topic, poll_until, read, values
from support.waiting import wait_for

from moldau import Admin, Consumer, Producer
from moldau.protocol.errors import KafkaError
from moldau.testing import ThreadBroker

PATIENCE_S = 60.0


def threads_named(name: str) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == name}


@pytest.mark.parametrize("use", ["producer", "consumer", "admin"])
def test_a_dropped_client_warns_and_ends_its_thread(node: ThreadBroker, use: str) -> None:
    topic = fresh_topic(node)
    before = threads_named(f"moldau-{use}")

    def drop() -> None:
        if use == "producer":
            Producer(node.bootstrap).send(topic, b"x").result(PATIENCE_S)
        elif use == "consumer":
            consumer = Consumer(node.bootstrap, group_id=fresh_name("g"))
            consumer.subscribe(topic)
            consumer.poll(0.1)
        else:
            Admin(node.bootstrap).list_topics()

    def drop_and_collect() -> None:
        drop()
        gc.collect()

    with pytest.warns(ResourceWarning, match=f"{use.title()} object at .* was not closed"):
        drop_and_collect()
    wait_for(lambda: threads_named(f"moldau-{use}") <= before, "its thread to end")


def test_a_dropped_producer_still_sends_its_records(node: ThreadBroker) -> None:
    topic = fresh_topic(node)

    def drop() -> None:
        Producer(node.bootstrap, linger_ms=500).send_many(topic, [b"a", b"b", b"c"], partition=0)
        gc.collect()

    with pytest.warns(ResourceWarning, match="was not closed"):
        drop()
    with consumer_of(node, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 3)) == [b"a", b"b", b"c"]


def test_a_dropped_member_leaves_its_group(node: ThreadBroker) -> None:
    topic, group = fresh_topic(node), fresh_name("g")

    def drop() -> None:
        consumer = Consumer(node.bootstrap, group_id=group, session_timeout_ms=45_000)
        consumer.subscribe(topic)
        poll_until(lambda: bool(consumer.assignment()), consumer)

    def drop_and_collect() -> None:
        drop()
        gc.collect()

    def is_empty(admin: Admin) -> bool:
        found = admin.describe_groups([group])[group]
        assert not isinstance(found, KafkaError)
        return not found.members

    with pytest.warns(ResourceWarning, match="was not closed"):
        drop_and_collect()
    with Admin(node.bootstrap) as admin:
        wait_for(lambda: is_empty(admin), "its group to be empty")


def test_settings_that_are_refused_leave_no_thread(node: ThreadBroker) -> None:
    before = threading.active_count()
    for make in (Producer, Consumer, Admin):
        with pytest.raises(Exception, match="bogus"):
            make(node.bootstrap, config={"bogus": 1})
    gc.collect()
    assert threading.active_count() <= before
