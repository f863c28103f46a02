"""AddPartitionsToTxn: partitions become part of a producer's transaction. Versions 0 to 3 come from
clients, for one transaction; 4 and 5 from brokers, for many, and may only verify membership.

If one partition cannot be added, none of its transaction's partitions are.
"""

import asyncio

from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import INTERNAL_TOPICS
from moldau.net.slices import slices_of
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from moldau.protocol.versions import ADD_PARTITIONS_BY_BROKERS, BUMPS_EPOCH_FROM, code_for_version
from moldau.types import ProducerEpoch, TopicPartition

Codes = dict[TopicPartition, ErrorCode]


async def handle_add_partitions_to_txn(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if ctx.version < ADD_PARTITIONS_BY_BROKERS:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        codes = await _codes(ctx, transaction)
        by_topic = await ctx.work(_by_topic, codes)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=by_topic)
    # All at once: they are independent, and wait for the same disk.
    outcomes = await asyncio.gather(*(_codes(ctx, each) for each in request.transactions))
    results = await ctx.work(_by_transaction, request.transactions, outcomes)
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _codes(ctx: RequestContext, transaction: AddPartitionsToTxnTransaction) -> Codes:
    named = await ctx.work(_named_partitions, transaction)
    codes = await slices_of(lambda each: _refusal(ctx, *each), named)
    refused, is_refused = await ctx.work(_refused_together, named, codes)
    if is_refused:
        return refused
    transactions = ctx.broker.transactions
    epoch = ProducerEpoch(transaction.producer_epoch)
    if transaction.verify_only:
        return transactions.verify_partitions(
            transaction.transactional_id,
            transaction.producer_id,
            epoch,
            refused,
        )
    code = await transactions.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        epoch,
        refused,
        transaction_version=(BUMPS_EPOCH_FROM if ctx.version >= ADD_PARTITIONS_BY_BROKERS else 0),
    )
    return dict.fromkeys(refused, code_for_version(code, ApiKey.ADD_PARTITIONS_TO_TXN, ctx.version))


def _named_partitions(transaction: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return list(
        dict.fromkeys(
            TopicPartition(topic.name, index)
            for topic in transaction.topics
            for index in topic.partitions
        )
    )


def _refused_together(named: list[TopicPartition], codes: list[ErrorCode]) -> tuple[Codes, bool]:
    """The codes to report, and whether a refused partition refuses all of them."""
    if not any(codes):
        return dict(zip(named, codes, strict=True)), False
    reported = (code or ErrorCode.OPERATION_NOT_ATTEMPTED for code in codes)
    return dict(zip(named, reported, strict=True)), True


def _refusal(ctx: RequestContext, topic_name: str, index: int) -> ErrorCode:
    if ctx.version < ADD_PARTITIONS_BY_BROKERS and topic_name in INTERNAL_TOPICS:
        # Offsets have a request of their own.
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = ctx.broker.image.topic(topic_name)
    if topic is None or index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _by_transaction(
    transaction: list[AddPartitionsToTxnTransaction], outcomes: list[Codes]
) -> list[AddPartitionsToTxnResult]:
    return [
        AddPartitionsToTxnResult(
            transactional_id=each.transactional_id, topic_results=_by_topic(codes)
        )
        for each, codes in zip(transaction, outcomes, strict=True)
    ]


def _by_topic(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        by_topic.setdefault(topic, []).append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
        for name, results in by_topic.items()
    ]
