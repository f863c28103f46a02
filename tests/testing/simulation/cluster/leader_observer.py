"""Watches the leader of a simulated quorum: it resigns when no majority fetches from it, and fences
a broker whose process is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from testing.simulation.history import expect

from moldau.config.broker import BrokerConfig
from moldau.core.metadata.image import MetadataImage
from moldau.core.quorum.roles import Leader
from moldau.testing.simulation.node import SimulatedNode

_EVERY_MS = 100
_GAP_MS = 1_100
"""A node does something more often than that, unless it is paused."""
_GRACE_MS = 3_000


@dataclass
class _Leading:
    role: Leader
    since_ms: float
    """It has led since then with these voters, and was not paused."""
    last_ms: float
    voters: list[int]


class LeaderObserver:
    def __init__(self, nodes: Mapping[int, SimulatedNode]) -> None:
        self._nodes = nodes
        self._leading: dict[int, _Leading] = {}
        self._gone_since_ms: dict[int, float] = {}
        """Brokers without a process, or with one that is paused."""

    def turned(self, node: SimulatedNode, role: object, now_ms: float) -> None:
        """Called after each callback of a node."""
        was = self._leading.get(node.node_id)
        if not isinstance(role, Leader):
            if was is not None:
                del self._leading[node.node_id]
            return
        voters = list(role.voters)
        is_same = was is not None and was.role is role and was.voters == voters
        if was is None or not is_same or now_ms - was.last_ms > _GAP_MS:
            self._leading[node.node_id] = _Leading(role, now_ms, now_ms, voters)
        elif now_ms - was.last_ms > _EVERY_MS:
            was.last_ms = now_ms
            self._check_majority(node, was, now_ms)

    def _check_majority(self, node: SimulatedNode, leading: _Leading, now_ms: float) -> None:
        others = sorted(
            each.last_fetch_ms
            for node_id, each in leading.role.voters.items()
            if node_id != node.node_id
        )
        needed = (len(others) + 1) // 2
        heard_ms = max(leading.since_ms, others[-needed] if needed else now_ms)
        limit_ms = 2 * _config(node).controller_quorum_fetch_timeout_ms + _GRACE_MS
        expect(
            now_ms - heard_ms < limit_ms,
            f"node {node.node_id} has led without a majority for {now_ms - heard_ms:.0f} ms",
        )

    def committed(self, node: SimulatedNode, image: MetadataImage, now_ms: float) -> None:
        """The node leads, and has just committed something."""
        leading = self._leading.get(node.node_id)
        for broker_id, broker in image.brokers.items():
            if not self._is_gone(broker_id):
                self._gone_since_ms.pop(broker_id, None)
                continue
            gone_ms = self._gone_since_ms.setdefault(broker_id, now_ms)
            if leading is None or broker.is_fenced:
                continue
            late_ms = now_ms - max(gone_ms, leading.since_ms)
            limit_ms = 1.25 * _config(node).broker_session_timeout_ms + _GRACE_MS
            expect(
                late_ms < limit_ms,
                f"broker {broker_id} is gone for {late_ms:.0f} ms, and is not fenced",
            )

    def _is_gone(self, node_id: int) -> bool:
        process = self._nodes[node_id].machine.process
        return process is None or process.is_paused


def _config(node: SimulatedNode) -> BrokerConfig:
    assert node.node is not None
    return node.node.config
