"""All partitions in order, dealt out one by one to those who want them."""

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

    def user_data(self, member: MemberView) -> bytes | None:  # noqa: ARG002 - an assignor's form
        return None

    def assign(self, topics: TopicRacks, members: Subscriptions) -> Shares:
        shares: Shares = {member: [] for member in members}
        wanted = {topic for one in members.values() for topic in one.topics}
        turns = cycle(member_order(members))
        for topic in sorted(wanted & topics.keys()):
            for number in range(len(topics[topic])):
                member = next(one for one in turns if topic in members[one].topics)
                shares[member].append(TopicPartition(topic, number))
        return shares
