"""Transactions of each library: readers see all records of one, with its offsets, or none."""

import time
from collections.abc import Callable, Iterator

import pytest
from support.running_node import fresh_name
from support.waiting import wait_for
from support.wire_client import create_topic
from third_party.libraries import (
    CLIENT_TIMEOUT_S,
    TRANSACTION_MS,
    ConsumerOptions,
    Library,
    LibraryConsumer,
    LibraryTransactions,
    ProducerOptions,
    Received,
    Sent,
)
from third_party.reading import opened, read_count

from moldau.types import TopicPartition

END = b"the end"
BIG = 3_000

Begin = Callable[..., LibraryTransactions]


@pytest.fixture
def begin(address: str, library: Library) -> Iterator[Begin]:
    """Makes producers with an open transaction."""
    made = []

    def make(
        transactional_id: str | None = None, timeout_ms: int = TRANSACTION_MS
    ) -> LibraryTransactions:
        name = transactional_id or fresh_name("transactional")
        made.append(library.transactions(address, name, timeout_ms))
        made[-1].begin()
        return made[-1]

    yield make
    for producer in made:
        producer.close()


class View:
    """The contents of a topic for readers."""

    def __init__(self, library: Library, address: str, topic: str, partitions: int = 1) -> None:
        self._library = library
        self._address = address
        self._topic = topic
        self._names = [TopicPartition(topic, index) for index in range(partitions)]

    def values(self, *, committed: bool = True) -> list[bytes | None]:
        """All values up to a last record, which is written first; no transaction may be open."""
        last = [Sent(value=END, partition=name.partition) for name in self._names]
        self._library.produce(self._address, self._topic, last, ProducerOptions())
        options = ConsumerOptions(reads_committed_only=committed)
        seen: list[Received] = []
        deadline = time.monotonic() + CLIENT_TIMEOUT_S
        with opened(self._library, self._address, options) as consumer:
            consumer.assign(self._names)
            ends = {name: consumer.end_offset(name) for name in self._names}
            while ends:
                assert time.monotonic() < deadline, f"{ends} were not reached: {seen}"
                for record in consumer.poll():
                    seen.append(record)
                    if record.offset == ends.get(record.partition, 0) - 1:
                        del ends[record.partition]
        seen.sort(key=lambda record: (record.partition, record.offset))
        return [record.value for record in seen if record.value != END]

    def end(self, *, committed: bool = True) -> int:
        """The first offset of the first partition that readers cannot read."""
        options = ConsumerOptions(reads_committed_only=committed)
        with opened(self._library, self._address, options) as consumer:
            return consumer.end_offset(self._names[0])


@pytest.fixture
def view(library: Library, address: str, topic: str) -> View:
    return View(library, address, topic)


def test_committed_records_are_read_and_aborted_ones_are_not(
    topic: str, begin: Begin, view: View
) -> None:
    producer = begin()
    for number in range(6):
        if number:
            producer.begin()
        producer.send(topic, *(b"%d-%d" % (number, place) for place in range(4)))
        if number % 2:
            # An abort may overtake unsent records.
            producer.flush()
            producer.abort()
        else:
            producer.commit()
    every = [b"%d-%d" % (number, place) for number in range(6) for place in range(4)]
    assert view.values() == [value for value in every if int(value[:1]) % 2 == 0]
    assert view.values(committed=False) == every


def test_records_after_an_open_transaction_are_read_once_it_ends(
    address: str, library: Library, topic: str, begin: Begin, view: View
) -> None:
    first, second = begin(), begin()
    first.send(topic, b"first")
    first.flush()
    second.send(topic, b"second")
    second.commit()
    assert view.end() == 0
    # A commit is acknowledged before its marker is written.
    wait_for(lambda: view.end(committed=False) == 3, "the marker")
    with opened(library, address, ConsumerOptions(reads_committed_only=True)) as reader:
        reader.assign([TopicPartition(topic, 0)])
        assert reader.poll() == []
        first.commit()
        assert [record.value for record in read_count(reader, 2)] == [b"first", b"second"]


def test_a_transaction_over_many_partitions_is_seen_as_one(
    address: str, library: Library, begin: Begin
) -> None:
    names = {fresh_name("wide"): 40, fresh_name("narrow"): 10}
    for name, partitions in names.items():
        create_topic(address, name, partitions)
    producer = begin()
    for attempt in (b"aborted", b"committed"):
        for name, partitions in names.items():
            for index in range(partitions):
                producer.send(name, attempt, b"%d" % index, partition=index)
        producer.flush()
        if attempt == b"aborted":
            producer.abort()
            producer.begin()
        else:
            producer.commit()
    for name, partitions in names.items():
        wanted = [value for n in range(partitions) for value in (b"committed", b"%d" % n)]
        assert View(library, address, name, partitions).values() == wanted


def test_many_small_transactions_follow_each_other(
    address: str, topic: str, begin: Begin, view: View
) -> None:
    producer = begin()
    for number in range(50):
        producer.send(topic, b"%d" % number)
        producer.commit()
        producer.begin()
    producer.abort()
    assert view.values() == [b"%d" % number for number in range(50)]
    # Each has written its marker, except the empty one.
    assert view.end(committed=False) == 101


