"""Which threads, processes and event loops may share a client, as docs/how-to/clients.md says."""

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from client.clusters import fresh_topic
from client.consumed import fresh_name

import moldau
from moldau import aio
from moldau.errors import ClientError, ClosedError
from moldau.testing import ThreadBroker, broker

THREADS = 8
OWN_THREADS = {"moldau-producer", "moldau-consumer", "moldau-admin"}


def test_threads_share_a_producer_and_an_admin_client(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    together = threading.Barrier(THREADS)
    with moldau.Producer(node.bootstrap) as producer, moldau.Admin(node.bootstrap) as admin:

        def work(number: int) -> int:
            together.wait()
            for turn in range(50):
                producer.send(topic, b"%d %d" % (number, turn))
            producer.flush(60)
            return sum(one == topic for _ in range(10) for one in admin.describe_topics([topic]))

        with ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(work, range(THREADS))) == [10] * THREADS
    with moldau.Consumer(node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found: list[bytes] = []
        while len(found) < 50 * THREADS:
            found += [record.value for record in consumer.poll(1)]
    for number in range(THREADS):
        mine = [value for value in found if value.startswith(b"%d " % number)]
        assert mine == [b"%d %d" % (number, turn) for turn in range(50)]


def test_a_consumer_is_for_one_thread_at_a_time(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with moldau.Consumer(node.bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(consumer.poll, 60)
            refused: list[Exception] = []
            while not refused:
                try:
                    consumer.poll(0)
                except ClientError as error:
                    refused.append(error)
            assert "another thread is using this consumer" in str(refused[0])
            consumer.wakeup()
            with pytest.raises(ClientError, match="wakeup"):
                waiting.result(60)
        # One after the other is fine.
        assert consumer.poll(0) == []


_FORKS = """
import os, sys
import moldau
from moldau.errors import ClosedError

kind, bootstrap, topic = sys.argv[1:]
client = {
    "producer": lambda: moldau.Producer(bootstrap),
    "consumer": lambda: moldau.Consumer(bootstrap),
    "admin": lambda: moldau.Admin(bootstrap),
}[kind]()
use = {
    "producer": lambda one: one.send(topic, b"x").result(60),
    "consumer": lambda one: one.partitions_for(topic),
    "admin": lambda one: one.list_topics(),
}[kind]
use(client)
child = os.fork()
if not child:
    try:
        use(client)
    except ClosedError as error:
        assert "create one in each process" in str(error), error
    else:
        os._exit(3)
    client.close()
    own = type(client)(bootstrap)
    use(own)
    own.close()
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
use(client)
client.close()
"""


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
def test_a_forked_process_makes_its_own_client_and_the_parents_still_works(
    node: ThreadBroker, kind: str
) -> None:
    command = [sys.executable, "-c", _FORKS, kind, node.bootstrap, fresh_topic(node)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("kind", ["Producer", "Consumer", "Admin"])
def test_an_asyncio_client_belongs_to_one_event_loop(node: ThreadBroker, kind: str) -> None:
    topic = fresh_topic(node)
    client: Any = getattr(aio, kind)(node.bootstrap)

    async def use() -> object:
        if kind == "Producer":
            return await (await client.send(topic, b"x"))
        return await (client.partitions_for(topic) if kind == "Consumer" else client.list_topics())

    async def first() -> None:
        await use()
        with pytest.raises(ClientError, match="event loop"):
            await asyncio.to_thread(asyncio.run, use())
        await use()
        await client.close()
        with pytest.raises(ClosedError):
            await use()

    asyncio.run(first())


def test_closed_clients_leave_no_threads_or_sockets() -> None:
    """Neither tasks, threads nor descriptors, of both kinds of clients."""

    async def use(bootstrap: str, topic: str) -> set[asyncio.Task[Any]]:
        async with (
            aio.Producer(bootstrap) as producer,
            aio.Consumer(bootstrap, group_id=fresh_name("g")) as consumer,
            aio.Admin(bootstrap) as admin,
        ):
            await (await producer.send(topic, b"x"))
            consumer.subscribe(topic)
            await consumer.poll(0.1)
            await admin.list_topics()
        current = asyncio.current_task()
        return {task for task in asyncio.all_tasks() if task is not current}

    with broker(process=True) as node:
        topic = fresh_name("leaks")
        node.create_topic(topic)
        counts = []
        for _ in range(3):
            assert asyncio.run(use(node.bootstrap, topic)) == set()
            with (
                moldau.Producer(node.bootstrap) as producer,
                moldau.Consumer(node.bootstrap, group_id=fresh_name("g")) as consumer,
                moldau.Admin(node.bootstrap) as admin,
            ):
                producer.send(topic, b"x").result(60)
                consumer.subscribe(topic)
                consumer.poll(0.1)
                admin.list_topics()
            assert not [one for one in threading.enumerate() if one.name in OWN_THREADS]
            counts.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208 - a count is enough
        assert counts[1] == counts[2]
