"""A whole node in this process, whose time can be moved, with requests over the network."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

from support.waiting import until

from moldau.broker.node.node import Node, NodeOptions
from moldau.broker.server.context import RequestContext
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.core.transactions.states import AT_REST
from moldau.core.transactions.transaction import Transaction
from moldau.net.clock import Clock, ShiftedClock
from moldau.net.request_channel import Address, RequestChannel
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages import response_class
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.wire.schema import Message
from moldau.types import ProducerEpoch

PARTITIONS = 3
TRANSACTIONS = 1
OLD_PRODUCE = 11
OLD_ADD = 3
OLD_END = 4
BROKERS_ADD = 5
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "4",
    # Connections outlive the time that tests let pass.
    "connections.max.idle.ms": str(2**40),
}
PATIENCE_S = 30.0


class TransactionNode:
    """Has a topic t with three partitions. `stop` and `start` again on the same directory."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.settings = SETTINGS | {k.replace("_", "."): v for k, v in settings.items()}
        self.holds_markers = False
        self._channel_clock = Clock()

    async def start(self) -> Self:
        properties = standalone_properties(str(self.folder), host="127.0.0.1", port=0)
        config = BrokerConfig.parse(properties | self.settings)
        self.clock = ShiftedClock()
        self.node = Node(config, NodeOptions(formats_itself=True), clock=self.clock)
        await self.node.start()
        self.node.intercept(self._intercept)
        address = Address("127.0.0.1", self.node.client_port)
        self.channel = await RequestChannel.open(address, self._channel_clock)
        with contextlib.suppress(KafkaError):
            await self.node.create_topic("t", PARTITIONS, {})
        find = FindCoordinatorRequest(key_type=TRANSACTIONS, coordinator_keys=["a"])
        assert (await self.ask(find)).coordinators[0].error_code == 0
        await self.node.services.transactions.wait_loaded()
        return self

    async def stop(self) -> None:
        await self.channel.close()
        await self.node.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def close(self) -> None:
        self._channel_clock.close()

    def _intercept(self, context: RequestContext, _request: Message) -> Any:
        """Markers that are held never arrive."""
        if self.holds_markers and context.api_key is ApiKey.WRITE_TXN_MARKERS:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        return None

    # Requests

    async def ask(self, request: Message, version: int | None = None) -> Any:
        if version is None:
            version = request.VERSIONS[1]
        return await self.channel.ask(request, response_class(request.API_KEY), version)

    async def init(
        self, name: str | None = "a", *, version: int = 5, timeout_ms: int = 60_000, **fields: Any
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, **fields
        )
        answer: InitProducerIdResponse = await self.ask(request, version)
        return answer

    async def begun(self, name: str = "a", **options: Any) -> tuple[int, int]:
        """Producer id and epoch, once the last transaction is complete."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self.init(name, **options)
                if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    assert answer.error_code == 0, answer.error_code
                    return answer.producer_id, answer.producer_epoch

    async def add(
        self,
        producer: tuple[int, int],
        *partitions: int,
        name: str = "a",
        topic: str = "t",
        version: int = OLD_ADD,
        verify: bool = False,
    ) -> dict[int, ErrorCode]:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        producer_id, epoch = producer
        if version < BROKERS_ADD - 1:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
            (result,) = (await self.ask(request, version)).results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
            (of_one,) = (await self.ask(request, version)).results_by_transaction
            (result,) = of_one.topic_results
        return {
            each.partition_index: ErrorCode(each.partition_error_code)
            for each in result.results_by_partition
        }

    async def end(
        self, producer: tuple[int, int], *, commits: bool, name: str = "a", version: int = 5
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commits,
        )
        answer: EndTxnResponse = await self.ask(request, version)
        return answer

    async def write(
        self, producer: tuple[int, int], partition: int, value: bytes, *, sequence: int = 0
    ) -> ErrorCode:
        """The flow of clients before transaction version 2: the partition must have been added."""
        options = BatchOptions(
            base_offset=0,
            producer_id=producer[0],
            producer_epoch=ProducerEpoch(producer[1]),
            base_sequence=sequence,
            is_transactional=True,
        )
        batch = build_batch([Record(0, self.clock.wall_ms(), None, value)], options)
        request = ProduceRequest(
            transactional_id="a",
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name="t", partition_data=[PartitionProduceData(index=partition, records=batch)]
                )
            ],
        )
        answer = await self.ask(request, OLD_PRODUCE)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
        (result,) = (await self.ask(request)).responses
        assert result.error_code == 0

    # State

    def known(self, name: str = "a") -> Transaction:
        return self.node.services.transactions.shard_of(name).transactions[name]

    async def completed(self, name: str = "a") -> Transaction:
        """The transaction, once it is complete."""
        await until(lambda: self.known(name).state in AT_REST)
        return self.known(name)

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        await asyncio.sleep(0)

    def stable_offset(self, partition: int) -> int:
        return self.node.services.replicas.lookup("t", partition).log.last_stable_offset

    def end_offset(self, partition: int) -> int:
        return self.node.services.replicas.lookup("t", partition).log.log_end_offset


@contextlib.asynccontextmanager
async def transaction_node(folder: Path, **settings: str) -> AsyncIterator[TransactionNode]:
    node = TransactionNode(folder, **settings)
    try:
        yield await node.start()
    finally:
        await node.stop()
        node.close()
