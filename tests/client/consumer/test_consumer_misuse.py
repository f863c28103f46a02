"""Wrong use of a consumer raises an error of one clear line."""

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from client.consumed import consumer_of, fresh_name, fresh_topic, poll_until, produce, read

import moldau.aio
from moldau import Consumer
from moldau.client.consumer.errors import CommitFailedError, WakeupError
from moldau.client.errors import ClientError, ClosedError
from moldau.testing import ThreadBroker

Use = Callable[[Consumer], Any]


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda it: it.subscribe(["a", 3]), "at least one topic name"),
        (lambda it: it.subscribe([]), "at least one topic name"),
        (lambda it: it.assign("topic"), "expected a partition, (topic, number), got 't'"),
        (lambda it: it.assign([("topic", "0")]), "expected a partition, (topic, number)"),
        (lambda it: it.assign([("topic", -1)]), "expected a partition, (topic, number)"),
        (lambda it: it.assign(7), "expected a list of partitions, (topic, number), got 7"),
        (lambda it: it.seek(("t", 0), "5"), "'5' is not an offset"),
        (lambda it: it.seek(("t", 0), -1), "-1 is not an offset"),
        (lambda it: it.seek(("t", 0), True), "True is not an offset"),
        (lambda it: it.position("t"), "expected a partition, (topic, number), got 't'"),
        (lambda it: it.commit({("t", 0): "5"}), "'5' is not an offset to commit for t-0"),
        (lambda it: it.commit({("t", 0): -5}), "-5 is not an offset to commit for t-0"),
        (lambda it: it.commit([("t", 0)]), "expected a dict of partitions and offsets"),
        (lambda it: it.poll("1"), "timeout='1' is not a number of seconds"),
        (lambda it: it.poll(-1), "timeout=-1 is negative"),
        (lambda it: it.poll(1, -5), "max_records=-5"),
        (lambda it: it.poll(1, 0), "max_records=0"),
        (lambda it: it.poll(1, "5"), "max_records='5'"),
        (lambda it: it.offsets_for_times({("t", 0): "now"}), "'now' is not a time in milliseconds"),
        (lambda it: it.partitions_for(5), "5 is not a topic name"),
        (lambda it: it.fetch_arrow(1, columns=["vlue"]), "unknown column vlue"),
        (lambda it: it.fetch_arrow(1, columns=[]), "no column chosen"),
    ],
)
def test_wrong_types_and_values_are_named_in_the_error(
    node: ThreadBroker, use: Use, problem: str
) -> None:
    with consumer_of(node) as consumer:
        with pytest.raises(ClientError) as caught:
            use(consumer)
        assert problem in str(caught.value)
        assert "\n" not in str(caught.value)


async def test_the_asyncio_consumer_raises_the_same_errors(node: ThreadBroker) -> None:
    async with moldau.aio.Consumer(node.bootstrap, group_id=fresh_name("group")) as consumer:
        with pytest.raises(ClientError, match="'5' is not an offset"):
            consumer.seek(("t", 0), "5")  # type: ignore[arg-type]
        with pytest.raises(ClientError, match="expected a partition"):
            consumer.assign([5])  # type: ignore[list-item]
        with pytest.raises(ClientError, match="max_records=0"):
            await consumer.poll(1, 0)


@pytest.mark.parametrize(
    "use",
    [
        lambda it: it.poll(0),
        lambda it: next(iter(it)),
        lambda it: it.fetch_arrow(0),
        lambda it: it.commit(),
        lambda it: it.commit_async(),
        lambda it: it.seek(("t", 0), 1),
        lambda it: it.pause(),
        lambda it: it.position(("t", 0)),
        lambda it: it.assign([("t", 0)]),
        lambda it: it.unsubscribe(),
        lambda it: it.end_offsets([("t", 0)]),
    ],
)
def test_a_closed_consumer_refuses_every_call(node: ThreadBroker, use: Use) -> None:
    consumer = consumer_of(node)
    consumer.close()
    with pytest.raises(ClosedError, match="closed"):
        use(consumer)


def test_every_call_of_a_second_thread_is_refused(node: ThreadBroker) -> None:
    with consumer_of(node) as consumer:
        consumer.assign([(fresh_topic(node), 0)])

        def read_on() -> None:
            with pytest.raises(WakeupError):
                consumer.poll(60)

        poller = threading.Thread(target=read_on)
        poller.start()
        poll_until(lambda: consumer._engine.is_polling)
        for use in (consumer.poll, consumer.commit, consumer.fetch_arrow, consumer.pause):
            with pytest.raises(ClientError, match="another thread is using this consumer"):
                use()
        consumer.wakeup()
        poller.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_cannot_use_its_parents_consumer(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a", b"b"], 0)
    with consumer_of(node, max_poll_records=1) as consumer:
        consumer.subscribe(topic)
        read(consumer, 1)
        readable, writable = os.pipe()
        child = os.fork()
        if not child:
            try:
                consumer.poll(1)
                text = "it polled"
            except ClientError as error:
                text = str(error)
            finally:
                consumer.close()
                os.write(writable, text.encode())
                os._exit(0)
        os.close(writable)
        with os.fdopen(readable, "rb") as answer:
            assert b"fork" in answer.read()
        os.waitpid(child, 0)
        # The child's close has not touched the parent's connections.
        assert [one.value for one in read(consumer, 1)] == [b"b"]


def test_a_member_that_polled_too_late_cannot_commit_even_as_the_only_member(
    node: ThreadBroker,
) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a", b"b"], 0)
    settings = {"max_poll_interval_ms": 300, "heartbeat_interval_ms": 50}
    with consumer_of(node, enable_auto_commit=False, **settings) as consumer:
        consumer.subscribe(topic)
        read(consumer, 2)
        poll_until(lambda: consumer.metrics()["polls_too_late"] == 1)
        with pytest.raises(CommitFailedError, match=r"not a member now.*max\.poll\.interval\.ms"):
            consumer.commit()
        assert consumer.committed([(topic, 0)]) == {(topic, 0): None}
