"""TxnOffsetCommit: offsets that are part of a transaction. They become valid when it is committed,
and are dropped if it is aborted. From version 5 the first commit adds the group's partition of
__consumer_offsets to the transaction; before, AddOffsetsToTxn does.
"""

from collections.abc import Iterable

from moldau.broker.coordinators.verification import VerifiedWriter
from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.core.coordinator.refusals import as_coordinator_error
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from moldau.protocol.versions import TXN_OFFSET_COMMIT_ADDS_PARTITIONS
from moldau.types import NO_SEQUENCE, ProducerEpoch

_ABORTABLE_FROM = 4
"""From this version on clients know TRANSACTION_ABORTABLE."""
_LOADING_FROM = 2
"""Producers before Kafka 2.0 fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""


async def handle_txn_offset_commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    accepted: list[TxnOffsetCommitRequestTopic] = []
    refused: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        image = ctx.broker.image.topic(topic.name)
        indexes = {} if image is None else image.partitions
        missing = [p for p in topic.partitions if p.partition_index not in indexes]
        if missing:
            refused.append(_refuse(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [p for p in topic.partitions if p.partition_index in indexes]
        if topic.partitions:
            accepted.append(topic)
    committed = await _commit(ctx, request, accepted) if accepted else []
    return TxnOffsetCommitResponse(topics=_merged(refused, committed) if refused else committed)


async def _commit(
    ctx: RequestContext,
    request: TxnOffsetCommitRequest,
    topics: list[TxnOffsetCommitRequestTopic],
) -> list[TxnOffsetCommitResponseTopic]:
    request.topics = topics
    try:
        writer = await _admitted(ctx, request)
        response = await ctx.broker.groups.commit_transactional_offsets(request, writer)
    except KafkaError as error:
        code = _for_version(error.code, ctx.version)
        return [_refuse(topic, topic.partitions, code) for topic in topics]
    return response.topics


async def _admitted(ctx: RequestContext, request: TxnOffsetCommitRequest) -> VerifiedWriter:
    """Raises if the transaction's coordinator does not know this group's partition."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    broker = ctx.broker
    producer = (request.producer_id, ProducerEpoch(request.producer_epoch))
    try:
        partition = broker.replicas.lookup(
            CONSUMER_OFFSETS, broker.groups.partition_for(request.group_id)
        )
        verifications = await broker.verification.begin(
            request.transactional_id,
            producer,
            {partition: NO_SEQUENCE},
            adds=ctx.version >= TXN_OFFSET_COMMIT_ADDS_PARTITIONS,
        )
        verification = verifications[partition]
        if isinstance(verification, KafkaError):
            raise verification
    except KafkaError as error:
        raise KafkaError(as_coordinator_error(error.code), error.detail) from None
    return VerifiedWriter(*producer, verification)


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.NETWORK_EXCEPTION:
        # An error of the verification. Clients retry, without looking for another coordinator.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _refuse(
    topic: TxnOffsetCommitRequestTopic,
    partitions: Iterable[TxnOffsetCommitRequestPartition],
    code: ErrorCode,
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in partitions
        ],
    )


def _merged(
    refused: list[TxnOffsetCommitResponseTopic], committed: list[TxnOffsetCommitResponseTopic]
) -> list[TxnOffsetCommitResponseTopic]:
    """A topic's partitions may be divided between the two."""
    merged: dict[str, TxnOffsetCommitResponseTopic] = {}
    for topic in (*refused, *committed):
        known = merged.setdefault(topic.name, topic)
        if known is not topic:
            known.partitions = [*known.partitions, *topic.partitions]
    return list(merged.values())
