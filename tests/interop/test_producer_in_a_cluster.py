"""Our producers while leaders and coordinators of an Apache Kafka cluster move, die and stop
answering: no acknowledged record is lost or duplicated, and each partition keeps its order.
"""

from collections.abc import Callable
from typing import Any

import pytest
from client.produced import PATIENCE_S, numbered
from client.producer_cases import BlockingAioProducer
from interop.peers.live_cluster import BROKER_IDS, Disturbance, LiveCluster
from support.running_node import fresh_name

import moldau
from moldau.protocol.enums import CoordinatorType
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

QUICK = {
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "request_timeout_ms": 3_000,
}
SMALL = {"batch_size": 300, "linger_ms": 0}
LONG_S = 120


@pytest.fixture(params=["blocking", "aio"])
def make(request: pytest.FixtureRequest, apache_cluster: LiveCluster) -> Callable[..., Any]:
    face: Any = moldau.Producer if request.param == "blocking" else BlockingAioProducer
    return lambda **settings: face(apache_cluster.bootstrap, **QUICK, **settings)


def stored(cluster: LiveCluster, topic: str, partitions: int) -> dict[int, list[bytes]]:
    places = [TopicPartition(topic, number) for number in range(partitions)]
    found: dict[int, list[bytes]] = {place.partition: [] for place in places}
    with moldau.Consumer(cluster.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        for place, end in consumer.end_offsets(places).items():
            while consumer.position(place) < end:
                for record in consumer.poll(1):
                    found[record.partition].append(record.value)
    return found


def send_while(
    producer: Any, topic: str, disturbance: Callable[[], object]
) -> tuple[list[bytes], list[Any]]:
    """Sends to three partitions in turn, until the disturbance is over and a while longer."""
    values: list[bytes] = []
    deliveries: list[Any] = []

    def send(count: int) -> None:
        for value in numbered(count, len(values)):
            deliveries.append(producer.send(topic, value, partition=len(values) % 3))
            values.append(value)

    send(300)
    producer.flush(LONG_S)
    background = Disturbance(disturbance)
    while background.is_alive():
        send(30)
        deliveries[-1].result(LONG_S)
    background.finish()
    send(300)
    producer.flush(LONG_S)
    return values, deliveries


def check(cluster: LiveCluster, topic: str, values: list[bytes], deliveries: list[Any]) -> None:
    for delivery in deliveries:
        delivery.result(0)
    assert stored(cluster, topic, 3) == {number: values[number::3] for number in range(3)}


def test_leaders_move(apache_cluster: LiveCluster, make: Callable[..., Any]) -> None:
    topic = fresh_name("moved")
    apache_cluster.create_topic(topic, 3)

    def move() -> None:
        for leader in (3, 1, 2):
            apache_cluster.move_leaders(topic, dict.fromkeys(range(3), leader))

    with make(**SMALL) as producer:
        sent = send_while(producer, topic, move)
        assert producer.metrics()["batches_retried"] > 0
    check(apache_cluster, topic, *sent)


def test_a_leader_is_killed_and_restarts(
    apache_cluster: LiveCluster, make: Callable[..., Any]
) -> None:
    topic = fresh_name("killed")
    apache_cluster.create_topic(topic, 3)

    def kill() -> None:
        apache_cluster.kill(1)
        apache_cluster.wait_until_whole()
        apache_cluster.start(1)

    with make(**SMALL) as producer:
        sent = send_while(producer, topic, kill)
        assert producer.metrics()["batches_retried"] > 0
    check(apache_cluster, topic, *sent)


def test_a_leader_stops_answering(apache_cluster: LiveCluster, make: Callable[..., Any]) -> None:
    topic = fresh_name("silent")
    apache_cluster.create_topic(topic, 3)

    def freeze() -> None:
        apache_cluster.freeze(2)
        try:
            apache_cluster.wait_for_leaders(topic, {0: 1, 1: 1, 2: 3})
        finally:
            apache_cluster.thaw(2)

    with make(**SMALL) as producer:
        sent = send_while(producer, topic, freeze)
        assert producer.metrics()["batches_retried"] > 0
    check(apache_cluster, topic, *sent)


def test_records_without_keys_avoid_a_silent_broker(apache_cluster: LiveCluster) -> None:
    topic = fresh_name("avoided")
    apache_cluster.create_topic(topic, 3)
    settings: dict[str, Any] = {"partitioner_availability_timeout_ms": 100, **QUICK}
    with moldau.Producer(
        apache_cluster.bootstrap, batch_size=100, linger_ms=0, **settings
    ) as producer:
        for number in range(3):
            producer.send(topic, b"first", partition=number).result(PATIENCE_S)
        apache_cluster.freeze(2)
        try:
            # Five requests wait for its responses, and later ones are blocked.
            for _ in range(6):
                producer.send(topic, bytes(300), partition=1)
            streak = 0
            for _ in range(5_000):
                delivery = producer.send(topic, bytes(300))
                if delivery.batch.partition == 1:
                    streak = 0
                else:
                    delivery.result(PATIENCE_S)
                    streak += 1
                # A long streak cannot be chance: a lagging partition still gets some records.
                if streak == 100:
                    break
        finally:
            apache_cluster.thaw(2)
        assert streak == 100
        producer.flush(LONG_S)
        assert producer.metrics()["records_failed"] == 0


def test_the_coordinator_of_transactions_is_killed(
    apache_cluster: LiveCluster, make: Callable[..., Any]
) -> None:
    topic = fresh_name("coordinated")
    name = fresh_name("tx")
    apache_cluster.create_topic(topic, 3)
    values: list[bytes] = []
    coordinator = apache_cluster.coordinator(name, CoordinatorType.TRANSACTION)
    with make(transactional_id=name, max_block_ms=LONG_S * 1_000, **SMALL) as producer:

        def transact() -> None:
            with producer.transaction():
                for value in numbered(30, len(values)):
                    producer.send(topic, value, partition=len(values) % 3)
                    values.append(value)

        transact()
        background = Disturbance(lambda: apache_cluster.kill(coordinator))
        transact()
        background.finish()
        transact()
        background = Disturbance(lambda: apache_cluster.start(coordinator))
        while background.is_alive():
            transact()
        background.finish()
        transact()
    assert sorted(BROKER_IDS) == apache_cluster.alive
    assert stored(apache_cluster, topic, 3) == {number: values[number::3] for number in range(3)}
