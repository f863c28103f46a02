from pathlib import Path

from broker.data_node import running

from moldau.broker.handlers.sasl_authenticate import handle_sasl_authenticate
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.sasl_authenticate import SaslAuthenticateRequest


async def test_a_listener_without_sasl_refuses_in_kafkas_words(tmp_path: Path) -> None:
    requested = SaslAuthenticateRequest(auth_bytes=b"hello")
    async with running(tmp_path) as node:
        answer = handle_sasl_authenticate(node.context(requested, 2), requested)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert answer.error_message == (
        "SaslAuthenticate request received after successful authentication"
    )
