"""Placement of new partitions' replicas: striped over racks, and over the brokers of each rack.
Spreading over racks has priority, then evenness, then unfenced brokers; the first replica, the
leader, is always unfenced. Each partition starts one rack and one broker after the previous one.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

if TYPE_CHECKING:
    import random


@frozen
class UsableBroker:
    """A registered broker that is not shutting down."""

    broker_id: int
    rack: str | None
    is_fenced: bool


def place(
    brokers: Iterable[UsableBroker],
    partition_count: int,
    replication_factor: int,
    chance: "random.Random",
) -> list[list[int]]:
    """The replicas of each partition, leader first. Raises INVALID_REPLICATION_FACTOR."""
    stripes = _Stripes(brokers, chance)
    stripes.check(replication_factor)
    return [stripes.place(replication_factor) for _ in range(partition_count)]


class _Ring:
    """Hands out brokers in turn. Each round (one partition) starts at the next broker."""

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._used = 0
        self._start = 0
        self._round = 0

    def start(self, chance: "random.Random") -> None:
        self.brokers.sort()
        self._start = chance.randrange(len(self.brokers)) if self.brokers else 0

    def next(self, current_round: int) -> int | None:
        if not self.brokers:
            return None
        if self._round != current_round:
            self._round = current_round
            self._used = 0
            self._start = (self._start + 1) % len(self.brokers)
        if self._used >= len(self.brokers):
            return None
        broker = self.brokers[(self._start + self._used) % len(self.brokers)]
        self._used += 1
        return broker


class _Rack:
    def __init__(self) -> None:
        self.unfenced = _Ring()
        self.fenced = _Ring()

    @property
    def rings(self) -> tuple[_Ring, _Ring]:
        return self.fenced, self.unfenced

    def next(self, current_round: int) -> int | None:
        broker = self.unfenced.next(current_round)
        return broker if broker is not None else self.fenced.next(current_round)


class _Stripes:
    def __init__(self, brokers: Iterable[UsableBroker], chance: "random.Random") -> None:
        self._chance = chance
        by_name: dict[str | None, _Rack] = {}
        for broker in brokers:
            rack = by_name.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.is_fenced else rack.unfenced).brokers.append(broker.broker_id)
        for rack in by_name.values():
            for ring in rack.rings:
                ring.start(chance)
        names = sorted(by_name, key=lambda name: (name is not None, name or ""))
        self._racks = [by_name[name] for name in names]
        self._unfenced_count = sum(len(rack.unfenced.brokers) for rack in self._racks)
        self._total = sum(len(ring.brokers) for rack in self._racks for ring in rack.rings)
        self._round = 0
        self._first = chance.randrange(len(self._racks)) if self._racks else 0

    def check(self, replication_factor: int) -> None:
        if replication_factor <= 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Invalid replication factor {replication_factor}: "
                "the replication factor must be positive.",
            )
        if self._unfenced_count == 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "All brokers are currently fenced, or have all their log directories cordoned.",
            )
        if replication_factor > self._total:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The target replication factor of {replication_factor} cannot be reached because "
                f"only {self._total} broker(s) are registered or some brokers have all their log "
                "directories cordoned.",
            )

    def place(self, replication_factor: int) -> list[int]:
        # Every unfenced broker leads a partition now: shuffle, so that the next ones get other sets
        # of replicas.
        if self._round == self._unfenced_count and self._unfenced_count > 1:
            self._shuffle()
            self._round = 0
        self._first %= len(self._racks)
        leader, leader_rack = self._leader()
        replicas = [leader]
        at = self._first
        is_first_pass = True
        while len(replicas) < replication_factor:
            # In the first pass over the racks, the leader counts as its rack's replica.
            if is_first_pass and at == leader_rack:
                is_first_pass = False
            else:
                broker = self._racks[at].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            at = (at + 1) % len(self._racks)
        self._round += 1
        self._first += 1
        return replicas

    def _leader(self) -> tuple[int, int]:
        for step in range(len(self._racks)):
            at = (self._first + step) % len(self._racks)
            broker = self._racks[at].unfenced.next(self._round)
            if broker is not None:
                return broker, at
        raise AssertionError("check() found an unfenced broker")

    def _shuffle(self) -> None:
        self._chance.shuffle(self._racks)
        for rack in self._racks:
            for ring in rack.rings:
                self._chance.shuffle(ring.brokers)
