"""What an assignor is: it shares out the partitions of topics to the members of a group. Own
assignors have the same form as those that are built in.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from moldau.frozen import frozen
from moldau.types import TopicPartition

NO_GENERATION = -1

TopicRacks = Mapping[str, Sequence[frozenset[str]]]
"""For each topic and each partition of it the racks of its replicas."""
Shares = dict[str, list[TopicPartition]]
"""Member id to what it shall read."""


class RebalanceProtocol(Enum):
    EAGER = "eager"
    """Everything is given up before a rebalance."""
    COOPERATIVE = "cooperative"
    """Only what goes to another member is given up, after it."""


@frozen(kw_only=True)
class Subscription:
    """What a member says when it joins."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


Subscriptions = Mapping[str, Subscription]


@frozen(kw_only=True)
class MemberView:
    """What a member knows of itself when it is about to join."""

    topics: tuple[str, ...]
    last_assigned: tuple[TopicPartition, ...] | None = None
    """None: it never had an assignment."""
    generation: int = NO_GENERATION


class Assignor(Protocol):
    @property
    def name(self) -> str:
        """By which the members of a group agree on it."""

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """The best first."""

    def user_data(self, member: MemberView) -> bytes | None:
        """What the leader is told besides topics, owned partitions and generation."""

    def assign(self, topics: TopicRacks, members: Subscriptions) -> Shares:
        """Runs in the leader. Every member has a share, if an empty one."""


def member_order(members: Subscriptions) -> list[str]:
    """Static members by their instance, before the others by their id."""

    def place(member_id: str) -> tuple[bool, str]:
        instance = members[member_id].instance_id
        return instance is None, instance or member_id

    return sorted(members, key=place)
