"""One change of one partition: leader, in-sync replicas, eligible leader replicas (KIP-966).

Candidates for leader, in this order: the current leader (the preferred replica first in a preferred
election), then the replicas in their order, each of which must be in sync, or eligible while no
replica is in sync; then the last known leader; then, in an unclean election, any live replica.

Every change also completes a reassignment whose new replicas are all in sync.
"""

from collections.abc import Callable, Iterator
from enum import Enum, auto

from moldau.core.controller.partitions.reassignment import Reassignment
from moldau.core.metadata.image import PartitionImage
from moldau.core.metadata.topic_changes import NO_LEADER_CHANGE
from moldau.frozen import frozen
from moldau.protocol.enums import LeaderRecoveryState
from moldau.protocol.log_records import PartitionChangeRecord
from moldau.types import NO_LEADER, BrokerId, Uuid


class Election(Enum):
    ONLINE = auto()
    """Elects an in-sync replica, only if the leader cannot stay."""
    PREFERRED = auto()
    """Elects the first replica if it is in sync."""
    UNCLEAN = auto()
    """A leader that may have lost records is better than no leader."""


@frozen(kw_only=True)
class Rules:
    may_lead: Callable[[BrokerId], bool]
    """Whether a replica's broker is alive and its directory online."""
    min_isr: int
    has_eligible_replicas: bool
    """Whether the feature eligible.leader.replicas.version is on."""
    default_directory: Callable[[BrokerId], Uuid] | None = None
    """The directory of a broker's new replica; None below the level that has directory ids."""
    bumps_epoch_on_shrink: bool = False
    """Before 3.6 brokers needed a new leader epoch when the in-sync set shrank."""


@frozen(kw_only=True)
class Target:
    """The requested change; a field that is None stays as it is."""

    isr: tuple[BrokerId, ...] | None = None
    election: Election = Election.ONLINE
    lost_replicas: frozenset[BrokerId] = frozenset()
    """Their brokers stopped uncleanly and may have lost acknowledged records."""
    recovery_state: int | None = None
    directory: tuple[BrokerId, Uuid] | None = None
    """A broker and the directory of its replica."""
    reassignment: Reassignment | None = None


def change_record(
    topic_id: Uuid, partition_id: int, now: PartitionImage, rules: Rules, target: Target
) -> PartitionChangeRecord | None:
    """None if nothing changes."""
    change = _Change(now, rules, target)
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
    change.elect(record)
    change.bump_epoch_if_replicas_go(record)
    change.set_members(record)
    change.set_last_known_leader(record)
    change.set_assignment(record)
    if target.recovery_state is not None and target.recovery_state != now.leader_recovery_state:
        record.leader_recovery_state = target.recovery_state
    unchanged = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
    return None if record == unchanged else record


class _Change:
    def __init__(self, now: PartitionImage, rules: Rules, target: Target) -> None:
        self._now = now
        self._rules = rules
        self._election = target.election
        self._directory = target.directory
        assignment = target.reassignment or Reassignment.of(now)
        isr = now.isr if target.isr is None else target.isr
        self._assignment, self._isr = assignment.completed(isr) or (assignment, isr)
        self._eligible = self._eligible_without(target.lost_replicas)
        self._is_unclean = False

    def elect(self, record: PartitionChangeRecord) -> None:
        leader = self._leader()
        if leader == self._now.leader:
            return
        record.leader = leader
        if self._is_unclean:
            record.isr = [leader]
            if self._now.leader_recovery_state != LeaderRecoveryState.RECOVERING:
                record.leader_recovery_state = LeaderRecoveryState.RECOVERING
        elif leader in self._eligible:
            self._isr = (leader,)
            self._eligible = tuple(r for r in self._eligible if r != leader)

    def bump_epoch_if_replicas_go(self, record: PartitionChangeRecord) -> None:
        """Without a new leader epoch a removed replica could keep acting as one."""
        loses_replicas = not set(self._now.replicas) <= set(self._assignment.replicas)
        if loses_replicas and record.leader == NO_LEADER_CHANGE:
            record.leader = self._now.leader

    def set_assignment(self, record: PartitionChangeRecord) -> None:
        now, assignment = self._now, self._assignment
        default = self._rules.default_directory
        if default is not None:
            known = dict(zip(now.replicas, now.directories, strict=True))
            known |= {} if self._directory is None else [self._directory]
            directories = [known.get(each) or default(each) for each in assignment.replicas]
            if tuple(directories) != now.directories:
                record.directories = directories
        if assignment.replicas != now.replicas:
            record.replicas = list(assignment.replicas)
        if assignment.removing != now.removing_replicas:
            record.removing_replicas = list(assignment.removing)
        if assignment.adding != now.adding_replicas:
            record.adding_replicas = list(assignment.adding)

    def set_members(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None or not self._rules.has_eligible_replicas:
            self._eligible = ()
        if self._eligible != self._now.eligible_leader_replicas:
            record.eligible_leader_replicas = list(self._eligible)
        # Without eligible replicas, the last in-sync replica stays in the set when its broker
        # stops: only this replica may become leader again.
        may_be_empty = self._rules.has_eligible_replicas
        if record.isr is None and self._isr != self._now.isr and (self._isr or may_be_empty):
            record.isr = list(self._isr)
        shrinks = record.isr is not None and not set(self._now.isr) <= set(record.isr)
        if self._rules.bumps_epoch_on_shrink and shrinks and record.leader == NO_LEADER_CHANGE:
            record.leader = self._now.leader

    def set_last_known_leader(self, record: PartitionChangeRecord) -> None:
        if not self._rules.has_eligible_replicas:
            return
        if record.leader == NO_LEADER and not self._now.last_known_elr:
            record.last_known_elr = [self._now.leader]
        elif record.leader >= 0 and self._now.last_known_elr:
            record.last_known_elr = []

    def _eligible_without(self, lost: frozenset[BrokerId]) -> tuple[BrokerId, ...]:
        if not self._rules.has_eligible_replicas:
            return ()
        if len(self._isr) >= self._rules.min_isr:
            return ()
        were_in = dict.fromkeys(self._now.eligible_leader_replicas + self._now.isr)
        return tuple(r for r in were_in if r not in self._isr and r not in lost)

    def _leader(self) -> BrokerId:
        for candidate in self._candidates():
            in_sync = candidate in self._isr or (not self._isr and candidate in self._eligible)
            if in_sync and self._rules.may_lead(candidate):
                return candidate
        unclean = next(filter(self._rules.may_lead, self._unclean_candidates()), NO_LEADER)
        self._is_unclean = unclean != NO_LEADER
        return unclean

    def _candidates(self) -> Iterator[BrokerId]:
        if self._election is Election.PREFERRED:
            yield self._assignment.replicas[0]
        yield self._now.leader
        yield from self._assignment.replicas

    def _unclean_candidates(self) -> Iterator[BrokerId]:
        has_none_left = not self._isr and not self._eligible
        last_known = self._now.last_known_elr
        if self._rules.has_eligible_replicas and has_none_left and len(last_known) == 1:
            yield last_known[0]
        if self._election is Election.UNCLEAN:
            yield from self._assignment.replicas
