"""A transaction outlives a restart of its node, with each client library."""

import logging
from collections.abc import Callable

import pytest
from interop.live_broker import LiveNode
from third_party.aiokafka_library import AiokafkaLibrary
from third_party.confluent_library import ConfluentLibrary
from third_party.kafka_python_library import KafkaPythonLibrary, collect_what_was_left_open
from third_party.libraries import Library, LibraryTransactions

from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

LIBRARIES: tuple[Library, ...] = (ConfluentLibrary(), AiokafkaLibrary(), KafkaPythonLibrary())
TOPIC = "topic"
PARTITIONS = 3
ENDS = ("committed", "aborted")


@pytest.fixture(autouse=True)
def says_little(caplog: pytest.LogCaptureFixture) -> None:
    """kafka-python's log records of connection attempts would keep their sockets beyond
    the test.
    """
    caplog.set_level(logging.CRITICAL, logger="kafka")


def send_everywhere(producer: LibraryTransactions, value: str) -> None:
    for index in range(PARTITIONS):
        producer.send(TOPIC, value.encode(), partition=index)
    producer.flush()


@pytest.mark.parametrize("interrupt", [LiveNode.stop, LiveNode.kill], ids=["stopped", "killed"])
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_a_transaction_from_before_a_restart_is_ended_after_it(
    start_node: Callable[[], LiveNode], library: Library, interrupt: Callable[[LiveNode], None]
) -> None:
    node = start_node()
    node.create_topic(TOPIC, PARTITIONS)
    producers = {end: library.transactions(node.address, end) for end in ENDS}
    try:
        for end, producer in producers.items():
            producer.begin()
            send_everywhere(producer, f"{end} before")
        interrupt(node)
        node.start()
        for end, producer in producers.items():
            send_everywhere(producer, f"{end} after")
        producers["committed"].commit()
        producers["aborted"].abort()
    finally:
        for producer in producers.values():
            producer.close()
        collect_what_was_left_open()
    names = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    for records in node.read(names, committed=True).values():
        assert [record.value for record in records] == [b"committed before", b"committed after"]
    for records in node.read(names).values():
        assert len(records) == 4
