"""All partitions in order, assigned in turn to the members that subscribe to their topics."""

from itertools import cycle

from moldau.core.consumer.assignors.contract import (
    MemberView,
    RebalanceProtocol,
    Shares,
    Subscriptions,
    TopicRacks,
    member_order,
)
from moldau.types import TopicPartition


class RoundRobinAssignor:
    name = "roundrobin"
    protocols = (RebalanceProtocol.EAGER,)

    def user_data(self, member: MemberView) -> bytes | None:  # noqa: ARG002 - part of the interface
        return None

    def assign(self, topics: TopicRacks, members: Subscriptions) -> Shares:
        shares: Shares = {member: [] for member in members}
        subscribed = {topic for sub in members.values() for topic in sub.topics}
        turns = cycle(member_order(members))
        for topic in sorted(subscribed & topics.keys()):
            for number in range(len(topics[topic])):
                member = next(each for each in turns if topic in members[each].topics)
                shares[member].append(TopicPartition(topic, number))
        return shares
