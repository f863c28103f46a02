"""Groups and transactions whose coordinator dies, and clients whose brokers have all moved or do
not answer.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from client.lossy_proxy import LossyProxy
from interop.peers.live_cluster import BROKER_IDS, Disturbance, LiveCluster
from interop.peers.traffic import PATIENCE_S, QUICK, nothing_stays

from moldau import Admin, Consumer, Producer, aio
from moldau.core.coordinator.placement import partition_for
from moldau.errors import ErrorCode, KafkaError, MoldauError, MustAbortError
from moldau.protocol.enums import CoordinatorType
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

COUNT = 3_000
GROUPS_TOPIC = "__consumer_offsets"


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    with nothing_stays():
        yield


def fill(cluster: LiveCluster, topic: str, partitions: int = 2) -> list[bytes]:
    values = [b"%06d" % number for number in range(COUNT)]
    with Producer(cluster.bootstrap) as producer:
        for number in range(partitions):
            producer.send_many(topic, values, partition=number).result(PATIENCE_S)
    return values


class Listener:
    def __init__(self) -> None:
        self.lost: list[Any] = []
        self.assigned = 0

    def on_partitions_assigned(self, partitions: list[Any]) -> None:
        self.assigned += len(partitions)

    def on_partitions_lost(self, partitions: list[Any]) -> None:
        self.lost += partitions


def read_with_a_group(
    cluster: LiveCluster, topic: str, group: str, disturb: Callable[[], object]
) -> None:
    """Commits after every poll; the coordinator dies in the meantime."""
    values = fill(cluster, topic)
    found: dict[int, list[bytes]] = {0: [], 1: []}
    listener = Listener()
    settings: dict[str, Any] = {
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    deadline = time.monotonic() + PATIENCE_S
    with Consumer(cluster.bootstrap, max_poll_records=50, **settings, **QUICK) as consumer:
        consumer.subscribe(topic, listener=listener)
        disturbance: Disturbance | None = None
        while sum(map(len, found.values())) < 2 * COUNT:
            assert time.monotonic() < deadline, {k: len(v) for k, v in found.items()}
            for record in consumer.poll(0.5):
                found[record.partition].append(record.value)
            consumer.commit()
            if disturbance is None and sum(map(len, found.values())) > COUNT // 2:
                disturbance = Disturbance(disturb)
        assert disturbance is not None
        disturbance.finish()
        consumer.commit()
        committed = consumer.committed([(topic, 0), (topic, 1)])
        assert [at.offset for at in committed.values() if at] == [COUNT, COUNT]
        # The group outlived its coordinator: no member had to rejoin.
        assert (listener.assigned, listener.lost) == (2, [])
    assert found == {0: values, 1: values}


def test_a_group_outlives_its_killed_coordinator(apache_cluster: LiveCluster, name: str) -> None:
    apache_cluster.create_topic(name, 2)
    group = f"group-{name}"
    read_with_a_group(
        apache_cluster,
        name,
        group,
        lambda: apache_cluster.kill(apache_cluster.coordinator(group)),
    )


def test_a_group_follows_a_coordinator_that_stops(apache_cluster: LiveCluster, name: str) -> None:
    apache_cluster.create_topic(name, 2)
    group = f"group-{name}"
    read_with_a_group(
        apache_cluster,
        name,
        group,
        lambda: apache_cluster.stop(apache_cluster.coordinator(group)),
    )


def test_automatic_commits_find_the_new_coordinator(apache_cluster: LiveCluster, name: str) -> None:
    apache_cluster.create_topic(name, 2)
    values = fill(apache_cluster, name)
    settings: dict[str, Any] = {"group_id": name, "auto_offset_reset": "earliest"}

    async def part(count: int) -> list[bytes]:
        found: list[bytes] = []
        async with aio.Consumer(
            apache_cluster.bootstrap, auto_commit_interval_ms=50, max_poll_records=50, **settings
        ) as consumer:
            consumer.subscribe(name)
            while len(found) < count:
                found += [record.value for record in await consumer.poll(0.5)]
                if len(found) > count // 2 and len(apache_cluster.alive) == len(BROKER_IDS):
                    victim = await asyncio.to_thread(apache_cluster.coordinator, name)
                    await asyncio.to_thread(apache_cluster.kill, victim)
        return found

    both = asyncio.run(part(COUNT))
    apache_cluster.heal()
    both += asyncio.run(part(2 * COUNT - len(both)))
    assert sorted(both) == sorted(values * 2)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_transactions_survive_their_coordinator(
    apache_cluster: LiveCluster, name: str, how: str
) -> None:
    apache_cluster.create_topic(name, 2)
    group = f"group-{name}"
    committed: list[bytes] = []

    def coordinator() -> int:
        return apache_cluster.coordinator(name, CoordinatorType.TRANSACTION)

    with Producer(apache_cluster.bootstrap, transactional_id=name, **QUICK) as producer:
        producer.init_transactions()
        for number in range(40):
            if number in {10, 25}:
                # Between two transactions, and then in the middle of one.
                apache_cluster.heal()
            if number == 10:
                getattr(apache_cluster, how)(coordinator())
            value = b"%06d" % number
            while True:
                try:
                    producer.begin_transaction()
                    for partition in (0, 1):
                        producer.send(name, value, partition=partition)
                    if number == 25:
                        getattr(apache_cluster, how)(coordinator())
                    producer.send_offsets({TopicPartition(name, 0): number + 1}, group)
                    if number % 5 == 4:
                        producer.flush(PATIENCE_S)
                        producer.abort_transaction()
                    else:
                        producer.commit_transaction()
                        committed.append(value)
                    break
                except MustAbortError:
                    producer.abort_transaction()
    with Consumer(
        apache_cluster.bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as consumer:
        places = [TopicPartition(name, number) for number in (0, 1)]
        assert consumer.committed(places)[places[0]].offset == 39  # type: ignore[union-attr]
        consumer.assign(places)
        consumer.seek_to_beginning()
        found: dict[int, list[bytes]] = {0: [], 1: []}
        ends = consumer.end_offsets(places)
        while any(consumer.position(one) < end for one, end in ends.items()):
            for record in consumer.poll(0.5):
                found[record.partition].append(record.value)
    assert found == {0: committed, 1: committed}


def test_a_transaction_outlives_all_leaders_of_its_partitions(
    apache_cluster: LiveCluster, name: str
) -> None:
    apache_cluster.create_topic(name, 2, leaders=[1, 1])

    async def work() -> None:
        async with (
            aio.Producer(apache_cluster.bootstrap, transactional_id=name, **QUICK) as producer,
            producer.transaction(),
        ):
            for number in range(200):
                _ = await producer.send(name, b"%d" % number, partition=number % 2)
            await asyncio.to_thread(apache_cluster.kill, 1)
            for number in range(200, 400):
                _ = await producer.send(name, b"%d" % number, partition=number % 2)

    asyncio.run(work())
    with Consumer(
        apache_cluster.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(name, 0), (name, 1)])
        found: dict[int, list[int]] = {0: [], 1: []}
        while sum(map(len, found.values())) < 400:
            for record in consumer.poll(0.5):
                found[record.partition].append(int(record.value))
    assert found == {0: list(range(0, 400, 2)), 1: list(range(1, 400, 2))}


# All brokers at other addresses


def test_clients_bootstrap_again_when_all_brokers_have_moved(
    apache_cluster: LiveCluster, name: str
) -> None:
    """The bootstrap address leads to a running broker."""
    apache_cluster.create_topic(name, 2)
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(LossyProxy())
        proxy.serve(apache_cluster.ports[1])
        address = f"127.0.0.1:{proxy.port}"
        producer = stack.enter_context(Producer(address, **QUICK))
        consumer = stack.enter_context(
            Consumer(address, group_id=name, auto_offset_reset="earliest", **QUICK)
        )
        admin = stack.enter_context(Admin(address, **QUICK))
        consumer.subscribe(name)
        expected = []
        found: list[bytes] = []
        for turn in range(3):
            values = [b"%d-%d" % (turn, number) for number in range(200)]
            pending = [producer.send(name, value, value) for value in values]
            expected += values
            while len(found) < len(expected):
                found += [record.value for record in consumer.poll(0.5)]
            assert all(one.exception(PATIENCE_S) is None for one in pending)
            assert name in admin.list_topics()
            apache_cluster.change_ports(*BROKER_IDS)
            proxy.redirect_to(apache_cluster.ports[2])
        assert sorted(found) == sorted(expected)


def test_a_broker_that_restarted_at_another_address_is_found(
    apache_cluster: LiveCluster, name: str
) -> None:
    """The other brokers report its new address, and nothing else has changed."""
    moved = apache_cluster.coordinator(name)
    with (
        Admin(apache_cluster.bootstrap, **QUICK) as admin,
        Admin(apache_cluster.bootstrap, **QUICK) as other,
    ):
        assert admin.describe_log_dirs([moved])
        assert isinstance(other.describe_groups([name])[name], KafkaError)
        apache_cluster.change_ports(moved)
        partition = partition_for(name, len(apache_cluster.partitions(GROUPS_TOPIC)))
        apache_cluster.move_leaders(GROUPS_TOPIC, {partition: moved})
        assert apache_cluster.coordinator(name) == moved
        assert admin.describe_log_dirs([moved])
        described = other.describe_groups([name])[name]
        assert isinstance(described, KafkaError)
        assert described.code is ErrorCode.GROUP_ID_NOT_FOUND


# No broker answers


def took(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_no_call_exceeds_its_timeout(apache_cluster: LiveCluster, name: str) -> None:
    """All brokers keep their connections open and do not answer."""
    slack_s = 5.0
    apache_cluster.create_topic(name, 1)
    fill(apache_cluster, name, 1)
    given: dict[str, Any] = {"request_timeout_ms": 1_000, **QUICK}
    with (
        Producer(apache_cluster.bootstrap, delivery_timeout_ms=3_000, linger_ms=0, **given) as p,
        Consumer(
            apache_cluster.bootstrap, group_id=name, default_api_timeout_ms=2_000, **given
        ) as consumer,
        Admin(apache_cluster.bootstrap, default_api_timeout_ms=2_000, **given) as admin,
    ):
        consumer.subscribe(name)
        p.send(name, b"before").result(PATIENCE_S)
        admin.list_topics()
        while not consumer.assignment():
            consumer.poll(0.1)
        for broker in BROKER_IDS:
            apache_cluster.freeze(broker)

        def produce() -> None:
            with pytest.raises(KafkaError):
                p.send(name, b"nobody").result(PATIENCE_S)

        def ask() -> None:
            with pytest.raises(MoldauError):
                admin.list_topics()

        def commit() -> None:
            with pytest.raises(MoldauError):
                consumer.commit({(name, 0): 1})

        assert took(produce) < 3 + slack_s
        assert took(lambda: consumer.poll(1.0)) < 1 + slack_s
        assert took(ask) < 2 + slack_s
        assert took(commit) < 2 + slack_s
        assert took(lambda: p.close(1.0)) < 1 + slack_s
        assert took(lambda: consumer.close(1.0)) < 1 + slack_s
        assert took(admin.close) < slack_s
        for broker in BROKER_IDS:
            apache_cluster.thaw(broker)
