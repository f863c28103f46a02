"""KRaft consensus as a state machine: events in, effects out. The shell carries out the effects in
order, one after the other, so a vote or an epoch is on the disk before anything uses it.

| state | event | next | action |
|---|---|---|---|
| unattached | Started as the only voter | leader | vote for itself in epoch + 1, lead it |
| unattached | Started with other voters | - | refused with VotersError |
| leader | VersionRaised | leader | voters come from the log, no longer from settings |
| leader | Flushed past the epoch's first record | leader | the high watermark rises |
| leader | Stopping | resigned | no leader; appends fail |
| resigned | Started (the next start) | leader | lead a new epoch |

A single voter wins every election at once, so the states prospective, candidate and follower do not
occur yet.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, TypeAlias

from moldau.core.quorum.election import Election
from moldau.core.quorum.voters import (
    KRAFT_VERSION_MAX,
    RECONFIGURABLE_FROM,
    Voter,
    VoterKey,
    VoterSet,
)
from moldau.frozen import frozen
from moldau.protocol.errors import MoldauError
from moldau.protocol.log_records import KRaftVersionRecord, LeaderChangeMessage
from moldau.protocol.log_records.leader_change_message import Voter as LeaderChangeVoter
from moldau.protocol.records.control_records import ControlType
from moldau.protocol.wire.codec import encode
from moldau.types import NO_LEADER, NO_OFFSET, BrokerId, LeaderEpoch, Offset

LEADER_CHANGE_VERSION = 0
KRAFT_VERSION_RECORD_VERSION = 0


class VotersError(MoldauError):
    """This node cannot take part in the quorum that its disk or its settings describe."""


class State(Enum):
    UNATTACHED = "unattached"
    LEADER = "leader"
    RESIGNED = "resigned"


# Events


@frozen(kw_only=True)
class Started:
    """The node has started. The fields are read from the disk and the settings."""

    log_end_offset: Offset
    last_epoch: int
    """The epoch of the last record, or of the snapshot before the log."""
    election: Election | None
    voters: VoterSet
    voters_offset: Offset
    """The offset of the voters' record in the log; -1 if only the format's snapshot or the settings
    name them.
    """
    kraft_version: int


@frozen
class Appended:
    """The leader appended records."""

    end_offset: Offset


@frozen
class VersionRaised:
    """The leader appended `version_records` at `offset`."""

    level: int
    offset: Offset


@frozen
class Flushed:
    """Everything before `end_offset` is on this node's disk."""

    end_offset: Offset


@frozen
class Stopping:
    """The node is shutting down cleanly."""


Event: TypeAlias = Started | Appended | VersionRaised | Flushed | Stopping

# Effects


@frozen
class StoreElection:
    """Written to the disk and synced before the next effect."""

    election: Election


@frozen
class StartEpoch:
    """The log must know the epoch before its first record."""

    epoch: int


@frozen
class AppendControlBatch:
    """One batch at the end of the log."""

    epoch: int
    values: tuple[tuple[ControlType, bytes], ...]


@frozen
class Commit:
    """Everything before `high_watermark` is committed."""

    high_watermark: Offset


@frozen
class LeaderChanged:
    """Comes after everything before the epoch is committed. NO_LEADER if this node resigned."""

    epoch: int
    leader_id: BrokerId


Effect: TypeAlias = StoreElection | StartEpoch | AppendControlBatch | Commit | LeaderChanged


class Progress(NamedTuple):
    """A voter's flushed offset, and when it was reported."""

    flushed_offset: Offset
    reported_ms: int


_NO_PROGRESS = Progress(Offset(0), -1)


class ReplicaStatus(NamedTuple):
    """A replica in the response of DescribeQuorum."""

    key: VoterKey
    log_end_offset: Offset
    last_fetch_ms: int
    last_caught_up_ms: int


@frozen(kw_only=True)
class QuorumStatus:
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[ReplicaStatus, ...]
    observers: tuple[ReplicaStatus, ...] = ()
    """Always empty: with one node, no observer fetches the metadata log."""
    endpoints: tuple[Voter, ...] = ()


