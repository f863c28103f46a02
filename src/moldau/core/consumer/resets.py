"""Where to start without a position: auto.offset.reset, or a seek to the beginning or end."""

import re
from enum import Enum

from moldau.frozen import frozen
from moldau.protocol.enums import ListOffsetsTimestamp

_DURATION = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class ResetKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"
    NONE = "none"
    """A missing position is an error."""


@frozen
class ResetPolicy:
    kind: ResetKind
    duration_ms: int = 0

    def timestamp(self, now_ms: int) -> int:
        """The timestamp for ListOffsets."""
        if self.kind is ResetKind.EARLIEST:
            return ListOffsetsTimestamp.EARLIEST
        if self.kind is ResetKind.LATEST:
            return ListOffsetsTimestamp.LATEST
        return max(now_ms - self.duration_ms, 0)


EARLIEST = ResetPolicy(ResetKind.EARLIEST)
LATEST = ResetPolicy(ResetKind.LATEST)


def parse_reset(text: str) -> ResetPolicy:
    """Raises ValueError."""
    if text in {"earliest", "latest", "none"}:
        return ResetPolicy(ResetKind(text))
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groupdict().values()):
        raise ValueError(f"auto.offset.reset={text} is not latest, earliest, none or by_duration")
    total_ms = sum(float(amount) * _UNITS_MS[unit] for unit, amount in match.groupdict("0").items())
    return ResetPolicy(ResetKind.BY_DURATION, round(total_ms))
