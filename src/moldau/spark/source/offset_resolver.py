"""Resolves the partitions that a reader reads, and their offsets, with requests to the cluster."""

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
    """Empty for brokers without topic ids."""


class Terms(NamedTuple):
    """Settings for all offsets of a reader."""

    isolation: IsolationLevel
    group_id: str | None
    is_lenient_by_time: bool


async def find_partitions(
    cluster: Cluster, strategy: Strategy, *, is_strict: bool
) -> FoundPartitions:
    """The partitions that a strategy chooses. `is_strict`: a named topic or partition that does not
    exist is an error.
    """
    names: list[str] | None
    match strategy:
        case Subscribe(topics):
            names = list(topics)
        case Assign(partitions):
            names = sorted({partition.topic for partition in partitions})
        case SubscribePattern():
            names = None
    metadata = await cluster.with_retries(lambda: cluster.metadata(names))
    if is_strict and metadata.missing:
        raise UnknownTopicError(min(metadata.missing), (await cluster.metadata(None)).topics)
    chosen = _chosen(metadata, strategy, is_strict=is_strict)
    ids = {name: metadata.topics[name].topic_id for name in {topic for topic, _ in chosen}}
    return FoundPartitions(
        tuple(sorted(chosen)),
        {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID},
    )


def _chosen(
    metadata: ClusterMetadata, strategy: Strategy, *, is_strict: bool
) -> list[TopicPartition]:
    topics = list(metadata.topics.values())
    match strategy:
        case Assign(partitions):
            existing = {partition for topic in topics for partition in topic.topic_partitions}
            if is_strict and (missing := sorted(partitions - existing)):
                raise ClientError(f"assign names {missing[0]}, which does not exist")
            return list(partitions & existing)
        case SubscribePattern(pattern):
            regex = re.compile(pattern)
            topics = [
                topic for topic in topics if regex.fullmatch(topic.name) and not topic.is_internal
            ]
        case Subscribe():
            pass
    return [partition for topic in topics for partition in topic.topic_partitions]


async def resolve(
    cluster: Cluster, bound: OffsetBound, partitions: tuple[TopicPartition, ...], terms: Terms
) -> Offsets:
    """The offset of each partition. Raises OptionError."""
    match bound:
        case Earliest():
            return await _listed(cluster, dict.fromkeys(partitions, int(EARLIEST)), terms)
        case Latest():
            return await _listed(cluster, dict.fromkeys(partitions, int(LATEST)), terms)
        case AtGroup():
            return await _from_group(cluster, partitions, terms)
        case AtOffsets(offsets, option):
            check_covers(option, offsets, partitions)
            return await _from_numbers(cluster, offsets, terms)
        case AtTime(time_ms, option):
            return await _by_time(cluster, dict.fromkeys(partitions, time_ms), option, terms)
        case AtTimes(times_ms, option):
            check_covers(option, times_ms, partitions)
            return await _by_time(cluster, times_ms, option, terms)


async def _listed(cluster: Cluster, times_ms: Offsets, terms: Terms) -> Offsets:
    listed = await list_offsets(cluster, times_ms, terms.isolation)
    return {partition: row.offset for partition, row in listed.items()}


async def _from_numbers(cluster: Cluster, numbers: Offsets, terms: Terms) -> Offsets:
    special = {offset_json.LATEST: int(LATEST), offset_json.EARLIEST: int(EARLIEST)}
    unresolved = {
        partition: special[number] for partition, number in numbers.items() if number in special
    }
    return numbers | (await _listed(cluster, unresolved, terms) if unresolved else {})


async def _from_group(
    cluster: Cluster, partitions: tuple[TopicPartition, ...], terms: Terms
) -> Offsets:
    if terms.group_id is None:
        raise OptionError("startingOffsets=group needs kafka.group.id")
    committed = await committed_offsets(cluster, terms.group_id)
    known = {
        partition: committed[partition].offset for partition in partitions if partition in committed
    }
    others = dict.fromkeys(
        [partition for partition in partitions if partition not in known], int(EARLIEST)
    )
    return known | (await _listed(cluster, others, terms) if others else {})


async def _by_time(cluster: Cluster, times_ms: Offsets, option: str, terms: Terms) -> Offsets:
    offsets = await _listed(cluster, times_ms, terms)
    late = [partition for partition, offset in offsets.items() if offset == NO_OFFSET]
    if not late:
        return offsets
    if option.startswith("starting") and not terms.is_lenient_by_time:
        raise OptionError(
            f"{option}: {late[0]} has no record at {times_ms[late[0]]} or later; "
            "set startingOffsetsByTimestampStrategy=latest to start at its end"
        )
    return offsets | await _listed(cluster, dict.fromkeys(late, int(LATEST)), terms)
