"""Requests that the active controller decides, sent to the controller's own listener."""

from moldau.broker.server.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.wire.schema import Message


async def handle_decided(ctx: RequestContext, request: Message) -> Message:
    controller = ctx.broker.controller_node
    if controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not a controller")
    return await controller.handle(request, ctx.version)
