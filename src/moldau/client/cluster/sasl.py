"""Logs in on a connection: SaslHandshake chooses the mechanism, SaslAuthenticate carries its
messages (KIP-152).
"""

import secrets

from moldau.client.errors import AuthenticationError, check
from moldau.core.client.login import Credentials, LoginError, new_login
from moldau.net.request_channel import RequestChannel
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from moldau.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

HANDSHAKE_VERSION = 1
_NONCE_BYTES = 18
# PLAIN needs one round, SCRAM two.
_ROUNDS_MAX = 8


async def log_in(channel: RequestChannel, login: Credentials, authenticate_version: int) -> int:
    """Logs in. Returns for how many milliseconds the login is valid, 0 without a limit. Raises
    AuthenticationError.
    """
    await _choose(channel, login.mechanism)
    conversation = new_login(login, secrets.token_urlsafe(_NONCE_BYTES))
    message: bytes | None = conversation.first()
    lifetime_ms = 0
    for _ in range(_ROUNDS_MAX):
        if message is None:
            return lifetime_ms
        request = SaslAuthenticateRequest(auth_bytes=message)
        answer = await channel.ask(
            request, SaslAuthenticateResponse, authenticate_version, is_urgent=True
        )
        if answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            detail = answer.error_message or "wrong user or password"
            raise AuthenticationError(f"{channel.address}: {detail}")
        check(answer.error_code, answer.error_message)
        lifetime_ms = answer.session_lifetime_ms
        try:
            message = conversation.answer(bytes(answer.auth_bytes))
        except LoginError as problem:
            raise AuthenticationError(
                f"{channel.address} failed the login's checks: {problem}"
            ) from None
    raise AuthenticationError(f"{channel.address}: the {login.mechanism} login did not complete")


async def _choose(channel: RequestChannel, mechanism: str) -> None:
    request = SaslHandshakeRequest(mechanism=mechanism)
    answer = await channel.ask(request, SaslHandshakeResponse, HANDSHAKE_VERSION, is_urgent=True)
    match answer.error_code:
        case ErrorCode.NONE:
            return
        case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "nothing"
            raise AuthenticationError(f"{channel.address} offers {offered}, not {mechanism}")
        case ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationError(
                f"{channel.address} has no SASL; security.protocol should be PLAINTEXT or SSL"
            )
        case other:
            check(other, f"{channel.address}, SASL {mechanism}")
