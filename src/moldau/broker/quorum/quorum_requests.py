"""Messages of other nodes and of administrators, answered by the quorum of this node."""

from dataclasses import replace
from typing import Any

from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.core.quorum import rpc
from moldau.core.quorum.messages.parties import Receiver
from moldau.core.quorum.messages.translation import read_request, response_message
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages import response_class
from moldau.protocol.wire.schema import Message

_CONTENT_BYTES_MAX = 8 << 20
"""A node that wants more gets it in several responses."""


async def answered_by_quorum(
    quorum: QuorumNode, request: Message, version: int, *, cluster_id: str, listener: str
) -> Message:
    """The response to a request that came to `listener`."""
    receiver = Receiver(cluster_id, listener, quorum.leadership)
    asked = read_request(request, version, receiver)
    if isinstance(asked, Message):
        return asked
    if isinstance(asked, rpc.FetchRequest):
        # As in Kafka, any number of bytes brings at least one batch.
        asked = replace(asked, max_bytes=min(max(asked.max_bytes, 0), _CONTENT_BYTES_MAX))
    elif isinstance(asked, rpc.FetchSnapshotRequest):
        asked = replace(asked, max_bytes=min(asked.max_bytes, _CONTENT_BYTES_MAX))
    try:
        response = await quorum.answer(asked)
    except KafkaError:
        # It is stopping or has failed. In this form others try again later, here or elsewhere.
        answer_class: Any = response_class(request.API_KEY)
        refusal: Message = answer_class(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
        return refusal
    return response_message(response, request, version, listener)
