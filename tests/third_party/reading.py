"""Reading with any library until the expected records have arrived."""

from collections.abc import Iterator
from contextlib import contextmanager

from support.waiting import wait_for
from third_party.libraries import (
    CLIENT_TIMEOUT_S,
    ConsumerOptions,
    Library,
    LibraryConsumer,
    Received,
)

from moldau.types import TopicPartition


@contextmanager
def opened(library: Library, address: str, options: ConsumerOptions) -> Iterator[LibraryConsumer]:
    consumer = library.consumer(address, options)
    try:
        yield consumer
    finally:
        consumer.close()


def read_count(consumer: LibraryConsumer, count: int) -> list[Received]:
    """The next `count` records, sorted by partition and offset; more would be an error."""
    received: list[Received] = []
    wait_for(
        lambda: len(received) >= count,
        lambda: f"{count} records, {len(received)} came",
        CLIENT_TIMEOUT_S,
        lambda: received.extend(consumer.poll()),
    )
    assert len(received) == count
    return sorted(received, key=lambda one: (one.partition, one.offset))


def read_topic(
    library: Library, address: str, topic: str, count: int, partitions: int = 1
) -> list[Received]:
    """All records of a topic, without a group."""
    with opened(library, address, ConsumerOptions()) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        return read_count(consumer, count)
