"""Committing, seeking and looking up offsets, in each library."""

import pytest
from support.running_node import fresh_name
from support.wire_client import WireClient, create_topic
from third_party.libraries import (
    Committed,
    ConsumerOptions,
    Library,
    LibraryConsumer,
    ProducerOptions,
    Sent,
)
from third_party.reading import opened, read_count

from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.types import TopicPartition

FIRST_MS = 1_700_000_000_000
STEP_MS = 1_000
COUNT = 20


@pytest.fixture
def filled(address: str, topic: str, library: Library) -> TopicPartition:
    """A partition with twenty records, a second apart, in batches of five."""
    for start in range(0, COUNT, 5):
        records = [
            Sent(value=b"%d" % number, partition=0, timestamp=FIRST_MS + STEP_MS * number)
            for number in range(start, start + 5)
        ]
        library.produce(address, topic, records, ProducerOptions(codec="gzip"))
    return TopicPartition(topic, 0)


def values(consumer: LibraryConsumer, count: int) -> list[int]:
    return [int(one.value or b"") for one in read_count(consumer, count)]


def test_beginning_and_end_are_those_of_the_log(
    address: str, library: Library, filled: TopicPartition
) -> None:
    with opened(library, address, ConsumerOptions()) as consumer:
        consumer.assign([filled])
        assert consumer.beginning_offset(filled) == 0
        assert consumer.end_offset(filled) == COUNT


@pytest.mark.parametrize("offset", [0, 3, 7, COUNT - 1])
def test_a_seek_into_the_middle_of_a_batch_reads_from_there(
    address: str, library: Library, filled: TopicPartition, offset: int
) -> None:
    with opened(library, address, ConsumerOptions()) as consumer:
        consumer.assign([filled])
        read_count(consumer, COUNT)
        consumer.seek(filled, offset)
        assert values(consumer, COUNT - offset) == list(range(offset, COUNT))
        assert consumer.position(filled) == COUNT


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        (0, 0),
        (FIRST_MS, 0),
        (FIRST_MS + 1, 1),
        (FIRST_MS + 7 * STEP_MS, 7),
        (FIRST_MS + 7 * STEP_MS - 1, 7),
        (FIRST_MS + (COUNT - 1) * STEP_MS, COUNT - 1),
        (FIRST_MS + COUNT * STEP_MS, None),
    ],
)
def test_a_time_finds_the_first_record_that_is_not_older(
    address: str, library: Library, filled: TopicPartition, timestamp: int, offset: int | None
) -> None:
    with opened(library, address, ConsumerOptions()) as consumer:
        consumer.assign([filled])
        assert consumer.offset_for_time(filled, timestamp) == offset


def test_a_paused_partition_returns_nothing_until_resumed(address: str, library: Library) -> None:
    topic = fresh_name("paused")
    create_topic(address, topic, partitions=2)
    sent = [Sent(value=b"%d" % index, partition=index) for index in (0, 1)] * 10
    library.produce(address, topic, sent, ProducerOptions())
    held, open_one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with opened(library, address, ConsumerOptions()) as consumer:
        consumer.assign([held, open_one])
        consumer.pause(held)
        assert {one.partition for one in read_count(consumer, 10)} == {open_one}
        consumer.resume(held)
        assert {one.partition for one in read_count(consumer, 10)} == {held}


def test_a_group_resumes_where_it_committed(
    address: str, library: Library, filled: TopicPartition
) -> None:
    options = ConsumerOptions(group=fresh_name("group"))
    with opened(library, address, options) as consumer:
        consumer.subscribe([filled.topic])
        assert consumer.committed(filled) is None
        assert values(consumer, COUNT) == list(range(COUNT))
        consumer.commit({filled: Committed(12)})
    with opened(library, address, options) as consumer:
        consumer.subscribe([filled.topic])
        assert values(consumer, COUNT - 12) == list(range(12, COUNT))
        assert consumer.committed(filled) == 12
        consumer.commit()
        assert consumer.committed(filled) == COUNT


def test_a_commits_metadata_is_kept(address: str, library: Library, filled: TopicPartition) -> None:
    group = fresh_name("group")
    note = "seen by příklad, " + "x" * 1_000
    with opened(library, address, ConsumerOptions(group=group)) as consumer:
        consumer.subscribe([filled.topic])
        read_count(consumer, COUNT)
        consumer.commit({filled: Committed(5, note)})
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=filled.topic, partition_indexes=[0])],
            )
        ]
    )
    with WireClient(address) as client:
        (answer,) = client.ask(request, version=9).groups
    (found,) = answer.topics[0].partitions
    # confluent-kafka sends the byte that ends a string in C, too; it is kept like any other.
    assert (found.committed_offset, found.metadata.rstrip("\0"), found.error_code) == (5, note, 0)


def test_a_commit_may_go_back(address: str, library: Library, filled: TopicPartition) -> None:
    with opened(library, address, ConsumerOptions(group=fresh_name("group"))) as consumer:
        consumer.subscribe([filled.topic])
        read_count(consumer, COUNT)
        consumer.commit({filled: Committed(15)})
        consumer.commit({filled: Committed(4)})
        assert consumer.committed(filled) == 4


def test_an_offset_after_the_end_starts_again_at_the_beginning(
    address: str, library: Library, filled: TopicPartition
) -> None:
    with opened(library, address, ConsumerOptions()) as consumer:
        consumer.assign([filled])
        read_count(consumer, COUNT)
        consumer.seek(filled, COUNT + 1_000)
        assert values(consumer, COUNT) == list(range(COUNT))
