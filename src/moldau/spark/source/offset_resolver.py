"""What of the cluster a reader asks before it reads: which partitions, from where to where."""

import re
from typing import NamedTuple

from moldau.client.admin.groups import committed_offsets
from moldau.client.admin.offsets import EARLIEST, LATEST, list_offsets
from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import ClusterMetadata
from moldau.client.errors import ClientError, UnknownTopicError
from moldau.core.spark import offset_json
from moldau.core.spark.errors import OptionError
from moldau.core.spark.offset_bounds import (
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    OffsetBound,
)
from moldau.core.spark.offset_json import Offsets, check_covers
from moldau.core.spark.options import Assign, Strategy, Subscribe, SubscribePattern
from moldau.protocol.enums import IsolationLevel
from moldau.types import NO_OFFSET, ZERO_UUID, TopicPartition, Uuid


class FoundPartitions(NamedTuple):
    partitions: tuple[TopicPartition, ...]
    topic_ids: dict[str, Uuid]
    """Without those of brokers that have none."""


class Terms(NamedTuple):
    """What holds for all offsets of a reader."""

    isolation: IsolationLevel
    group_id: str | None
    is_lenient_by_time: bool


async def find_partitions(
    cluster: Cluster, strategy: Strategy, *, is_strict: bool
) -> FoundPartitions:
    """`is_strict`: a topic or partition that is named and not there is an error."""
    names: list[str] | None
    match strategy:
        case Subscribe(topics):
            names = list(topics)
        case Assign(partitions):
            names = sorted({one.topic for one in partitions})
        case SubscribePattern():
            names = None
    found = await cluster.with_patience(lambda: cluster.metadata(names))
    if is_strict and found.missing:
        raise UnknownTopicError(min(found.missing), (await cluster.metadata(None)).topics)
    chosen = _chosen(found, strategy, is_strict=is_strict)
    read = {one.topic for one in chosen}
    ids = {name: topic.topic_id for name, topic in found.topics.items() if name in read}
    return FoundPartitions(
        tuple(sorted(chosen)), {name: one for name, one in ids.items() if one != ZERO_UUID}
    )


def _chosen(found: ClusterMetadata, strategy: Strategy, *, is_strict: bool) -> list[TopicPartition]:
    match strategy:
        case Assign(partitions):
            there = {one for topic in found.topics.values() for one in topic.topic_partitions}
            if is_strict and (missing := sorted(partitions - there)):
                raise ClientError(f"assign names {missing[0]}, which does not exist")
            return list(partitions & there)
        case SubscribePattern(pattern):
            wanted = re.compile(pattern)
            return [
                one
                for name, topic in found.topics.items()
                if wanted.fullmatch(name) and not topic.is_internal
                for one in topic.topic_partitions
            ]
        case Subscribe():
            return [one for topic in found.topics.values() for one in topic.topic_partitions]


async def resolve(
    cluster: Cluster, place: OffsetBound, partitions: tuple[TopicPartition, ...], terms: Terms
) -> Offsets:
    """The offset of each partition. Raises OptionError."""
    match place:
        case Earliest():
            return await _listed(cluster, dict.fromkeys(partitions, int(EARLIEST)), terms)
        case Latest():
            return await _listed(cluster, dict.fromkeys(partitions, int(LATEST)), terms)
        case AtGroup():
            return await _of_group(cluster, partitions, terms)
        case AtOffsets(offsets, option):
            check_covers(option, offsets, partitions)
            return await _of_numbers(cluster, offsets, terms)
        case AtTime(time_ms, option):
            return await _by_time(cluster, dict.fromkeys(partitions, time_ms), option, terms)
        case AtTimes(times_ms, option):
            check_covers(option, times_ms, partitions)
            return await _by_time(cluster, times_ms, option, terms)


async def _listed(cluster: Cluster, wanted: Offsets, terms: Terms) -> Offsets:
    found = await list_offsets(cluster, wanted, terms.isolation)
    return {one: row.offset for one, row in found.items()}


async def _of_numbers(cluster: Cluster, given: Offsets, terms: Terms) -> Offsets:
    special = {offset_json.LATEST: int(LATEST), offset_json.EARLIEST: int(EARLIEST)}
    asked = {one: special[number] for one, number in given.items() if number in special}
    return given | (await _listed(cluster, asked, terms) if asked else {})


async def _of_group(
    cluster: Cluster, partitions: tuple[TopicPartition, ...], terms: Terms
) -> Offsets:
    if terms.group_id is None:
        raise OptionError("startingOffsets=group needs kafka.group.id")
    committed = await committed_offsets(cluster, terms.group_id)
    found = {one: committed[one].offset for one in partitions if one in committed}
    rest = dict.fromkeys([one for one in partitions if one not in found], int(EARLIEST))
    return found | (await _listed(cluster, rest, terms) if rest else {})


async def _by_time(cluster: Cluster, times_ms: Offsets, option: str, terms: Terms) -> Offsets:
    found = await _listed(cluster, times_ms, terms)
    late = [one for one, offset in found.items() if offset == NO_OFFSET]
    if not late:
        return found
    if option.startswith("starting") and not terms.is_lenient_by_time:
        raise OptionError(
            f"{option}: {late[0]} has no record at {times_ms[late[0]]} or later; "
            "startingOffsetsByTimestampStrategy=latest begins at its end"
        )
    return found | await _listed(cluster, dict.fromkeys(late, int(LATEST)), terms)
