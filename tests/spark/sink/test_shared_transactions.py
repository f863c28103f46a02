"""One transaction for all tasks of a batch, without a JVM: the real driver and tasks, in one
process.
"""

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from spark.rows import fresh_topic, read_batch, values

from moldau import Admin, Producer
from moldau.admin import Committed, FeatureUpdate, UpgradeType
from moldau.core.spark.errors import FencedRunError, OptionError
from moldau.protocol.errors import MoldauError
from moldau.spark.sink.driver_transaction import DriverTransaction, TransactionTicket
from moldau.spark.sink.task_writer import RowEncoder, TransactionWriter, discard
from moldau.testing import ThreadBroker, broker
from moldau.types import TopicPartition

_numbers = itertools.count()


@pytest.fixture(scope="module", params=[1, 2])
def node(request: pytest.FixtureRequest) -> Iterator[ThreadBroker]:
    """A broker with either version of transactions: in the first one tasks add their partitions."""
    with broker() as running, Admin(running.bootstrap) as admin:
        assert isinstance(running, ThreadBroker)
        if request.param == 1:
            update = FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)
            assert admin.update_features({"transaction.version": update}) == {
                "transaction.version": None
            }
        yield running


@pytest.fixture
def name() -> str:
    return f"job-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def driver(node: ThreadBroker, name: str) -> Iterator[DriverTransaction]:
    found = DriverTransaction({"bootstrap.servers": node.bootstrap}, name)
    yield found
    found.close()


def keyed(*numbers: int) -> Any:
    texts = [str(number) for number in numbers]
    return pa.RecordBatch.from_pydict({"key": texts, "value": texts})


def encoded(ticket: TransactionTicket, topic: str | None, *batches: Any) -> list[Any]:
    """The encoded rows as the second step gets them: sorted."""
    found = pa.Table.from_batches(RowEncoder(ticket, topic)(batches))
    return list(found.sort_by([("partition", "ascending"), ("number", "ascending")]).to_batches())


def write(ticket: TransactionTicket, topic: str, *batches: Any) -> list[dict[str, Any]]:
    """Writes as a process that has not written before."""
    discard(ticket)
    rows = encoded(ticket, topic, *batches)
    return [row for batch in TransactionWriter(ticket)(rows) for row in batch.to_pylist()]


def test_rows_are_visible_only_after_the_commit(
    node: ThreadBroker, driver: DriverTransaction, name: str
) -> None:
    source, topic = fresh_topic(node), fresh_topic(node, 3)
    ticket = driver.begin()
    told = write(ticket, topic, keyed(*range(50)), keyed(*range(50, 100)))
    assert sum(row["rows"] for row in told) == 100
    assert read_batch(node, subscribe=topic) == []
    place = TopicPartition(source, 0)
    driver.commit({place: Committed(7, metadata="batch 0")}, name)
    assert sorted(map(int, values(read_batch(node, subscribe=topic)))) == list(range(100))
    with Admin(node.bootstrap) as admin:
        committed = admin.list_group_offsets([name])[name]
    assert isinstance(committed, dict)
    assert (committed[place].offset, committed[place].metadata) == (7, "batch 0")


def test_tasks_in_several_processes_write_in_one_transaction(
    node: ThreadBroker, driver: DriverTransaction, name: str
) -> None:
    first, second = fresh_topic(node), fresh_topic(node)
    for batch in range(3):
        ticket = driver.begin()
        write(ticket, first, keyed(batch))
        write(ticket, second, keyed(batch))
        driver.commit({TopicPartition(first, 0): Committed(batch)}, name)
    assert values(read_batch(node, subscribe=first)) == [b"0", b"1", b"2"]
    assert values(read_batch(node, subscribe=second)) == [b"0", b"1", b"2"]


def test_an_aborted_batch_leaves_nothing_and_the_next_has_another_epoch(
    node: ThreadBroker, driver: DriverTransaction, name: str
) -> None:
    topic = fresh_topic(node)
    ticket = driver.begin()
    write(ticket, topic, keyed(1, 2))
    driver.abort()
    again = driver.begin()
    assert again[:3] == ticket[:3]
    assert again.epoch > ticket.epoch
    write(again, topic, keyed(1, 2))
    driver.commit({TopicPartition(topic, 0): Committed(1)}, name)
    assert values(read_batch(node, subscribe=topic)) == [b"1", b"2"]


def test_a_batch_without_rows_can_be_aborted_and_committed(
    node: ThreadBroker, driver: DriverTransaction, name: str
) -> None:
    topic = fresh_topic(node)
    driver.begin()
    driver.abort()
    driver.begin()
    driver.commit({TopicPartition(topic, 0): Committed(1)}, name)
    assert driver.committed(name)[TopicPartition(topic, 0)].offset == 1


