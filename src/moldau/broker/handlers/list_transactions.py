"""ListTransactions: the transactional ids that this node coordinates."""

from moldau.broker.server.context import RequestContext
from moldau.core.transactions.listing import filters_of, list_transactions
from moldau.net.slices import others_first
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

AT_ONCE = 500
"""Then other tasks run: there may be many ids, and patterns are slow."""


async def handle_list_transactions(
    ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    coordinator = ctx.broker.transactions
    if coordinator.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    filters = await ctx.work(filters_of, request)
    now_ms = ctx.broker.clock.wall_ms()
    response = ListTransactionsResponse(unknown_state_filters=list(filters.unknown_states))
    everything = [transaction for shard in coordinator.shards() for transaction in shard]
    for first in range(0, len(everything), AT_ONCE):
        some = everything[first : first + AT_ONCE]
        response.transaction_states += list_transactions(some, filters, now_ms)
        await others_first()
    return response
