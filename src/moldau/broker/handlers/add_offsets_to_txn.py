"""AddOffsetsToTxn: adds the offsets that a group is about to commit to a transaction, which means
its partition of __consumer_offsets. Clients of transaction version 2 do not send it.
"""

from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from moldau.protocol.versions import code_for_version
from moldau.types import ProducerEpoch, TopicPartition


async def handle_add_offsets_to_txn(
    ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    index = ctx.broker.groups.partition_for(request.group_id)
    code = await ctx.broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        ProducerEpoch(request.producer_epoch),
        [TopicPartition(CONSUMER_OFFSETS, index)],
        transaction_version=0,
    )
    return AddOffsetsToTxnResponse(
        error_code=code_for_version(code, ApiKey.ADD_OFFSETS_TO_TXN, ctx.version)
    )