def test_rows_keep_their_order_and_go_where_every_client_puts_them(
    node: ThreadBroker, driver: DriverTransaction, name: str
) -> None:
    topic, mirror = fresh_topic(node, 3), fresh_topic(node, 3)
    ticket = driver.begin()
    write(ticket, topic, keyed(*range(100)))
    driver.commit({TopicPartition(topic, 0): Committed(1)}, name)
    with Producer(node.bootstrap) as producer:
        for number in range(100):
            producer.send(mirror, b"%d" % number, key=b"%d" % number)
    ours, theirs = read_batch(node, subscribe=topic), read_batch(node, subscribe=mirror)
    assert [(row["partition"], row["offset"], row["value"]) for row in ours] == [
        (row["partition"], row["offset"], row["value"]) for row in theirs
    ]


@pytest.mark.parametrize("is_same_process", [True, False])
def test_a_second_writer_of_a_partition_is_detected(
    node: ThreadBroker, driver: DriverTransaction, is_same_process: bool
) -> None:
    """Both use the same sequence numbers: a broker would take the rows of the second for
    duplicates.
    """
    topic = fresh_topic(node)
    ticket = driver.begin()
    write(ticket, topic, keyed(1, 2))
    rows = encoded(ticket, topic, keyed(3, 4))
    if not is_same_process:
        discard(ticket)
    with pytest.raises(OptionError, match="another task wrote in the same transaction"):
        list(TransactionWriter(ticket)(rows))
    driver.abort()
    assert read_batch(node, subscribe=topic) == []


def test_tasks_and_driver_of_an_older_run_are_stopped(
    node: ThreadBroker, driver: DriverTransaction, name: str
) -> None:
    topic = fresh_topic(node)
    ticket = driver.begin()
    write(ticket, topic, keyed(1))
    newer = DriverTransaction({"bootstrap.servers": node.bootstrap}, name)
    try:
        other = fresh_topic(node)
        for place in (topic, other):
            with pytest.raises(FencedRunError, match="another run of this job has taken over"):
                write(ticket, place, keyed(2))
        with pytest.raises(FencedRunError):
            driver.commit({TopicPartition(topic, 0): Committed(1)}, name)
        again = newer.begin()
        write(again, topic, keyed(3))
        newer.commit({TopicPartition(topic, 0): Committed(2)}, name)
    finally:
        newer.close()
    assert values(read_batch(node, subscribe=topic)) == [b"3"]


def test_a_fenced_run_does_not_abort_the_batch_of_its_successor(
    node: ThreadBroker, driver: DriverTransaction, name: str
) -> None:
    topic = fresh_topic(node)
    driver.begin()
    newer = DriverTransaction({"bootstrap.servers": node.bootstrap}, name)
    try:
        ticket = newer.begin()
        write(ticket, topic, keyed(1))
        with pytest.raises(FencedRunError):
            driver.abort()
        newer.commit({TopicPartition(topic, 0): Committed(1)}, name)
    finally:
        newer.close()
    assert values(read_batch(node, subscribe=topic)) == [b"1"]


def test_retriable_errors_are_retried_in_transactions(
    node: ThreadBroker, driver: DriverTransaction, name: str
) -> None:
    topic = fresh_topic(node)
    ticket = driver.begin()
    node.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", 2)
    write(ticket, topic, keyed(*range(10)))
    node.fail_next("EndTxn", "COORDINATOR_NOT_AVAILABLE", 2)
    node.fail_next("TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", 2)
    driver.commit({TopicPartition(topic, 0): Committed(1)}, name)
    assert len(read_batch(node, subscribe=topic)) == 10


def test_a_row_that_is_too_large_is_an_error_of_one_line(
    node: ThreadBroker, driver: DriverTransaction
) -> None:
    topic = fresh_topic(node)
    ticket = driver.begin()
    with pytest.raises(MoldauError, match=r"a row of .* kafka\.max\.request\.size") as caught:
        write(ticket, topic, pa.RecordBatch.from_pydict({"value": [b"x" * 3_000_000]}))
    assert "\n" not in str(caught.value)


def test_rows_without_keys_are_spread_the_same_way_each_time(
    node: ThreadBroker, driver: DriverTransaction, name: str
) -> None:
    topic = fresh_topic(node, 4)
    rows = pa.RecordBatch.from_pydict({"value": [b"x" * 1000] * 9000})
    ticket = driver.begin()
    places = [
        [(row["partition"], row["rows"]) for batch in encoded(ticket, topic, rows)
         for row in batch.to_pylist()]
        for _ in range(2)
    ]  # fmt: skip
    assert places[0] == places[1]
    driver.abort()
