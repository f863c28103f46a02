"""The states of a classic group.

    Empty ──join──> PreparingRebalance ──all joined, or timeout─────> CompletingRebalance
      ^                 │      ^                                        │           │
      └──all left───────┘      ├──join, leave, failure──────────────────┘           │
                               └──────────────Stable <──assignment committed────────┘

Every state may become Dead: the group is coordinated elsewhere, or does not exist.
"""

from enum import Enum


class GroupState(Enum):
    EMPTY = "Empty"
    """No members; committed offsets may remain, and simple consumers may commit."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """JoinGroups are parked until all members have joined or the timeout expires."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Members know the new generation; SyncGroups are parked until the assignment is committed."""
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
