"""InitProducerId: an id and an epoch for an idempotent or a transactional producer. The latter
takes its transactional id over from the previous producer. Version 6 (two-phase commit) is not
final and served only with `unstable.api.versions.enable`.
"""

from moldau.broker.server.context import RequestContext
from moldau.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle_init_producer_id(
    ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    return await ctx.broker.transactions.init_producer_id(request, ctx.version)
