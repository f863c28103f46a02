"""How a group's partitions are shared out: Kafka's four assignors, with its results."""

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
