"""A group node that sends markers to itself by requests, whose responses can be replaced."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from broker.data_node import NODE, batch
from broker.group_node import GroupNode

from moldau.broker.cluster.peers import LocalPeers
from moldau.broker.coordinators.markers import MarkersToSend, TransactionMarkers
from moldau.broker.coordinators.verification import VerifiedWriter
from moldau.broker.handlers.table import broker_table
from moldau.broker.server.context import RequestContext
from moldau.broker.server.dispatch import Dispatcher
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.protocol.wire.schema import Message
from moldau.storage.log.append import VerifiedBatch
from moldau.types import NO_SEQUENCE, ProducerEpoch, TopicPartition

PATIENCE_S = 20.0

Codes = dict[TopicPartition, ErrorCode]


class MarkerNode(GroupNode):
    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.requests: list[WriteTxnMarkersRequest] = []
        self.answers: list[Callable[[WriteTxnMarkersRequest], Any]] = []
        """Responses that replace the real ones, in order."""

    def start(self) -> None:
        super().start()
        services = self.context(WriteTxnMarkersRequest()).broker
        dispatcher = Dispatcher(services, broker_table())
        dispatcher.interceptor = self._intercept
        self.peers = LocalPeers(NODE, self.settings, self.clock)
        self.peers.serve_with(dispatcher)
        self.markers = TransactionMarkers(self.peers, self.feed, self.clock)

    async def stop(self) -> None:
        await self.markers.stop()
        await super().stop()

    async def crash(self) -> None:
        await self.markers.stop()
        await super().crash()

    def _intercept(self, _: RequestContext, request: Message) -> Any:
        if isinstance(request, WriteTxnMarkersRequest):
            self.requests.append(request)
            if self.answers:
                return self.answers.pop(0)(request)
        return None

    # Transactions

    def write(self, topic: str, index: int, producer: tuple[int, int] = (7, 0)) -> None:
        """A batch of an open transaction, or one that opens it."""
        partition = self.replicas.lookup(topic, index)
        known = partition.log.producers.entry(producer[0])
        is_next = known is not None and known.epoch == producer[1]
        sequence = known.last_sequence + 1 if known is not None and is_next else 0
        data = batch(
            b"value",
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        epoch = ProducerEpoch(producer[1])
        verification = partition.begin_verification(producer[0], epoch, sequence, adds=False)
        partition.append(data if verification is None else VerifiedBatch(data, verification))

    def is_open(self, topic: str, index: int) -> bool:
        log = self.replicas.lookup(topic, index).log
        return log.last_stable_offset < log.log_end_offset

    async def commit_in_transaction(
        self, group: str, offset: int, producer: tuple[int, int] = (7, 0), *, partition: int = 0
    ) -> ErrorCode:
        """Appends as the handler does, with a coordinator that agrees."""
        log = self.replicas.lookup("__consumer_offsets", self.groups.partition_for(group))
        producer_id, epoch = producer[0], ProducerEpoch(producer[1])
        verification = log.begin_verification(producer_id, epoch, NO_SEQUENCE, adds=False)
        request = TxnOffsetCommitRequest(
            group_id=group,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        writer = VerifiedWriter(producer_id, epoch, verification)
        answer = await self.groups.commit_transactional_offsets(request, writer)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def stable_offset(self, group: str, *, partition: int = 0) -> int | ErrorCode:
        requested = OffsetFetchRequestTopics(name="t", partition_indexes=[partition])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=[requested])],
            require_stable=True,
        )
        (answered,) = (await self.ask(request, 9)).groups
        assert answered.error_code == 0, answered
        found = answered.topics[0].partitions[0]
        return ErrorCode(found.error_code) if found.error_code else int(found.committed_offset)

    # Markers

    async def end(self, *places: tuple[str, int], **fields: Any) -> Codes:
        """By the handler."""
        request = WriteTxnMarkersRequest(markers=[marker(*places, **fields)])
        return codes_of(await self.ask(request, 2))

    def send(self, *places: tuple[str, int], **fields: Any) -> asyncio.Future[ErrorCode]:
        """Ends it as the coordinator does."""
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        values: dict[str, Any] = {
            "transactional_id": "tx",
            "producer_id": 7,
            "producer_epoch": 0,
            "coordinator_epoch": 0,
            "commits": True,
            "transaction_version": 1,
        }
        values |= {"partitions": [TopicPartition(*place) for place in places]} | fields
        self.markers.send(MarkersToSend(**values), done.set_result)
        return done


def marker(*places: tuple[str, int], **fields: Any) -> WritableTxnMarker:
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    values: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_result": True,
        "transaction_version": 1,
    }
    return WritableTxnMarker(
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic.items()
        ],
        **(values | fields),
    )


def codes_of(response: WriteTxnMarkersResponse) -> Codes:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
        for result in response.markers
        for topic in result.topics
        for each in topic.partitions
    }


@contextlib.asynccontextmanager
async def running_markers(path: Path, **options: Any) -> AsyncIterator[MarkerNode]:
    node = MarkerNode(path, **options)
    node.start()
    node.create_offsets_topic()
    node.create_topic("t", number=1, partitions=4)
    try:
        yield node
    finally:
        await node.stop()
