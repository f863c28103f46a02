"""Messages of other nodes and of administrators, answered by the quorum of this node."""

from typing import Any

from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.core.quorum.messages.parties import Receiver
from moldau.core.quorum.messages.translation import read_request, response_message
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages import response_class
from moldau.protocol.wire.schema import Message


async def answered_by_quorum(
    quorum: QuorumNode, request: Message, version: int, *, cluster_id: str, listener: str
) -> Message:
    """The response to a request that came to `listener`."""
    receiver = Receiver(cluster_id, listener, quorum.leadership)
    asked = read_request(request, version, receiver)
    if isinstance(asked, Message):
        return asked
    try:
        response = await quorum.answer(asked)
    except KafkaError:
        # It is stopping or has failed. In this form others try again later, here or elsewhere.
        answer_class: Any = response_class(request.API_KEY)
        refusal: Message = answer_class(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
        return refusal
    return response_message(response, request, version, listener)
