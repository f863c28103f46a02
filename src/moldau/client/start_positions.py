"""The offsets at which reading starts and ends, for commands."""

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from moldau.client.admin.offsets import EARLIEST, LATEST, list_offsets
from moldau.client.cluster.cluster import Cluster
from moldau.protocol.enums import IsolationLevel
from moldau.types import NO_OFFSET, TopicPartition


class StartPosition(Enum):
    """A way to choose the first offset of a partition."""

    BEGINNING = auto()
    END = auto()
    OFFSET = auto()
    TIME = auto()
    TAIL = auto()


class StartAt(NamedTuple):
    """The choice of a command's user."""

    position: StartPosition
    number: int = 0
    """The offset, the time in ms, or the number of records before the end."""


async def start_positions(
    cluster: Cluster, partitions: Iterable[TopicPartition], start: StartAt
) -> dict[TopicPartition, int]:
    """The offset to start at in each partition, limited to offsets that exist."""
    wanted = list(partitions)
    ends = await end_positions(cluster, wanted)
    if start.position is StartPosition.END:
        return ends
    if start.position is StartPosition.TIME:
        found = await list_offsets(cluster, dict.fromkeys(wanted, start.number))
        return {
            partition: ends[partition] if at.offset == NO_OFFSET else at.offset
            for partition, at in found.items()
        }
    starts = await list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    chosen = {}
    for partition in wanted:
        match start.position:
            case StartPosition.OFFSET:
                offset = start.number
            case StartPosition.TAIL:
                offset = ends[partition] - start.number
            case _:
                offset = starts[partition].offset
        chosen[partition] = min(max(offset, starts[partition].offset), ends[partition])
    return chosen


async def end_positions(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offset after the last record that may be read at the isolation level."""
    found = await list_offsets(cluster, dict.fromkeys(partitions, int(LATEST)), isolation)
    return {partition: at.offset for partition, at in found.items()}
