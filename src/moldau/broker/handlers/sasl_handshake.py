"""SaslHandshake on a listener without SASL: refused, and the connection stays usable."""

from moldau.broker.server.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle_sasl_handshake(
    _ctx: RequestContext, _request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
