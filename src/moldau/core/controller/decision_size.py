"""Decisions that may take more than a few milliseconds: those of large requests, and those that
look at every partition of a large cluster. They are made outside of the event loop.
"""

from typing import Any

from moldau.core.controller.decision_context import DecisionContext
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.wire.primitives import BYTES_LIKE_ELEMENT
from moldau.protocol.wire.schema import Message, Struct

LARGE_FROM = 50
"""Counted in elements of a request, lengths of texts, or partitions that it creates."""
PARTITIONS_AT_ONCE = 250
"""A decision that moves so many partitions takes three milliseconds."""
_CREATES_PARTITIONS: dict[int, str] = {
    ApiKey.CREATE_TOPICS: "num_partitions",
    ApiKey.CREATE_PARTITIONS: "count",
}
_OF_ALL_PARTITIONS: dict[int, str] = {
    ApiKey.ELECT_LEADERS: "topic_partitions",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "topics",
}
"""Requests that concern all partitions if this field is null."""


def is_large(request: Message) -> bool:
    """Whether deciding it may take long in any cluster."""
    return _count(request, _CREATES_PARTITIONS.get(request.API_KEY)) > LARGE_FROM


def walks_all_partitions(context: DecisionContext, request: Any) -> bool:
    """Whether deciding it may take long because there are many partitions."""
    counts = context.image.partition_counts
    if counts.total <= PARTITIONS_AT_ONCE:
        return False
    if request.API_KEY == ApiKey.BROKER_HEARTBEAT:
        # Imported here, because a node starts without it.
        from moldau.core.controller.brokers.heartbeats import changes_state

        return changes_state(context, request)
    if request.API_KEY == ApiKey.BROKER_REGISTRATION:
        return request.broker_id in counts.in_sync or request.broker_id in counts.eligible
    if request.API_KEY == ApiKey.UNREGISTER_BROKER:
        return True
    field = _OF_ALL_PARTITIONS.get(request.API_KEY)
    return field is not None and getattr(request, field) is None


def _count(struct: Struct, makes: str | None) -> int:
    """Counts the request's elements, of which a long text is several, and stops once there are
    many.
    """
    count = 0
    for row in struct.FIELDS:
        value = getattr(struct, row[0])
        if isinstance(value, list):
            count += len(value)
            for each in value[: LARGE_FROM + 1]:
                if isinstance(each, Struct):
                    count += _count(each, None)
                    count += getattr(each, makes) if makes is not None else 0
                else:
                    count += _count_of_text(each)
        else:
            count += _count_of_text(value)
    return count


def _count_of_text(value: object) -> int:
    return len(value) // BYTES_LIKE_ELEMENT if isinstance(value, str) else 0
