"""Requests that the active controller decides, sent to the controller's own listener."""

from moldau.broker.server.context import ControllerContext
from moldau.protocol.wire.schema import Message


async def handle_decided(ctx: ControllerContext, request: Message) -> Message:
    return await ctx.controller.handle(request, ctx.version)
