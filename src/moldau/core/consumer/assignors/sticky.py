"""The sticky assignors: balanced first, and then as little moved as can be. `sticky` gives up
everything before a rebalance and so tells in its user data what it had; `cooperative-sticky` keeps
what it has, and what moves is given to its next reader one rebalance later.
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
        return _assign(topics, members, {one: _told(sub) for one, sub in members.items()})[0]


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def user_data(self, member: MemberView) -> bytes | None:
        return write_generation(member.generation)

    def assign(self, topics: TopicRacks, members: Subscriptions) -> Shares:
        pasts = {one: _owned(sub) for one, sub in members.items()}
        shares, moving = _assign(topics, members, pasts)
        if moving is None:
            moving = _moving(members, shares)
        for partition, receiver in moving.items():
            shares[receiver].remove(partition)
        return shares


def _told(subscription: Subscription) -> MemberPast:
    if not subscription.user_data:
        return MemberPast((), None)
    partitions, generation = read_previous(subscription.user_data)
    return MemberPast(tuple(partitions), generation)


def _owned(subscription: Subscription) -> MemberPast:
    if subscription.generation > NO_GENERATION:
        return MemberPast(subscription.owned, subscription.generation)
    # Members that speak older versions tell their generation in the user data.
    if subscription.user_data is None:
        return MemberPast(subscription.owned, None)
    return MemberPast(subscription.owned, read_generation(subscription.user_data))


def _assign(
    topics: TopicRacks, members: Subscriptions, pasts: Mapping[str, MemberPast]
) -> tuple[Shares, dict[TopicPartition, str] | None]:
    """Shares, and what changes its reader, if that is known."""
    members = {one: members[one] for one in in_java_order(members)}
    wanted = {topic for one in members.values() for topic in one.topics}
    topics = {topic: racks for topic, racks in topics.items() if racks and topic in wanted}
    past = find_past(set(topics), members, pasts)
    racks = RackInfo(topics, members)
    if past.same_topics:
        builder = SameTopicsAssignment(topics, racks, past)
        return builder.build(), builder.moving
    return GeneralAssignment(topics, racks, past, members).build(pasts), None


def _moving(members: Subscriptions, shares: Shares) -> dict[TopicPartition, str]:
    """What one member owns and another shall have."""
    added: dict[TopicPartition, str] = {}
    given_up: set[TopicPartition] = set()
    for member, share in shares.items():
        owned = set(members[member].owned)
        added.update(dict.fromkeys(set(share) - owned, member))
        given_up |= owned - set(share)
    return {partition: member for partition, member in added.items() if partition in given_up}
