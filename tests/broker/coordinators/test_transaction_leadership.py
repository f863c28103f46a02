"""The coordinator of transactions follows the leadership of its partitions: the state in the log
counts, the state in memory does not.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from broker.cluster.test_producer_ids import Controller
from broker.data_node import batch
from broker.marker_node import MarkerNode
from support.waiting import until

from moldau.broker.cluster.producer_ids import ProducerIds
from moldau.broker.coordinators.transactions import FEATURE, TransactionCoordinator
from moldau.core.controller.topics.topic_names import TRANSACTION_STATE
from moldau.core.transactions.states import TransactionState
from moldau.core.transactions.transaction import ProducerIdAndEpoch, Transaction
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import FeatureLevelRecord
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest
from moldau.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from moldau.types import BrokerId, ProducerEpoch, TopicPartition

S = TransactionState
NUMBER = 90
P0 = TopicPartition("t", 0)


class CoordinatorNode(MarkerNode):
    """Its topic of transactions has two partitions."""

    def start_transactions(self) -> None:
        self.commit(FeatureLevelRecord(name=FEATURE, feature_level=2))
        self.create_topic(TRANSACTION_STATE, number=NUMBER, partitions=2)
        self.transactions = TransactionCoordinator(
            self.replicas,
            self.clock,
            self.settings,
            self.feed,
            ProducerIds(BrokerId(1), Controller(), lambda: 1),
            self.markers,
        )
        self.transactions.start()

    async def stop(self) -> None:
        await self.transactions.stop()
        await super().stop()

    def hold_markers(self, count: int = 1000) -> None:
        def refuse(_request: WriteTxnMarkersRequest) -> Any:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)

        self.answers = [refuse] * count

    async def begun(self, name: str) -> ProducerIdAndEpoch:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = await self.transactions.init_producer_id(request, 5)
        assert answer.error_code == 0, answer.error_code
        return ProducerIdAndEpoch(answer.producer_id, ProducerEpoch(answer.producer_epoch))

    async def add(self, name: str, producer: ProducerIdAndEpoch) -> ErrorCode:
        return await self.transactions.add_partitions(name, *producer, [P0], transaction_version=2)

    async def end_transaction(
        self, name: str, producer: ProducerIdAndEpoch, *, commits: bool = True
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commits,
        )
        return await self.transactions.end_transaction(request, 5)

    def lead(self, name: str, leader: int = 1) -> None:
        """A leader epoch begins: on `leader`, or without one if it is -1."""
        index = self.transactions.partition_for(name)
        self.change_partition(NUMBER, index, leader=leader)

    def known(self, name: str) -> Transaction:
        return self.transactions.shard_of(name).transactions[name]


@contextlib.asynccontextmanager
async def running_coordinator(path: Path) -> AsyncIterator[CoordinatorNode]:
    node = CoordinatorNode(path)
    node.start()
    node.create_offsets_topic()
    node.create_topic("t", number=1, partitions=4)
    node.start_transactions()
    try:
        yield node
    finally:
        await node.stop()


def other_id(node: CoordinatorNode, name: str) -> str:
    """A transactional id of the other partition."""
    index = node.transactions.partition_for(name)
    names = (f"{name}-{number}" for number in range(50))
    return next(each for each in names if node.transactions.partition_for(each) != index)


async def test_a_shard_that_is_led_elsewhere_refuses_and_is_loaded_again(tmp_path: Path) -> None:
    async with running_coordinator(tmp_path) as node:
        other = other_id(node, "a")
        me, neighbour = await node.begun("a"), await node.begun(other)
        assert await node.add("a", me) is ErrorCode.NONE
        node.lead("a", leader=-1)
        assert await node.add("a", me) is ErrorCode.NOT_COORDINATOR
        assert (await node.end_transaction("a", me)).error_code == ErrorCode.NOT_COORDINATOR
        codes = node.transactions.verify_partitions("a", *me, [P0])
        assert codes == {P0: ErrorCode.NOT_COORDINATOR}
        assert await node.add(other, neighbour) is ErrorCode.NONE
        node.lead("a")
        assert await node.add("a", me) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await node.transactions.wait_loaded()
        assert node.known("a").state is S.ONGOING
        answer = await node.end_transaction("a", me)
        assert (answer.error_code, answer.producer_epoch) == (0, 1)


async def test_waiting_requests_get_an_error_when_leadership_is_lost_and_the_log_decides(
    tmp_path: Path,
) -> None:
    async with running_coordinator(tmp_path) as node:
        me = await node.begun("a")
        assert await node.add("a", me) is ErrorCode.NONE
        node.hold_markers()
        log = node.replicas.lookup(TRANSACTION_STATE, node.transactions.partition_for("a")).log
        before = log.log_end_offset
        waiting = asyncio.ensure_future(node.end_transaction("a", me))
        await until(lambda: log.log_end_offset > before or waiting.done())
        node.lead("a", leader=-1)
        told = (await waiting).error_code
        assert told in {ErrorCode.NOT_COORDINATOR, ErrorCode.NONE}
        node.answers.clear()
        node.lead("a")
        await node.transactions.wait_loaded()
        await until(lambda: node.known("a").state is S.COMPLETE_COMMIT)
        again = await node.end_transaction("a", me)
        assert (again.error_code, again.producer_epoch) == (0, me[1] + 1)


async def test_a_new_leader_epoch_sends_markers_again_with_its_number(tmp_path: Path) -> None:
    async with running_coordinator(tmp_path) as node:
        me = await node.begun("a")
        await node.add("a", me)
        node.write("t", 0, me)
        node.hold_markers()
        assert (await node.end_transaction("a", me)).error_code == 0
        await until(lambda: len(node.requests) > 0)
        node.lead("a")
        node.answers.clear()
        await node.transactions.wait_loaded()
        await until(lambda: node.known("a").state is S.COMPLETE_COMMIT)
        epochs = [request.markers[0].coordinator_epoch for request in node.requests]
        assert (epochs[0], epochs[-1]) == (0, 1)
        assert not node.is_open("t", 0)
        assert len(node.markers) == 0
        after = ProducerIdAndEpoch(me.producer_id, ProducerEpoch(me.producer_epoch + 1))
        assert await node.add("a", after) is ErrorCode.NONE


async def test_a_damaged_record_fails_its_shard_and_no_other(tmp_path: Path) -> None:
    async with running_coordinator(tmp_path) as node:
        other = other_id(node, "a")
        me, neighbour = await node.begun("a"), await node.begun(other)
        partition = node.replicas.lookup(TRANSACTION_STATE, node.transactions.partition_for("a"))
        result = partition.append(batch(b"\x00\x01 no such value", key=b"\x00\x00\x00\x01a"))
        await partition.wait_committed(result.last_offset)
        node.lead("a")
        await node.transactions.wait_loaded()
        assert await node.add("a", me) is ErrorCode.NOT_COORDINATOR
        assert await node.add(other, neighbour) is ErrorCode.NONE
        assert not node.transactions.is_loading
