"""FindCoordinator: the broker that coordinates a group or a transactional id. Their internal topic
is created at the first request. Share groups are not coordinated yet, and are refused.
"""

from collections.abc import Awaitable
from enum import IntEnum
from typing import NamedTuple

from moldau.broker.server.context import RequestContext
from moldau.broker.server.error_responses import INVALID_REQUEST_MESSAGE
from moldau.core.controller.topics.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from moldau.net.slices import in_slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from moldau.protocol.versions import FIND_COORDINATOR_BATCHES
from moldau.types import NO_NODE, BrokerId

_SHARE_FROM = 6


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: dict[int, str] = {
    KeyType.GROUP: CONSUMER_OFFSETS,
    KeyType.TRANSACTION: TRANSACTION_STATE,
}


class _Coordinator(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    node_id: BrokerId = NO_NODE
    host: str = ""
    port: int = -1


def handle_find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    key_type = request.key_type
    refused = _refuse_type(ctx, key_type)
    if refused is None and ctx.broker.image.topic(_TOPICS[key_type]) is None:
        return _answer_after_creation(ctx, request)
    return _answers(ctx, request, refused)


async def _answer_after_creation(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    await ctx.broker.topic_creation.ensure([_TOPICS[request.key_type]])
    answer = _answers(ctx, request, None)
    return answer if isinstance(answer, FindCoordinatorResponse) else await answer


def _answers(
    ctx: RequestContext, request: FindCoordinatorRequest, refused: _Coordinator | None
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    key_type = request.key_type
    if ctx.version < FIND_COORDINATOR_BATCHES:
        coordinator = refused or _find(ctx, key_type, request.key)
        return FindCoordinatorResponse(
            error_code=coordinator.code,
            # Kafka's message for the absence of an error.
            error_message=coordinator.message or "NONE",
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )
    return in_slices(
        lambda key: _answer(key, refused or _find(ctx, key_type, key)),
        request.coordinator_keys,
        lambda coordinator: FindCoordinatorResponse(coordinators=coordinator),
    )


def _answer(key: str, coordinator: _Coordinator) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
        error_code=coordinator.code,
        error_message=coordinator.message or "",
    )


def _refuse_type(ctx: RequestContext, key_type: int) -> _Coordinator | None:
    if key_type in _TOPICS:
        return None
    if key_type == KeyType.SHARE and ctx.version >= _SHARE_FROM:
        # An error that clients do not retry: waiting would not help.
        text = "Share groups are not supported by this node yet."
        return _Coordinator(ErrorCode.UNSUPPORTED_VERSION, text)
    return _Coordinator(ErrorCode.INVALID_REQUEST, INVALID_REQUEST_MESSAGE)


def _find(ctx: RequestContext, key_type: int, key: str) -> _Coordinator:
    image = ctx.broker.image
    topic = image.topic(_TOPICS[key_type])
    if topic is not None:
        is_group = key_type == KeyType.GROUP
        coordinator = ctx.broker.groups if is_group else ctx.broker.transactions
        partition = topic.partitions.get(coordinator.partition_for(key))
        broker = None if partition is None else image.brokers.get(partition.leader)
        if broker is not None and not broker.is_fenced:
            endpoint = broker.endpoints.get(ctx.peer.listener_name)
            if endpoint is not None:
                return _Coordinator(
                    node_id=broker.broker_id, host=endpoint.host, port=endpoint.port
                )
    return _Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
