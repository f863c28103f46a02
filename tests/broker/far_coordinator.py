"""A transaction coordinator on another broker, represented by its responses."""

import asyncio
from typing import Any

from broker.data_node import DataNode

from moldau.core.controller.topics.topic_names import TRANSACTION_STATE
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import RegisterBrokerRecord
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.wire.schema import Message
from moldau.types import TopicPartition

COORDINATOR = 9
TRANSACTION_STATE_NUMBER = 90


class FarCoordinator:
    """Knows the partitions of transactions, and answers on demand."""

    def __init__(self) -> None:
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.partitions: dict[str, set[TopicPartition]] = {}
        self.codes: list[int] = []
        """Errors that precede the right responses: one code for each request."""
        self.request_code: int = ErrorCode.NONE
        self.is_reachable = True
        self._is_requested = asyncio.Semaphore(0)
        self._may_answer = asyncio.Event()
        self._may_answer.set()

    def hold(self) -> None:
        self._may_answer.clear()

    def release(self) -> None:
        self._may_answer.set()

    async def is_requested(self) -> None:
        """Waits for the next request."""
        await self._is_requested.acquire()

    def add(self, transactional_id: str, *partitions: tuple[str, int]) -> None:
        added = self.partitions.setdefault(transactional_id, set())
        added |= {TopicPartition(*each) for each in partitions}

    async def send(self, broker_id: int, request: Message, version: int | None = None) -> Message:
        assert broker_id == COORDINATOR
        assert version is None
        assert isinstance(request, AddPartitionsToTxnRequest)
        self.requests.append(request)
        self._is_requested.release()
        await self._may_answer.wait()
        if not self.is_reachable:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        if self.request_code:
            return AddPartitionsToTxnResponse(error_code=self.request_code)
        code = self.codes.pop(0) if self.codes else None
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=self._results(each, code),
                )
                for each in request.transactions
            ]
        )

    def _results(
        self, sent: AddPartitionsToTxnTransaction, code: int | None
    ) -> list[AddPartitionsToTxnTopicResult]:
        known = self.partitions.setdefault(sent.transactional_id, set())
        results = []
        for topic in sent.topics:
            answers = []
            for index in topic.partitions:
                partition = TopicPartition(topic.name, index)
                if not sent.verify_only and code is None:
                    known.add(partition)
                fits = partition in known
                found = ErrorCode.NONE if fits else ErrorCode.TRANSACTION_ABORTABLE
                answers.append(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=found if code is None else code,
                    )
                )
            results.append(
                AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=answers)
            )
        return results


def coordinated(node: DataNode, *, fenced: bool = False) -> FarCoordinator:
    """Lets another broker coordinate all transactions of `node`'s clients from now on."""
    broker: Any = RegisterBrokerRecord(broker_id=COORDINATOR, broker_epoch=1, fenced=fenced)
    node.commit(broker)
    node.create_topic(
        TRANSACTION_STATE, number=TRANSACTION_STATE_NUMBER, partitions=3, replicas=(COORDINATOR,)
    )
    coordinator = FarCoordinator()
    node.send_to_coordinator(coordinator)
    return coordinator
