"""Where reading begins or ends, as given by options."""

from typing import TypeAlias

from moldau.core.spark.offset_json import Offsets
from moldau.frozen import frozen


@frozen
class Earliest:
    pass


@frozen
class Latest:
    pass


@frozen
class AtGroup:
    """The committed offsets of the query's consumer group; the earliest where it has none."""


@frozen
class AtOffsets:
    offsets: Offsets
    """-1 means latest, -2 earliest."""
    option: str


@frozen
class AtTime:
    time_ms: int
    option: str


@frozen
class AtTimes:
    times_ms: Offsets
    option: str


OffsetBound: TypeAlias = Earliest | Latest | AtGroup | AtOffsets | AtTime | AtTimes
