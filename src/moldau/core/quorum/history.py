"""The voters and the kraft.version at every offset of the log. A node uses the last ones in its
log, committed or not, and returns to earlier ones when the log is truncated. Snapshots record those
of their own end.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from moldau.core.quorum.voters import NO_VOTERS, VoterSet
from moldau.frozen import frozen
from moldau.types import NO_OFFSET, Offset

T = TypeVar("T")


class QuorumChange(NamedTuple):
    """A record of the log that changes the quorum."""

    offset: Offset
    value: "VoterSet | KRaftVersion"


@frozen
class KRaftVersion:
    level: int


Changes: TypeAlias = tuple[QuorumChange, ...]


class History(Generic[T]):
    """Values by the offset from which they hold."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._values: list[T] = []

    @property
    def last(self) -> T | None:
        return self._values[-1] if self._values else None

    @property
    def last_but_one(self) -> T | None:
        return self._values[-2] if len(self._values) > 1 else None

    @property
    def last_offset(self) -> Offset:
        return Offset(self._offsets[-1]) if self._offsets else NO_OFFSET

    def add(self, offset: Offset, value: T) -> None:
        if self._offsets and self._offsets[-1] == offset:
            self._values[-1] = value
            return
        self._offsets.append(offset)
        self._values.append(value)

    def at(self, offset: Offset) -> T | None:
        """The value after the record at `offset`."""
        index = bisect_right(self._offsets, offset)
        return self._values[index - 1] if index else None

    def truncate(self, end_offset: Offset) -> None:
        """Removes the values of records from `end_offset` on."""
        while self._offsets and self._offsets[-1] >= end_offset:
            self._offsets.pop()
            self._values.pop()

    def forget_before(self, start_offset: Offset) -> None:
        """Keeps only the last of the values from before `start_offset`."""
        surplus = bisect_left(self._offsets, start_offset) - 1
        if surplus > 0:
            del self._offsets[:surplus]
            del self._values[:surplus]

    def clear(self) -> None:
        self._offsets.clear()
        self._values.clear()


class QuorumHistory:
    def __init__(self, static_voters: VoterSet) -> None:
        """`static_voters` come from the settings: they count until the log names others."""
        self._static_voters = static_voters
        self._voters: History[VoterSet] = History()
        self._versions: History[int] = History()

    @property
    def voters(self) -> VoterSet:
        return self._voters.last or self._static_voters

    @property
    def voters_offset(self) -> Offset:
        """Where the last record of the voters is; NO_OFFSET if there is none but the one that
        formatting wrote into a snapshot.
        """
        return self._voters.last_offset

    @property
    def voters_before(self) -> VoterSet:
        """Those that the last record of the voters replaced; none if a snapshot has it."""
        return self._voters.last_but_one or NO_VOTERS

    @property
    def kraft_version(self) -> int:
        return self._versions.last or 0

    def add(self, changes: Iterable[QuorumChange]) -> None:
        for offset, value in changes:
            if isinstance(value, VoterSet):
                self._voters.add(offset, value)
            else:
                self._versions.add(offset, value.level)

    def voters_at(self, offset: Offset) -> VoterSet | None:
        """None if the log did not name voters yet."""
        return self._voters.at(offset)

    def kraft_version_at(self, offset: Offset) -> int:
        return self._versions.at(offset) or 0

    def truncate(self, end_offset: Offset) -> None:
        self._voters.truncate(end_offset)
        self._versions.truncate(end_offset)

    def forget_before(self, start_offset: Offset) -> None:
        self._voters.forget_before(start_offset)
        self._versions.forget_before(start_offset)

    def restart(self, changes: Iterable[QuorumChange]) -> None:
        """Everything before was replaced by a snapshot, which has these values."""
        self._voters.clear()
        self._versions.clear()
        self.add(changes)
