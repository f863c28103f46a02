"""What a broker does not decide: the request goes to the active controller, the answer comes back.
By then the broker's own metadata has what was changed.
"""

from moldau.broker.server.context import RequestContext
from moldau.protocol.wire.schema import Message


async def handle_forwarded(ctx: RequestContext, request: Message) -> Message:
    return await ctx.broker.controller.send(request, ctx.version)
