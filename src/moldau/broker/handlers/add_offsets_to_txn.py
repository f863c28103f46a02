"""AddOffsetsToTxn: the offsets that a group is about to commit become part of a transaction, that
is, its partition of __consumer_offsets does. Clients of transaction version 2 do not send it.
"""

from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from moldau.types import TopicPartition

_FENCED_CODE_FROM = 2


async def handle_add_offsets_to_txn(
    ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    index = ctx.broker.groups.partition_for(request.group_id)
    code = await ctx.broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [TopicPartition(CONSUMER_OFFSETS, index)],
        transaction_version=0,
    )
    if code is ErrorCode.PRODUCER_FENCED and ctx.version < _FENCED_CODE_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)
