"""The assignment of partitions to a group's members: Kafka's four assignors. They give the same
results as Kafka's, so that a group may mix clients.
"""

from moldau.core.consumer.assignors.contract import (
    Assignor,
    MemberView,
    RebalanceProtocol,
    Shares,
    Subscription,
    Subscriptions,
    TopicRacks,
)
from moldau.core.consumer.assignors.range import RangeAssignor
from moldau.core.consumer.assignors.round_robin import RoundRobinAssignor
from moldau.core.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberView",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "Shares",
    "StickyAssignor",
    "Subscription",
    "Subscriptions",
    "TopicRacks",
]

ASSIGNORS: dict[str, type[Assignor]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
