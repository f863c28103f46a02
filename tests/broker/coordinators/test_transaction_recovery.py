"""Transactions across stops, kills and timeouts: each is decided once, and completely."""

from dataclasses import replace
from pathlib import Path

import pytest
from broker.transaction_node import (
    OLD_ADD,
    OLD_END,
    TransactionNode,
    transaction_node,
)
from support.running_node import QUICK_SETTINGS, RunningNode
from support.waiting import until, wait_for
from support.wire_client import WireClient, create_topic

from moldau.core.transactions.states import TransactionState
from moldau.core.transactions.transaction import LAST_CLIENT_EPOCH
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.control_records import ControlType, marker_of
from moldau.storage.log.read import Isolation
from moldau.types import Offset, ProducerEpoch

S = TransactionState
NONE = ErrorCode.NONE
CHECK_MS = 10_000
"""The interval of checks for overdue transactions."""


def markers_of(node: TransactionNode, partition: int) -> list[ControlType]:
    log = node.node.services.replicas.lookup("t", partition).log
    read = log.read(Offset(0), 1 << 20, isolation=Isolation.LOG_END)
    found = [marker_of(batch) for batch in iterate_batches(read.records) if batch.is_control]
    return [marker.control_type for marker in found if marker is not None]


# Stops


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("version", [OLD_END, 5])
async def test_decided_transactions_are_completed_after_a_restart(
    commits: bool, version: int, tmp_path: Path
) -> None:
    async with transaction_node(tmp_path) as node:
        me = await node.begun()
        await node.add(me, 0, 1)
        assert await node.write(me, 0, b"x") is NONE
        node.holds_markers = True
        assert (await node.end(me, commits=commits, version=version)).error_code == 0
        assert node.known().state in {S.PREPARE_COMMIT, S.PREPARE_ABORT}
        assert markers_of(node, 0) == []
        node.holds_markers = False
        await node.restart()
        done = await node.completed()
        assert done.state is (S.COMPLETE_COMMIT if commits else S.COMPLETE_ABORT)
        kind = ControlType.COMMIT if commits else ControlType.ABORT
        assert [markers_of(node, index) for index in (0, 1, 2)] == [[kind], [kind], []]
        assert node.stable_offset(0) == 2
        # The producer that got no response retries.
        assert (await node.end(me, commits=commits, version=version)).error_code == 0
        await node.restart()
        assert markers_of(node, 0) == [kind]


