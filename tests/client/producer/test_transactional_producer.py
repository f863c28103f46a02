"""Transactions of our producer: all or nothing for readers of committed records, and errors that
say whether to abort or to stop.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator

import pytest
from client.clusters import cluster_of, fresh_topic, read_all
from client.produced import PATIENCE_S, numbered, producer_of

from moldau import Producer
from moldau.client.admin.groups import committed_offsets
from moldau.errors import (
    ClientError,
    KafkaError,
    MustAbortError,
    MustStopError,
    TransactionMisuseError,
)
from moldau.testing import ThreadBroker, broker
from moldau.types import TopicPartition

_ids = itertools.count()


def transactional(node: ThreadBroker, **settings: object) -> Producer:
    return producer_of(node, transactional_id=f"tx-{next(_ids)}", **settings)


def committed(node: ThreadBroker, topic: str) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        async with cluster_of(node) as cluster:
            found = await read_all(cluster, topic, "read_committed")
        return [record.value for rows in found.values() for record in rows]

    return asyncio.run(read())


@pytest.fixture(scope="module", params=["1", "2"])
def version(request: pytest.FixtureRequest) -> Iterator[ThreadBroker]:
    """A node whose clients use the first or the second protocol of transactions."""
    with broker() as node:
        assert isinstance(node, ThreadBroker)
        if request.param == "1":
            _set_transaction_version(node, 1)
        yield node


def _set_transaction_version(node: ThreadBroker, level: int) -> None:
    from moldau.protocol.messages.update_features import (
        FeatureUpdateKey,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

    async def change() -> None:
        update = FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=2
        )
        async with cluster_of(node) as cluster:
            answer = await cluster.send(
                None, UpdateFeaturesRequest(feature_updates=[update]), UpdateFeaturesResponse
            )
        assert answer.error_code == 0, answer.error_message
        assert not any(row.error_code for row in answer.results)

    asyncio.run(change())


def test_readers_of_committed_records_see_whole_transactions(version: ThreadBroker) -> None:
    topic = fresh_topic(version, 3)
    with transactional(version) as producer:
        with producer.transaction():
            producer.send_many(topic, numbered(100))
        with contextlib.suppress(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"aborted").result(PATIENCE_S)
            producer.send(topic, b"never sent")
            raise ZeroDivisionError
        with producer.transaction():
            last = producer.send(topic, b"last")
        assert last.result(0).offset >= 0
        for number in range(10):
            with producer.transaction():
                producer.send(topic, b"more %d" % number)
    expected = [*numbered(100), b"last", *(b"more %d" % number for number in range(10))]
    assert sorted(committed(version, topic), key=str) == sorted(expected, key=str)


def test_offsets_are_committed_with_the_transaction(version: ThreadBroker) -> None:
    topic = fresh_topic(version, 2)
    group = f"group-{topic}"
    place = TopicPartition(topic, 1)

    def offsets() -> dict[TopicPartition, int]:
        async def ask() -> dict[TopicPartition, int]:
            async with cluster_of(version) as cluster:
                found = await committed_offsets(cluster, group)
            return {partition: row.offset for partition, row in found.items()}

        return asyncio.run(ask())

    with transactional(version) as producer:
        with producer.transaction():
            producer.send(topic, b"v")
            producer.send_offsets({place: 5}, group)
        assert offsets() == {place: 5}
        with contextlib.suppress(KeyError), producer.transaction():
            producer.send_offsets({place: 9}, group)
            raise KeyError
        with producer.transaction():
            producer.send_offsets({}, group)
        assert offsets() == {place: 5}


def test_a_second_producer_fences_the_first(version: ThreadBroker) -> None:
    topic = fresh_topic(version)
    with (
        producer_of(version, transactional_id="shared") as first,
        producer_of(version, transactional_id="shared") as second,
    ):
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"first").result(PATIENCE_S)
        second.init_transactions()
        with pytest.raises(MustStopError, match="close this producer"):
            first.commit_transaction()
        with pytest.raises(MustStopError):
            first.begin_transaction()
        with second.transaction():
            second.send(topic, b"second")
    assert committed(version, topic) == [b"second"]


def test_a_failed_record_means_abort_and_the_next_transaction_works(version: ThreadBroker) -> None:
    topic = fresh_topic(version, max_message_bytes="1000")
    with transactional(version) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"doomed").result(PATIENCE_S)
        with pytest.raises(KafkaError):
            producer.send(topic, bytes(5_000)).result(PATIENCE_S)
        with pytest.raises(MustAbortError, match="abort the transaction"):
            producer.send(topic, b"too late")
        with pytest.raises(MustAbortError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"good")
        with pytest.raises(MustAbortError), producer.transaction():
            producer.send(topic, bytes(5_000))
        with producer.transaction():
            producer.send(topic, b"better")
    assert committed(version, topic) == [b"good", b"better"]


def test_retriable_errors_and_cut_connections_do_not_end_a_transaction(
    version: ThreadBroker,
) -> None:
    topic = fresh_topic(version, 2)
    with transactional(version, batch_size=100, retry_backoff_ms=5) as producer:
        for round_number in range(8):
            with producer.transaction():
                producer.send_many(topic, numbered(40, 100 * round_number))
                if round_number % 2:
                    version.drop_connections()
                else:
                    version.fail_next("EndTxn", "COORDINATOR_NOT_AVAILABLE", 2)
                    version.fail_next("Produce", "NOT_ENOUGH_REPLICAS", 2)
                    version.fail_next("AddPartitionsToTxn", "COORDINATOR_LOAD_IN_PROGRESS", 1)
    version.clear_faults()
    expected = [value for number in range(8) for value in numbered(40, 100 * number)]
    assert sorted(committed(version, topic), key=str) == expected


def test_steps_out_of_order_are_errors(version: ThreadBroker) -> None:
    topic = fresh_topic(version)
    with transactional(version) as producer:
        with pytest.raises(TransactionMisuseError, match="init_transactions"):
            producer.begin_transaction()
        producer.init_transactions()
        with pytest.raises(ClientError, match="already"):
            producer.init_transactions()
        with pytest.raises(TransactionMisuseError, match="no transaction is open"):
            producer.send(topic, b"")
        with pytest.raises(TransactionMisuseError, match="no transaction is open"):
            producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(TransactionMisuseError, match="a transaction is open"):
            producer.begin_transaction()
        producer.abort_transaction()
        with pytest.raises(TransactionMisuseError):
            producer.abort_transaction()


def test_a_fenced_producer_closes_quietly(version: ThreadBroker) -> None:
    topic = fresh_topic(version)
    with producer_of(version, transactional_id="fenced") as first:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"first").result(PATIENCE_S)
        with producer_of(version, transactional_id="fenced") as second:
            second.init_transactions()
    assert committed(version, topic) == []


def test_closing_aborts_an_open_transaction(version: ThreadBroker) -> None:
    topic = fresh_topic(version)
    with transactional(version) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open").result(PATIENCE_S)
    with transactional(version) as producer, producer.transaction():
        producer.send(topic, b"good")
    assert committed(version, topic) == [b"good"]
