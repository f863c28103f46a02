"""The interface of assignors, which distribute the partitions of topics to the members of a group.
Users' own assignors implement it, too.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from moldau.frozen import frozen
from moldau.types import TopicPartition

NO_GENERATION = -1

TopicRacks = Mapping[str, Sequence[frozenset[str]]]
"""By topic, and in order of the partitions: the racks of the replicas."""
Shares = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id."""


class RebalanceProtocol(Enum):
    EAGER = "eager"
    """All partitions are revoked before a rebalance."""
    COOPERATIVE = "cooperative"
    """Only partitions that move to another member are revoked, after the rebalance."""


@frozen(kw_only=True)
class Subscription:
    """A member's part of a JoinGroup request."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


Subscriptions = Mapping[str, Subscription]


@frozen(kw_only=True)
class MemberView:
    """A member's own state when it is about to join."""

    topics: tuple[str, ...]
    last_assigned: tuple[TopicPartition, ...] | None = None
    """None if it never had an assignment."""
    generation: int = NO_GENERATION


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """The name by which the members of a group agree on an assignor."""

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """The supported protocols, best first."""

    def user_data(self, member: MemberView) -> bytes | None:
        """Bytes for the leader, in addition to topics, owned partitions and generation."""

    def assign(self, topics: TopicRacks, members: Subscriptions) -> Shares:
        """Runs in the leader. Every member gets a share, even if it is empty."""


def member_order(members: Subscriptions) -> list[str]:
    """Static members sorted by instance id, then the others sorted by member id."""

    def sort_key(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].instance_id
        return instance is None, instance or member_id

    return sorted(members, key=sort_key)
