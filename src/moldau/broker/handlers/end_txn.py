"""EndTxn: a producer commits or aborts its transaction. From version 5 on it continues with the
producer id and epoch of the response.
"""

from moldau.broker.server.context import RequestContext
from moldau.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse


async def handle_end_txn(ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    return await ctx.broker.transactions.end_transaction(request, ctx.version)
