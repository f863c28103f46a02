"""A metadata log in memory for the quorum machine: epochs instead of records, and what is on the
disk kept apart from what is not.
"""

import pickle
from typing import NamedTuple

from moldau.core.quorum.history import Changes, KRaftVersion, QuorumChange
from moldau.core.quorum.positions import FIRST_POSITION, LogPosition
from moldau.core.quorum.voters import VoterSet
from moldau.protocol.log_records import KRaftVersionRecord
from moldau.protocol.records.control_records import ControlType
from moldau.protocol.wire.codec import decode
from moldau.types import LeaderEpoch, Offset


class Entry(NamedTuple):
    epoch: int
    value: "VoterSet | KRaftVersion | str"
    """A change of the quorum, or any other record."""


class MemoryLog:
    def __init__(self, changes: Changes = ()) -> None:
        """`changes` are in the snapshot that formatting wrote."""
        self.entries: list[Entry] = []
        self.start_offset = Offset(0)
        self.flushed_offset = Offset(0)
        self.start_changes = changes
        self.snapshots: list[LogPosition] = [FIRST_POSITION] if changes else []
        self.snapshot_changes: dict[LogPosition, Changes] = {FIRST_POSITION: changes}

    # What the machine reads

    @property
    def end(self) -> LogPosition:
        epoch = self.entries[-1].epoch if self.entries else self._start_epoch
        return LogPosition(LeaderEpoch(epoch), Offset(self.start_offset + len(self.entries)))

    @property
    def first_snapshot(self) -> LogPosition | None:
        return self.snapshots[0] if self.snapshots else None

    @property
    def last_snapshot(self) -> LogPosition | None:
        return self.snapshots[-1] if self.snapshots else None

    def snapshot_size(self, snapshot: LogPosition) -> int | None:
        return len(self.snapshot_bytes(snapshot)) if snapshot in self.snapshots else None

    def end_of_epoch(self, epoch: LeaderEpoch) -> LogPosition:
        found = [index for index, entry in enumerate(self.entries) if entry.epoch <= epoch]
        if found:
            last = found[-1]
            return LogPosition(
                LeaderEpoch(self.entries[last].epoch), Offset(self.start_offset + last + 1)
            )
        if self.start_offset and self._start_epoch <= epoch:
            return LogPosition(LeaderEpoch(self._start_epoch), self.start_offset)
        return LogPosition(epoch, self.start_offset)

    @property
    def _start_epoch(self) -> int:
        at_start = [each.epoch for each in self.snapshots if each.offset == self.start_offset]
        return at_start[-1] if at_start else 0

    # What effects change

    def append(self, entries: list[Entry]) -> Changes:
        base = self.end.offset
        self.entries += entries
        return self._changes_in(entries, base)

    def changes(self) -> Changes:
        """All that the log and the snapshot before it say."""
        return self.start_changes + self._changes_in(self.entries, self.start_offset)

    def _changes_in(self, entries: list[Entry], base: int) -> Changes:
        return tuple(
            QuorumChange(Offset(base + index), entry.value)
            for index, entry in enumerate(entries)
            if not isinstance(entry.value, str)
        )

    def truncate(self, end_offset: int) -> None:
        del self.entries[max(0, end_offset - self.start_offset) :]
        self.flushed_offset = min(self.flushed_offset, Offset(end_offset))

    def read(self, offset: int, most: int) -> list[Entry]:
        begin = offset - self.start_offset
        return self.entries[begin : begin + most]

    def entry(self, offset: int) -> Entry:
        return self.entries[offset - self.start_offset]

    # Snapshots

    def make_snapshot(self, end_offset: int) -> LogPosition:
        """And clean the log before it."""
        epoch = self.entry(end_offset - 1).epoch
        snapshot = LogPosition(LeaderEpoch(epoch), Offset(end_offset))
        before = tuple(each for each in self.changes() if each.offset < end_offset)
        self._start_at(snapshot, before)
        return snapshot

    def snapshot_bytes(self, snapshot: LogPosition) -> bytes:
        return pickle.dumps(self.snapshot_changes[snapshot])

    def install(self, snapshot: LogPosition, content: bytes) -> Changes:
        self.entries = []
        changes: Changes = pickle.loads(content)
        self.start_offset = snapshot.offset
        self._start_at(snapshot, changes)
        self.flushed_offset = snapshot.offset
        return changes

    def _start_at(self, snapshot: LogPosition, changes: Changes) -> None:
        """A snapshot has the last voters and the last version, at its own end."""
        last = {type(each.value): each.value for each in changes}
        at = Offset(snapshot.offset - 1)
        kept = tuple(QuorumChange(at, value) for value in last.values())
        del self.entries[: snapshot.offset - self.start_offset]
        self.start_offset = snapshot.offset
        self.start_changes = kept
        self.snapshots = [snapshot]
        self.snapshot_changes = {snapshot: kept}


def control_entries(epoch: int, values: tuple[tuple[ControlType, bytes], ...]) -> list[Entry]:
    """The entries of a control batch."""
    entries = []
    for kind, content in values:
        if kind is ControlType.KRAFT_VOTERS:
            entries.append(Entry(epoch, VoterSet.decode(content)))
        elif kind is ControlType.KRAFT_VERSION:
            level = decode(KRaftVersionRecord, 0, content).kraft_version
            entries.append(Entry(epoch, KRaftVersion(level)))
        else:
            entries.append(Entry(epoch, kind.name))
    return entries