async def test_open_transactions_continue_after_a_restart(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        me = await node.begun()
        await node.add(me, 0)
        assert await node.write(me, 0, b"x") is NONE
        await node.restart()
        assert node.known().state is S.ONGOING
        assert await node.write(me, 0, b"y", sequence=1) is NONE
        assert await node.add(me, 1) == {1: NONE}
        answer = await node.end(me, commits=True)
        assert (answer.producer_id, answer.producer_epoch) == (me[0], me[1] + 1)
        await node.completed()
        assert node.stable_offset(0) == 3


async def test_a_stop_sends_waiting_clients_to_another_coordinator(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        await node.begun()
        transactions = node.node.services.transactions
        await transactions.stop()
        answer = await node.init()
        assert answer.error_code == ErrorCode.NOT_COORDINATOR


async def test_deleted_topics_do_not_keep_transactions_from_ending(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        await node.node.create_topic("gone", 1, {})
        me = await node.begun()
        await node.add(me, 0)
        assert await node.add(me, 0, topic="gone") == {0: NONE}
        node.holds_markers = True
        assert (await node.end(me, commits=True)).error_code == 0
        await node.delete_topic("gone")
        node.holds_markers = False
        done = await node.completed()
        assert done.state is S.COMPLETE_COMMIT
        assert markers_of(node, 0) == [ControlType.COMMIT]


# Time


async def test_a_transaction_that_takes_too_long_is_aborted(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        me = await node.begun(timeout_ms=30_000)
        await node.add(me, 0)
        assert await node.write(me, 0, b"x") is NONE
        await node.advance(29_000)
        assert node.known().state is S.ONGOING
        await node.advance(CHECK_MS + 2_000)
        done = await node.completed()
        assert done.state is S.COMPLETE_ABORT
        assert done.producer == (me[0], me[1] + 1)
        assert markers_of(node, 0) == [ControlType.ABORT]
        assert node.stable_offset(0) == 2
        assert await node.write(me, 0, b"y", sequence=1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await node.add(me, 0) == {0: ErrorCode.PRODUCER_FENCED}
        answer = await node.end(me, commits=True, version=OLD_END)
        assert answer.error_code == ErrorCode.PRODUCER_FENCED
        # KIP-360: it continues, unless another producer has begun.
        again = await node.init(producer_id=me[0], producer_epoch=me[1])
        assert (again.error_code, again.producer_epoch) == (0, me[1] + 1)


async def test_many_transactions_that_take_too_long_are_one_short_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    names = [f"{number}-" + "x" * 5_000 for number in range(12)]
    async with transaction_node(tmp_path) as node:
        for name in names:
            await node.add(await node.begun(name, timeout_ms=30_000), 0, name=name)
        await node.advance(31_000 + CHECK_MS)
        for name in names:
            assert (await node.completed(name)).state is S.COMPLETE_ABORT
        await until(lambda: "exceeded their timeout" in caplog.text)
        (line,) = [one for one in caplog.messages if "exceeded their timeout" in one]
        assert line.endswith("… and 7 more")
        assert len(line) < 1_000


async def test_the_time_runs_on_while_the_node_is_down(tmp_path: Path) -> None:
    async with transaction_node(tmp_path) as node:
        me = await node.begun(timeout_ms=30_000)
        await node.add(me, 0)
        await node.restart()
        # Its clock is the real one again: only the check comes later.
        await node.advance(31_000)
        await node.advance(CHECK_MS)
        assert (await node.completed()).state is S.COMPLETE_ABORT


async def test_ids_expire(tmp_path: Path) -> None:
    day_ms = 24 * 3_600_000
    settings = {
        "transactional_id_expiration_ms": str(day_ms),
        "transaction_remove_expired_transaction_cleanup_interval_ms": "60000",
    }
    async with transaction_node(tmp_path, **settings) as node:
        me = await node.begun("a")
        await node.begun("open", timeout_ms=900_000)
        shard = node.node.services.transactions.shard_of("a")
        await node.advance(day_ms + 1_000)
        await until(lambda: "a" not in shard.transactions)
        assert await node.add(me, 0) == {0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        fresh = await node.begun("a")
        assert fresh[0] != me[0]
        assert fresh[1] == 0
        await node.restart()
        assert node.known("a").producer == fresh


# Epochs


async def test_exhausted_epochs_continue_with_another_producer_id(tmp_path: Path) -> None:
    """The state after 32,766 transactions."""
    async with transaction_node(tmp_path) as node:
        me = await node.begun()
        shard = node.node.services.transactions.shard_of("a")
        shard.transactions["a"] = replace(
            node.known(), producer_epoch=ProducerEpoch(LAST_CLIENT_EPOCH)
        )
        me = (me[0], LAST_CLIENT_EPOCH)
        await node.add(me, 0)
        answer = await node.end(me, commits=True)
        assert answer.error_code == 0
        assert answer.producer_id != me[0]
        assert answer.producer_epoch == 0
        done = await node.completed()
        assert done.producer == (answer.producer_id, 0)
        # Retried, also after a restart.
        for _ in range(2):
            again = await node.end(me, commits=True)
            assert (again.producer_id, again.producer_epoch) == (answer.producer_id, 0)
            await node.restart()
        mine = (answer.producer_id, 0)
        assert await node.add(mine, 0) == {0: NONE}
        assert (await node.end(mine, commits=False)).error_code == 0
        await node.completed()
        assert markers_of(node, 0) == [ControlType.COMMIT, ControlType.ABORT]


# SIGKILL


class Producer:
    """A producer that uses the protocol before transaction version 2."""

    def __init__(self, address: str, name: str) -> None:
        self.wire = WireClient(address)
        self.name = name
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
        wait_for(lambda: self.wire.ask(find).coordinators[0].error_code == 0, "the coordinator")
        self.begin()

    def begin(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        busy = {
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        }
        while True:
            answer = self.wire.ask(request, 5)
            if answer.error_code not in busy:
                break
        assert answer.error_code == 0, answer.error_code
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def add(self, partitions: int) -> None:
        topics = [AddPartitionsToTxnTopic(name="t", partitions=list(range(partitions)))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        answer = self.wire.ask(request, OLD_ADD)
        (topic,) = answer.results_by_topic_v3_and_below
        assert {each.partition_error_code for each in topic.results_by_partition} == {0}

    def end(self, *, commits: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )


def decisions(address: str, partition: int) -> dict[tuple[int, int], set[ControlType]]:
    """By producer id and epoch, from the markers of a partition."""
    found: dict[tuple[int, int], set[ControlType]] = {}
    request = FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[FetchPartition(partition=partition, partition_max_bytes=1 << 20)],
            )
        ],
    )
    with WireClient(address) as wire:
        answer = wire.ask(request, 11)
    for batch in iterate_batches(answer.responses[0].partitions[0].records or b""):
        marker = marker_of(batch)
        if marker is not None:
            key = (batch.producer_id, batch.producer_epoch)
            found.setdefault(key, set()).add(marker.control_type)
    return found


PARTITIONS = 5


@pytest.mark.slow
@pytest.mark.parametrize("waits_for_answer", [True, False])
def test_a_kill_around_the_decision_leaves_one_decision_everywhere(
    waits_for_answer: bool, tmp_path: Path
) -> None:
    """With a response to its EndTxn, the outcome is fixed. Without one: all partitions have it, or
    the abort of the next producer.
    """
    settings = {**QUICK_SETTINGS, "transaction.state.log.num.partitions": "2"}
    with RunningNode(tmp_path, settings) as node:
        node.start()
        create_topic(node.address, "t", PARTITIONS)
        ended: list[tuple[tuple[int, int], bool]] = []
        for number in range(6):
            producer = Producer(node.address, "tx")
            producer.add(PARTITIONS)
            commits = number % 2 == 0
            if waits_for_answer:
                assert producer.wire.ask(producer.end(commits=commits), OLD_END).error_code == 0
            else:
                producer.wire.send(producer.end(commits=commits), OLD_END)
            node.kill()
            ended.append(((producer.producer_id, producer.epoch), commits))
            producer.wire.close()
            node.start()
        last = Producer(node.address, "tx")
        last.wire.close()
        seen = [decisions(node.address, partition) for partition in range(PARTITIONS)]
        node.stop()
    assert all(each == seen[0] for each in seen)
    for key, kinds in seen[0].items():
        assert len(kinds) == 1, (key, kinds)
    for (producer_id, epoch), commits in ended:
        wanted = ControlType.COMMIT if commits else ControlType.ABORT
        told = seen[0].get((producer_id, epoch))
        if waits_for_answer:
            assert told == {wanted}
        else:
            fenced = seen[0].get((producer_id, epoch + 1))
            assert {wanted} in (told, fenced) or fenced == {ControlType.ABORT}
