"""The states of a classic group.

    Empty ──join──> PreparingRebalance ──all joined, or time is up──> CompletingRebalance
      ^                 │      ^                                        │           │
      └──nobody left────┘      ├──join, leave, failure──────────────────┘           │
                               └──────────────Stable <──assignment committed────────┘

Any of them may become Dead: the group is coordinated elsewhere, or is not there.
"""

from enum import Enum


class GroupState(Enum):
    EMPTY = "Empty"
    """No members; offsets may linger, and simple consumers may commit."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """JoinGroups are parked until all members are back, or their time is up."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Everybody knows the new generation; SyncGroups are parked until the leader's is committed."""
    STABLE = "Stable"
    DEAD = "Dead"


ALLOWED: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


def may_rebalance(state: GroupState) -> bool:
    return GroupState.PREPARING_REBALANCE in ALLOWED[state]
