"""The requests of the quorum: from other nodes, and changes of the voters."""

from moldau.broker.quorum.quorum_requests import answered_by_quorum
from moldau.broker.server.context import ControllerContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.wire.schema import Message


async def handle_quorum_request(ctx: ControllerContext, request: Message) -> Message:
    """A Fetch may wait for records. It delays only the next request of its own connection, and a
    connection that closes gives it up.
    """
    quorum = ctx.node.quorum
    if quorum is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not a controller")
    return await answered_by_quorum(
        quorum,
        request,
        ctx.version,
        cluster_id=ctx.node.cluster_id,
        listener=ctx.peer.listener_name,
    )
