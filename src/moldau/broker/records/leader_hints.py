"""Hints about new leaders (KIP-951): the leader of a partition and its endpoint on the client's
listener.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from moldau.types import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    from moldau.broker.server.context import RequestContext
    from moldau.core.metadata.image import MetadataImage

EndpointT = TypeVar("EndpointT")


class LeaderHint(NamedTuple):
    leader_id: BrokerId = NO_LEADER
    leader_epoch: LeaderEpoch = NO_EPOCH
    host: str | None = None
    """None if the leader has no such listener, or there is no leader."""
    port: int = -1
    rack: str | None = None


def leader_hint(image: "MetadataImage", name: TopicPartition, listener_name: str) -> LeaderHint:
    partition = image.partition(name)
    if partition is None:
        return LeaderHint()
    leader = image.brokers.get(partition.leader)
    endpoint = leader.endpoints.get(listener_name) if leader is not None else None
    if leader is None or leader.is_fenced or endpoint is None:
        return LeaderHint(partition.leader, partition.leader_epoch)
    return LeaderHint(
        partition.leader, partition.leader_epoch, endpoint.host, endpoint.port, leader.rack
    )


def put_leader_hints(
    ctx: "RequestContext",
    moved: Iterable[tuple[TopicPartition, Any]],
    new_leader: Callable[..., object],
    new_endpoint: Callable[..., EndpointT],
) -> list[EndpointT]:
    """Adds the new leader to the response of each partition that has moved. Returns the endpoints
    of the leaders. The last two arguments are the classes of the response.
    """
    endpoints: dict[int, EndpointT] = {}
    for name, answer in moved:
        hint = leader_hint(ctx.broker.image, name, ctx.peer.listener_name)
        answer.current_leader = new_leader(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
        if hint.host is not None:
            endpoints[hint.leader_id] = new_endpoint(
                node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack
            )
    return list(endpoints.values())
