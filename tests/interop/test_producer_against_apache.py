"""Our producer on Apache Kafka 4.3.1: the tests for Moldau hold there too."""

from collections.abc import Iterator
from typing import Any

import pytest
from client.produced import PATIENCE_S, numbered
from client.producer_cases import *  # noqa: F403 - these are the tests
from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker
from support.running_node import fresh_name

from moldau import Producer
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def node(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(apache, tmp_path_factory.mktemp("apache")) as running:
        running.format()
        running.start()
        yield running


@pytest.fixture
def bootstrap(node: LiveBroker) -> str:
    return node.address


def test_a_killed_broker_gets_the_rest_once_and_in_order(node: LiveBroker) -> None:
    topic = fresh_name("producer")
    node.create_topic(topic, 2)
    quick: dict[str, Any] = {
        "retry_backoff_ms": 20,
        "reconnect_backoff_ms": 20,
        "retry_backoff_max_ms": 200,
    }
    with Producer(node.address, batch_size=200, linger_ms=0, **quick) as producer:
        expected = numbered(4_000)
        deliveries = []
        for number, value in enumerate(expected):
            deliveries.append(producer.send(topic, value, partition=number % 2))
            if number == 1_500:
                node.kill()
                node.start()
        producer.flush(PATIENCE_S)
        assert all(one.exception(0) is None for one in deliveries)
    places = [TopicPartition(topic, number) for number in range(2)]
    served = node.read(places, committed=True)
    for number, place in enumerate(places):
        assert [row.value for row in served[place]] == expected[number::2]
