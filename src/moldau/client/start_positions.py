"""Where reading begins and where it may end."""

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from moldau.client.admin.offsets import EARLIEST, LATEST, list_offsets
from moldau.client.cluster.cluster import Cluster
from moldau.protocol.enums import IsolationLevel
from moldau.types import NO_OFFSET, TopicPartition


class Place(Enum):
    BEGINNING = auto()
    END = auto()
    OFFSET = auto()
    TIME = auto()
    TAIL = auto()


class StartAt(NamedTuple):
    place: Place
    number: int = 0
    """The offset, the time in ms, or how many before the end."""


async def start_positions(
    cluster: Cluster, partitions: Iterable[TopicPartition], start: StartAt
) -> dict[TopicPartition, int]:
    """Offsets that are there: one beyond an end is that end."""
    wanted = list(partitions)
    ends = await end_positions(cluster, wanted)
    if start.place is Place.END:
        return ends
    if start.place is Place.TIME:
        found = await list_offsets(cluster, dict.fromkeys(wanted, start.number))
        return {
            one: ends[one] if place.offset == NO_OFFSET else place.offset
            for one, place in found.items()
        }
    starts = await list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    chosen = {}
    for one in wanted:
        match start.place:
            case Place.OFFSET:
                offset = start.number
            case Place.TAIL:
                offset = ends[one] - start.number
            case _:
                offset = starts[one].offset
        chosen[one] = min(max(offset, starts[one].offset), ends[one])
    return chosen


async def end_positions(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Behind the last record that the isolation level lets see."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, int(LATEST)), isolation)
    return {one: place.offset for one, place in found.items()}