def test_the_older_of_two_producers_with_one_id_is_fenced(
    library: Library, topic: str, begin: Begin, view: View
) -> None:
    name = fresh_name("transactional")
    zombie = begin(name)
    zombie.send(topic, b"zombie")
    zombie.flush()
    heir = begin(name)
    heir.send(topic, b"heir")
    with pytest.raises(library.refusal) as refused:
        zombie.commit()
    assert library.says_fenced(refused.value), repr(refused.value)
    heir.commit()
    assert view.values() == [b"heir"]


def test_records_of_a_fenced_producer_are_refused(
    library: Library, topic: str, begin: Begin, view: View
) -> None:
    name = fresh_name("transactional")
    zombie = begin(name)
    heir = begin(name)
    zombie.send(topic, b"zombie")
    with pytest.raises(library.refusal) as refused:
        zombie.flush()
    assert library.says_fenced(refused.value), repr(refused.value)
    heir.send(topic, b"heir")
    heir.commit()
    assert view.values(committed=False) == [b"heir"]


def test_a_transaction_that_takes_too_long_is_aborted(
    library: Library, topic: str, begin: Begin, view: View
) -> None:
    name = fresh_name("transactional")
    slow = begin(name, timeout_ms=1_000)
    slow.send(topic, b"slow")
    slow.flush()
    wait_for(lambda: view.end() == 2, "the end of the transaction")
    with pytest.raises(library.refusal) as refused:
        slow.commit()
    assert library.says_fenced(refused.value), repr(refused.value)
    heir = begin(name)
    heir.send(topic, b"heir")
    heir.commit()
    assert view.values() == [b"heir"]


def test_a_transaction_with_a_refused_record_is_aborted_and_repeated(
    address: str, library: Library, begin: Begin
) -> None:
    """With another producer: after a refusal each of the libraries loses its sequence in the
    partition.
    """
    topic, name = fresh_name("topic"), fresh_name("transactional")
    create_topic(address, topic, configs={"max.message.bytes": str(BIG)})
    producer = begin(name)
    producer.send(topic, b"small")
    producer.flush()
    producer.send(topic, b"v" * BIG)
    with pytest.raises(library.refusal) as refused:
        producer.flush()
    assert not library.says_fenced(refused.value)
    producer.abort()
    again = begin(name)
    again.send(topic, b"again")
    again.commit()
    assert View(library, address, topic).values() == [b"again"]


def test_a_topic_is_copied_exactly_once_despite_aborts(
    address: str, library: Library, begin: Begin
) -> None:
    """Consume, transform, produce; half of the attempts are aborted and repeated by another
    producer.
    """
    source, target, group = fresh_name("source"), fresh_name("target"), fresh_name("group")
    for name in (source, target):
        create_topic(address, name, partitions=2)
    feeder = begin()
    for index in range(2):
        feeder.send(source, *(b"%d-%d" % (index, n) for n in range(10)), partition=index)
    feeder.commit()
    options = ConsumerOptions(group=group, reads_committed_only=True)
    producer = begin()
    for ends in (producer.abort, producer.commit):
        with opened(library, address, options) as consumer:
            consumer.subscribe([source])
            taken = read_count(consumer, 20)
            for record in taken:
                assert record.value is not None
                producer.send(target, record.value + b"!", partition=record.partition.partition)
            places = {record.partition: record.offset + 1 for record in taken}
            producer.send_offsets(places, consumer.membership())
            ends()
            if ends == producer.abort:
                assert all(consumer.committed(name) is None for name in places)
                producer.begin()
            else:
                _wait_until_committed(consumer, places)
    copied = [b"%d-%d!" % (index, number) for index in range(2) for number in range(10)]
    assert View(library, address, target, 2).values() == copied


def _wait_until_committed(consumer: LibraryConsumer, places: dict[TopicPartition, int]) -> None:
    """A commit is acknowledged when it is decided; offsets follow, and not every library waits for
    them.
    """
    wait_for(
        lambda: {name: consumer.committed(name) for name in places} == places, "offsets to count"
    )


def test_offsets_of_a_member_that_is_gone_are_refused(
    address: str, library: Library, topic: str, begin: Begin, view: View
) -> None:
    """The member may have been replaced, and its successor may process the same records."""
    if not library.names_members:
        pytest.skip("the library does not tell which member it is")
    library.produce(address, topic, [Sent(value=b"1", partition=0)], ProducerOptions())
    options = ConsumerOptions(group=fresh_name("group"))
    with opened(library, address, options) as consumer:
        consumer.subscribe([topic])
        read_count(consumer, 1)
        former = consumer.membership()
    producer = begin()
    producer.send(topic, b"2")
    with pytest.raises(library.refusal) as refused:
        producer.send_offsets({TopicPartition(topic, 0): 1}, former)
    assert not library.says_fenced(refused.value)
    producer.abort()
    with opened(library, address, options) as consumer:
        assert consumer.committed(TopicPartition(topic, 0)) is None
    producer.begin()
    producer.send(topic, b"3")
    producer.commit()
    assert view.values() == [b"1", b"3"]
