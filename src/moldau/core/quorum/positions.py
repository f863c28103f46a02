"""Positions in the metadata log, and how two logs are compared by them."""

from typing import NamedTuple, Protocol

from moldau.types import FIRST_OFFSET, LeaderEpoch, Offset


class LogPosition(NamedTuple):
    """An end of the log, or of a snapshot. The greater of two positions is the more up to date: a
    later epoch wins, within an epoch the longer log.
    """

    epoch: LeaderEpoch
    """The epoch of the last record before `offset`."""
    offset: Offset
    """The first offset that is not included."""


FIRST_POSITION = LogPosition(LeaderEpoch(0), FIRST_OFFSET)
"""Also the id of the snapshot that formatting writes."""


class LogView(Protocol):
    """Read access to the log. The machine changes the log only by effects."""

    @property
    def end(self) -> LogPosition: ...

    @property
    def start_offset(self) -> Offset: ...

    @property
    def flushed_offset(self) -> Offset: ...

    @property
    def first_snapshot(self) -> LogPosition | None: ...

    @property
    def last_snapshot(self) -> LogPosition | None: ...

    def snapshot_size(self, snapshot: LogPosition) -> int | None:
        """None if there is no such snapshot."""

    def end_of_epoch(self, epoch: LeaderEpoch) -> LogPosition:
        """The last epoch up to `epoch` that has records here, and where it ends. If there is none,
        `epoch` itself, which ends where the log starts.
        """


class Valid(NamedTuple):
    """The follower's log is a prefix of the leader's."""


class Diverging(NamedTuple):
    """The follower's log has other records; `position` is the last that may be common."""

    position: LogPosition


class NeedsSnapshot(NamedTuple):
    """The leader's log no longer has the records that follow."""

    snapshot: LogPosition


def check_follower(log: LogView, follower: LogPosition) -> Valid | Diverging | NeedsSnapshot:
    """How a follower whose log ends at `follower` gets the leader's next records."""
    last = log.last_snapshot
    if follower.offset == 0 and last is not None and last != FIRST_POSITION:
        # Shorter than the log from its start, and correct whatever is in that log.
        return NeedsSnapshot(last)
    if follower.offset == 0 and log.start_offset == 0:
        return Valid()
    first = log.first_snapshot
    if first is not None and last is not None and _is_before(log, first, follower):
        return NeedsSnapshot(last)
    local = log.end_of_epoch(follower.epoch)
    if local.epoch != follower.epoch or local.offset < follower.offset:
        return Diverging(local)
    return Valid()


def _is_before(log: LogView, first: LogPosition, follower: LogPosition) -> bool:
    if follower.offset < log.start_offset or follower.epoch < first.epoch:
        return True
    return follower.offset == log.start_offset and follower.epoch != first.epoch


def truncation_offset(log: LogView, diverging: LogPosition) -> Offset:
    """How much a follower may keep if the leader's log has `diverging` as the end of its epoch."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end.offset)
    local = log.end_of_epoch(diverging.epoch)
    if local.epoch == diverging.epoch:
        return min(local.offset, diverging.offset)
    return local.offset


def has_all_of(log: LogView, snapshot: LogPosition) -> bool:
    """Whether the log contains the snapshot's records. To end later, or in a later epoch, is not
    enough: records that were never committed may be in their place.
    """
    local = log.end_of_epoch(snapshot.epoch)
    return local.epoch == snapshot.epoch and local.offset >= snapshot.offset