class QuorumMachine:
    def __init__(self, local: Voter) -> None:
        self.local = local
        self.state = State.UNATTACHED
        self.epoch = 0
        self.leader_id: BrokerId = NO_LEADER
        self.voters = VoterSet({})
        self.kraft_version = 0
        self.high_watermark: Offset = NO_OFFSET
        """NO_OFFSET until a record of the leader's own epoch is committed."""
        self.epoch_start_offset: Offset = NO_OFFSET
        self.voters_written_offset: Offset = NO_OFFSET
        """The offset of this epoch's last record of the voters."""
        self.log_end_offset = 0
        self._progress: dict[int, Progress] = {}

    @property
    def is_leader(self) -> bool:
        return self.state is State.LEADER

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case Started():
                return self._start(event)
            case Appended(end_offset):
                self.log_end_offset = end_offset
                return []
            case VersionRaised(level, offset):
                self.kraft_version, self.voters = level, self.voters.updated(self.local)
                self.voters_written_offset = offset
                return []
            case Flushed(end_offset):
                return self._flushed_to(end_offset, now_ms)
            case Stopping():
                return self._resign()

    def status(self, now_ms: int) -> QuorumStatus:
        """The leader itself counts as caught up at any time."""
        voters = []
        for voter in self.voters.by_id.values():
            is_local = voter.is_same(self.local.key)
            progress = self._progress.get(voter.key.node_id, _NO_PROGRESS)
            reported_ms = now_ms if is_local else progress.reported_ms
            end_offset = self.log_end_offset if is_local else progress.flushed_offset
            voters.append(ReplicaStatus(voter.key, Offset(end_offset), reported_ms, reported_ms))
        return QuorumStatus(
            leader_id=self.leader_id,
            leader_epoch=LeaderEpoch(self.epoch),
            high_watermark=self.high_watermark,
            voters=tuple(voters),
            endpoints=tuple(self.voters.by_id.values()),
        )

    def _start(self, event: Started) -> list[Effect]:
        self._check_voters(event)
        self.voters = event.voters
        self.kraft_version = event.kraft_version
        self.log_end_offset = self.epoch_start_offset = event.log_end_offset
        self.voters_written_offset = event.log_end_offset
        known_epoch = max(event.last_epoch, 0 if event.election is None else event.election.epoch)
        # Also if this node was killed after it voted for itself in the known epoch: an epoch costs
        # nothing, and a new one surely has no leader yet.
        self.epoch = known_epoch + 1
        self.state = State.LEADER
        self.leader_id = self.local.key.node_id
        return [
            StoreElection(Election(epoch=self.epoch, voted_for=self.local.key)),
            StoreElection(Election(epoch=self.epoch, leader_id=self.leader_id)),
            StartEpoch(self.epoch),
            AppendControlBatch(self.epoch, self._first_records(event.voters_offset)),
        ]

    def _check_voters(self, event: Started) -> None:
        voters, key = event.voters, self.local.key
        if event.kraft_version > KRAFT_VERSION_MAX:
            raise VotersError(
                f"kraft.version {event.kraft_version} is not supported: {KRAFT_VERSION_MAX} is"
            )
        if voters.is_only(key):
            return
        if not voters.by_id:
            raise VotersError(
                f"there are no voters: format node {key.node_id} with --standalone, "
                "or set controller.quorum.voters"
            )
        if len(voters.by_id) == 1 and key.node_id in voters.by_id:
            raise VotersError(
                f"the voter is node {voters}, and this is node {key}: "
                "the metadata directory was replaced or formatted again"
            )
        raise VotersError(
            f"the quorum's voters are {voters}, and this is node {key}: "
            "only a quorum of this one node is supported so far"
        )

    def _first_records(self, voters_offset: Offset) -> tuple[tuple[ControlType, bytes], ...]:
        """Record the leader in the log, and the voters unless the log has them already."""
        voters = [LeaderChangeVoter(voter_id=voter_id) for voter_id in self.voters.by_id]
        change = LeaderChangeMessage(
            version=LEADER_CHANGE_VERSION,
            leader_id=self.leader_id,
            voters=voters,
            granting_voters=[LeaderChangeVoter(voter_id=self.leader_id)],
        )
        records = [(ControlType.LEADER_CHANGE, encode(change, LEADER_CHANGE_VERSION))]
        if self.kraft_version >= RECONFIGURABLE_FROM and (
            voters_offset < 0 or self.voters.needs_update(self.local)
        ):
            records += self.version_records(self.kraft_version)
            self.voters = self.voters.updated(self.local)
        return tuple(records)

    def version_records(self, level: int) -> tuple[tuple[ControlType, bytes], ...]:
        """The records that raise kraft.version, after which a voter is a node and its directory."""
        voters = self.voters.updated(self.local)
        return (
            (ControlType.KRAFT_VERSION, encode_kraft_version(level)),
            (ControlType.KRAFT_VOTERS, voters.encode()),
        )

    def _flushed_to(self, end_offset: Offset, now_ms: int) -> list[Effect]:
        if self.state is not State.LEADER:
            return []
        self._progress[self.local.key.node_id] = Progress(end_offset, now_ms)
        reached = majority_offset(
            self._progress.get(voter, _NO_PROGRESS).flushed_offset for voter in self.voters.by_id
        )
        # A record of the leader's own epoch must be among them: only then can no other leader have
        # different records at the offsets before it.
        if reached <= max(self.epoch_start_offset, self.high_watermark):
            return []
        is_first = self.high_watermark == NO_OFFSET
        self.high_watermark = Offset(reached)
        effects: list[Effect] = [Commit(Offset(reached))]
        if is_first:
            effects.append(LeaderChanged(self.epoch, self.leader_id))
        return effects

    def _resign(self) -> list[Effect]:
        """The resignation is not stored: the next start begins a new epoch anyway."""
        if self.state is not State.LEADER:
            return []
        self.state = State.RESIGNED
        self.leader_id = NO_LEADER
        return [LeaderChanged(self.epoch, NO_LEADER)]


def majority_offset(reached: Iterable[int]) -> int:
    """The highest offset that more than half of the voters have reached."""
    descending = sorted(reached, reverse=True)
    return descending[len(descending) // 2]


def encode_kraft_version(level: int) -> bytes:
    record = KRaftVersionRecord(version=KRAFT_VERSION_RECORD_VERSION, kraft_version=level)
    return encode(record, KRAFT_VERSION_RECORD_VERSION)
