"""SaslAuthenticate on a listener without SASL: refused, and the connection stays usable."""

from moldau.broker.server.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle_sasl_authenticate(
    _ctx: RequestContext, _request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        # Kafka's message, also for listeners without authentication.
        error_message="SaslAuthenticate request received after successful authentication",
    )
