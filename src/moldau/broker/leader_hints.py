"""Whom to ask instead (KIP-951): the leader of a partition and the address that a client on the
same listener reaches it at.
"""

from typing import TYPE_CHECKING, NamedTuple

from moldau.core.metadata.image import NO_LEADER
from moldau.types import TopicPartition

if TYPE_CHECKING:
    from moldau.core.metadata.image import MetadataImage


class LeaderHint(NamedTuple):
    leader_id: int = NO_LEADER
    leader_epoch: int = -1
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
