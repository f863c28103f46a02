"""Transactions in the log, written and read by us and by Apache Kafka."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from core.transactions.bench import ID, P0, P1, START_MS, TIMEOUT_MS, Bench, replay_log
from core.transactions.test_ends_of_transactions import EPOCH, PRODUCER, bench_with
from storage.samples import SAMPLES, unpack

from moldau.core.coordinator.playback import replay_batch
from moldau.core.coordinator.records import StoredPair, encode_record
from moldau.core.transactions.settings import TransactionSettings
from moldau.core.transactions.states import TransactionState
from moldau.core.transactions.transaction import Transaction
from moldau.core.transactions.transaction_records import (
    decode_transaction_record,
    stored_transaction,
    transaction_record,
    transaction_tombstone,
)
from moldau.core.transactions.transaction_shard import TransactionShard
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records.transaction_log import TransactionLogKey, TransactionLogValue
from moldau.protocol.records.batches import iterate_batches
from moldau.types import Buffer, ProducerEpoch, TopicPartition

S = TransactionState

FULL = Transaction(
    transactional_id=ID,
    producer_id=5,
    previous_producer_id=4,
    next_producer_id=6,
    producer_epoch=ProducerEpoch(7),
    last_producer_epoch=ProducerEpoch(6),
    timeout_ms=TIMEOUT_MS,
    state=S.PREPARE_COMMIT,
    partitions=frozenset({P1, P0, TopicPartition("a", 3)}),
    start_ms=START_MS,
    update_ms=START_MS + 1,
    client_version=2,
)


def through_bytes(transaction: Transaction, version: int) -> Transaction:
    shard = TransactionShard(TransactionSettings)
    replay_log(shard, [encode_record(transaction_record(transaction, version))])
    return shard.transactions[transaction.transactional_id]


@pytest.mark.parametrize("version", [1, 2])
def test_all_but_the_last_epoch_is_in_the_log(version: int) -> None:
    assert through_bytes(FULL, version) == replace(FULL, last_producer_epoch=ProducerEpoch(-1))


def test_version_0_omits_later_fields() -> None:
    assert through_bytes(FULL, 0) == replace(
        FULL,
        previous_producer_id=-1,
        next_producer_id=-1,
        last_producer_epoch=ProducerEpoch(-1),
        client_version=0,
    )


def test_version_0_is_laid_out_as_kafka_does() -> None:
    key, value = encode_record(transaction_record(FULL, 0))
    assert key == bytes.fromhex("0000 0002") + b"tx"
    assert value is not None
    assert value == (
        bytes.fromhex("0000")
        + (5).to_bytes(8, "big")
        + (7).to_bytes(2, "big")
        + TIMEOUT_MS.to_bytes(4, "big")
        + bytes([2])
        + (2).to_bytes(4, "big")
        + (1).to_bytes(2, "big") + b"a" + (1).to_bytes(4, "big") + (3).to_bytes(4, "big")
        + (1).to_bytes(2, "big") + b"t" + (2).to_bytes(4, "big") + bytes(4) + (1).to_bytes(4, "big")
        + (START_MS + 1).to_bytes(8, "big")
        + START_MS.to_bytes(8, "big")
    )  # fmt: skip


def test_an_empty_transaction_has_no_list_of_partitions() -> None:
    empty = replace(FULL, state=S.EMPTY, partitions=frozenset())
    _, value = encode_record(transaction_record(empty, 0))
    assert value is not None
    assert value[17:21] == bytes.fromhex("ffffffff")
    assert through_bytes(empty, 0).partitions == frozenset()


def test_a_tombstone_forgets() -> None:
    shard = TransactionShard(TransactionSettings)
    replay_log(shard, [encode_record(transaction_record(FULL, 2))])
    replay_log(shard, [encode_record(transaction_tombstone(ID))])
    assert shard.transactions == {}
    replay_log(shard, [encode_record(transaction_tombstone("unknown"))])


def test_records_of_later_kinds_are_ignored() -> None:
    assert decode_transaction_record(bytes.fromhex("0009 0000"), b"") is None


@pytest.mark.parametrize("number", [-1, 6, 7, 8, 100])
def test_an_impossible_state_stops_the_load(number: int) -> None:
    record = transaction_record(FULL, 2)
    assert record.value is not None
    record.value.transaction_status = number  # type: ignore[attr-defined]
    with pytest.raises(KafkaError) as caught:
        replay_log(TransactionShard(TransactionSettings), [encode_record(record)])
    assert caught.value.code is ErrorCode.INVALID_RECORD


# Loading


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_decided_transactions_are_completed_after_a_load(state: TransactionState) -> None:
    bench = bench_with(state)
    (needed,) = bench.needed
    assert needed.producer == (PRODUCER, EPOCH)
    assert needed.commits is (state is S.PREPARE_COMMIT)
    assert needed.partitions == {P0}
    assert bench.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    # A second load before they are written requests the same markers and nothing else.
    bench.load()
    assert bench.needed == [needed, needed]
    bench.markers_written()
    assert bench.state().text[:8] == "Complete"
    bench.load()
    assert len(bench.needed) == 2


def test_open_transactions_stay_open_after_a_load() -> None:
    bench = bench_with(S.ONGOING)
    assert bench.needed == []
    assert bench.end((PRODUCER, EPOCH), commits=True) == (PRODUCER, EPOCH + 1)


def test_an_append_not_committed_in_time_may_still_be_decided_by_a_load() -> None:
    """The producer has to retry. The next coordinator completes the logged transaction, and
    responds to the retry.
    """
    bench = bench_with(S.ONGOING)
    bench.holds_commits = True
    ticket = bench.begin_end((PRODUCER, EPOCH), commits=True)
    bench.fail_all(ErrorCode.REQUEST_TIMED_OUT)
    assert bench.answer(ticket) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.needed == []
    bench.holds_commits = False
    bench.load()
    bench.markers_written()
    assert bench.end((PRODUCER, EPOCH), commits=True) == (PRODUCER, EPOCH + 1)
    assert bench.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("which", ["clean", "dirty"])
def test_transactions_of_apache_kafka_are_read(
    which: Literal["clean", "dirty"], tmp_path: Path
) -> None:
    shard = TransactionShard(TransactionSettings)
    for segment in unpack(which, tmp_path).rglob("__transaction_state-*/*.log"):
        for batch in iterate_batches(segment.read_bytes()):
            replay_batch(shard, batch, decode_transaction_record)
            for record in batch.records():
                assert record.key is not None
                assert written_again(record.key, record.value) == (record.key, record.value)
    open_transaction = json.loads((SAMPLES / "expected.json").read_text())["open_transaction"]
    assert open_transaction == "golden-open on txns partition 1"
    found = shard.transactions["golden-open"]
    assert found.state is S.ONGOING
    assert found.partitions == {TopicPartition("txns", 1)}


def written_again(key: Buffer, value: Buffer | None) -> StoredPair:
    """The record, read and written again by us."""
    record = decode_transaction_record(key, value)
    assert record is not None
    assert isinstance(record.key, TransactionLogKey)
    if record.value is None:
        return encode_record(transaction_tombstone(record.key.transactional_id))
    assert isinstance(record.value, TransactionLogValue)
    return encode_record(transaction_record(stored_transaction(record.key, record.value), 2))


def test_a_bench_is_loaded_with_what_it_wrote() -> None:
    bench = Bench()
    bench.init()
    bench.add((1000, 0), P0, P1)
    bench.end((1000, 0), commits=True)
    before = dict(bench.shard.transactions)
    bench.load()
    assert {k: replace(v, last_producer_epoch=ProducerEpoch(-1)) for k, v in before.items()} == (
        bench.shard.transactions
    )
