"""Measurements that a node of the quorum makes of its own work, for its metrics."""

from moldau.core.quorum.machine import QuorumMachine
from moldau.core.quorum.roles import Candidate, Prospective
from moldau.net.clock import Clock
from moldau.types import NO_LEADER, BrokerId


class Latency:
    """Times since the start."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0

    def add(self, ms: float) -> None:
        self.count += 1
        self.total_ms += ms
        self.max_ms = max(self.max_ms, ms)


class Measurements:
    def __init__(self, clock: Clock) -> None:
        self.commits = Latency()
        """From the append of a batch by this node as the leader until it is committed."""
        self.elections = Latency()
        """From the moment at which this node stands for election until a leader is known."""
        self.records_appended = 0
        """As the leader."""
        self.records_fetched = 0
        """From leaders."""
        self.delayed_writes = 0
        """Votes and truncations that found no free file descriptor, and were tried again."""
        self._clock = clock
        self._stood_ms: float | None = None

    def now_ms(self) -> float:
        return self._clock.mono_ms()

    def committed(self, appended_ms: float) -> None:
        self.commits.add(self.now_ms() - appended_ms)

    def stepped(self, machine: QuorumMachine) -> None:
        if self._stood_ms is None and isinstance(machine.role, Prospective | Candidate):
            self._stood_ms = self.now_ms()

    def leader_known(self, leader_id: BrokerId) -> None:
        if leader_id != NO_LEADER and self._stood_ms is not None:
            self.elections.add(self.now_ms() - self._stood_ms)
            self._stood_ms = None
