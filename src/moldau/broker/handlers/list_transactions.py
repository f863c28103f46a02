"""ListTransactions: the transactional ids that this node coordinates."""

import asyncio

from moldau.broker.context import RequestContext
from moldau.core.transactions.listing import filters_of, list_transactions
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)


async def handle_list_transactions(
    ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    coordinator = ctx.broker.transactions
    if coordinator.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    filters = filters_of(request)
    now_ms = ctx.broker.clock.wall_ms()
    response = ListTransactionsResponse(unknown_state_filters=list(filters.unknown_states))
    for shard in list(coordinator.shards()):
        response.transaction_states += list_transactions(shard, filters, now_ms)
        # There may be many, and patterns take their time.
        await asyncio.sleep(0)
    return response
