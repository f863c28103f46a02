"""The sticky assignors: balance comes first, then as few moves as possible. `sticky` revokes all
partitions before a rebalance and sends the former ones in its user data; `cooperative-sticky` keeps
its partitions, and one that moves gets its new reader one rebalance later.
"""

from collections.abc import Mapping

from moldau.core.consumer.assignors.contract import (
    NO_GENERATION,
    MemberView,
    RebalanceProtocol,
    Shares,
    Subscription,
    Subscriptions,
    TopicRacks,
)
from moldau.core.consumer.assignors.racks import RackInfo
from moldau.core.consumer.assignors.sticky_general import GeneralAssignment
from moldau.core.consumer.assignors.sticky_same import SameTopicsAssignment
from moldau.core.consumer.assignors.sticky_state import MemberPast, find_past, in_java_order
from moldau.core.consumer.assignors.user_data import (
    read_generation,
    read_previous,
    write_generation,
    write_previous,
)
from moldau.types import TopicPartition


class StickyAssignor:
    name = "sticky"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, member: MemberView) -> bytes | None:
        if member.last_assigned is None:
            return None
        return write_previous(member.last_assigned, member.generation)

    def assign(self, topics: TopicRacks, members: Subscriptions) -> Shares:
        return _assign(
            topics, members, {member: _sent_past(sub) for member, sub in members.items()}
        )[0]


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def user_data(self, member: MemberView) -> bytes | None:
        return write_generation(member.generation)

    def assign(self, topics: TopicRacks, members: Subscriptions) -> Shares:
        pasts = {member: _owned_past(sub) for member, sub in members.items()}
        shares, moving = _assign(topics, members, pasts)
        if moving is None:
            moving = _moving(members, shares)
        for partition, receiver in moving.items():
            shares[receiver].remove(partition)
        return shares


def _sent_past(subscription: Subscription) -> MemberPast:
    if not subscription.user_data:
        return MemberPast((), None)
    partitions, generation = read_previous(subscription.user_data)
    return MemberPast(tuple(partitions), generation)


def _owned_past(subscription: Subscription) -> MemberPast:
    if subscription.generation > NO_GENERATION:
        return MemberPast(subscription.owned, subscription.generation)
    # Members with older versions send their generation in the user data.
    if subscription.user_data is None:
        return MemberPast(subscription.owned, None)
    return MemberPast(subscription.owned, read_generation(subscription.user_data))


def _assign(
    topics: TopicRacks, members: Subscriptions, pasts: Mapping[str, MemberPast]
) -> tuple[Shares, dict[TopicPartition, str] | None]:
    """The shares, and the partitions that change their reader, if known."""
    members = {member: members[member] for member in in_java_order(members)}
    subscribed = {topic for sub in members.values() for topic in sub.topics}
    topics = {topic: racks for topic, racks in topics.items() if racks and topic in subscribed}
    past = find_past(set(topics), members, pasts)
    racks = RackInfo(topics, members)
    if past.same_topics:
        builder = SameTopicsAssignment(topics, racks, past)
        return builder.build(), builder.moving
    return GeneralAssignment(topics, racks, past, members).build(pasts), None


def _moving(members: Subscriptions, shares: Shares) -> dict[TopicPartition, str]:
    """The partitions that one member owns and another will get."""
    added: dict[TopicPartition, str] = {}
    removed: set[TopicPartition] = set()
    for member, share in shares.items():
        owned = set(members[member].owned)
        added.update(dict.fromkeys(set(share) - owned, member))
        removed |= owned - set(share)
    return {partition: member for partition, member in added.items() if partition in removed}
