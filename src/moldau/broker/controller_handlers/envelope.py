"""Envelope: a client's request that a broker forwards. It is served with the client's principal and
address; the listener is the one that the envelope came in on, as in Kafka.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.controller.envelope import Forwarded, unwrapped, wrapped_response
from moldau.broker.controller.error_search import has_error
from moldau.broker.server.context import ControllerContext, Handler, Peer, Staged
from moldau.broker.server.dispatch import failed
from moldau.broker.server.large_messages import AT_ONCE, AT_ONCE_BYTES, LargeMessages
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.protocol.wire.codec import MessageTooLargeError
from moldau.protocol.wire.frame import RequestFrame
from moldau.protocol.wire.schema import Message

if TYPE_CHECKING:
    from moldau.broker.server.handler_table import HandlerTable


def envelope_handler(table: "HandlerTable") -> Handler:
    """`table` has the handlers of the requests in envelopes."""
    large = LargeMessages()

    async def handle_envelope(
        ctx: ControllerContext, envelope: EnvelopeRequest
    ) -> EnvelopeResponse:
        try:
            forwarded = unwrapped(envelope)
            return await _served(ctx, table, forwarded, large)
        except KafkaError as error:
            return EnvelopeResponse(error_code=error.code)
        except MalformedRequestError:
            # The client's connection would be closed; the broker's must not.
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

    return handle_envelope


async def _served(
    ctx: ControllerContext, table: "HandlerTable", forwarded: Forwarded, large: LargeMessages
) -> EnvelopeResponse:
    """Raises KafkaError with the code of the whole envelope."""
    frame = forwarded.request
    if not table.serves(frame.api_key, frame.version):
        detail = f"{frame.api_key.name} version {frame.version} is not served here"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)
    request = _small_request(frame)
    is_large = request is None
    if request is None:
        request = await large.in_thread(frame.decode_body)
    context = ControllerContext(
        ctx.node,
        _client(ctx.peer, forwarded),
        frame.api_key,
        frame.version,
        frame.header.client_id or "",
        ctx.served_versions,
        is_large=is_large,
    )
    response = await _response(context, table, request, large)
    if has_error(response, ErrorCode.NOT_CONTROLLER):
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    write = partial(wrapped_response, response, frame.version, frame.header.correlation_id)
    try:
        return EnvelopeResponse(response_data=write(budget=AT_ONCE))
    except MessageTooLargeError:
        return EnvelopeResponse(response_data=await large.in_thread(write))


def _small_request(frame: RequestFrame) -> Message | None:
    """None if it takes long to decode, or cannot be decoded, which may take long, too."""
    if len(frame.body) > AT_ONCE_BYTES:
        return None
    try:
        return frame.decode_body(budget=AT_ONCE)
    except MalformedRequestError:
        if len(frame.body) < AT_ONCE:
            raise
        return None


async def _response(
    context: ControllerContext, table: "HandlerTable", request: Message, large: LargeMessages
) -> Message:
    try:
        outcome = table.handler(context.api_key)(context, request)
        if not isinstance(outcome, Message | Staged) and outcome is not None:
            outcome = await outcome
    except Exception as error:  # noqa: BLE001 - as in the dispatcher, for the request in the envelope
        unforeseen = error
    else:
        assert isinstance(outcome, Message), context.api_key
        return outcome
    refused = partial(failed, context.api_key, request, context.version, unforeseen)
    try:
        return await large.in_thread(refused) if context.is_large else refused()
    finally:
        # As in the dispatcher: an error refers to this frame by its traceback.
        del refused, unforeseen


def _client(broker: Peer, forwarded: Forwarded) -> Peer:
    return replace(
        broker,
        host=forwarded.host,
        principal=forwarded.principal,
        client_id=forwarded.request.header.client_id or "",
        client_software_name="",
        client_software_version="",
    )
