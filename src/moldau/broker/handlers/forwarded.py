"""Requests that a broker forwards to the active controller. When it returns the response, the
broker's own metadata includes the change.
"""

from moldau.broker.server.context import RequestContext
from moldau.protocol.wire.schema import Message


async def handle_forwarded(ctx: RequestContext, request: Message) -> Message:
    return await ctx.broker.controller.forward(request, ctx.version, ctx.peer)
