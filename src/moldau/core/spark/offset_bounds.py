"""Where reading begins or ends, as options say it."""

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
    """Where the consumer group is that the query publishes; at the earliest where it is nowhere."""


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


Place: TypeAlias = Earliest | Latest | AtGroup | AtOffsets | AtTime | AtTimes
