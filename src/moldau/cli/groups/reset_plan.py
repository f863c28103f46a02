"""The new offsets of `moldau groups reset-offsets`: each method of Kafka's tool, with the same
results.
"""

import csv
import io
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from moldau.cli.shared.parsing import parse_partitions
from moldau.client.admin.groups import committed_offsets
from moldau.client.admin.offsets import LATEST, list_offsets, offset_ranges
from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import ClientError
from moldau.frozen import frozen
from moldau.types import NO_OFFSET, TopicPartition

Plan: TypeAlias = dict[TopicPartition, int]
Warn: TypeAlias = Callable[[str], None]


@frozen(kw_only=True)
class ResetScope:
    topics: tuple[str, ...] = ()
    """`orders` or `orders:0,1`"""
    all_topics: bool = False

    async def partitions(self, cluster: Cluster, group_id: str) -> list[TopicPartition]:
        if self.all_topics:
            chosen = list(await committed_offsets(cluster, group_id))
        else:
            names, chosen = parse_partitions(self.topics)
            for topic in (await cluster.topics(names)).values():
                chosen += topic.topic_partitions
        topics = await cluster.topics(partition.topic for partition in chosen)
        for partition in chosen:
            # Raises if the topic does not have it.
            topics[partition.topic].partition(partition.partition)
        return sorted(set(chosen))


@frozen(kw_only=True)
class Request:
    cluster: Cluster
    group_id: str
    partitions: list[TopicPartition]
    warn: Warn


ResetMethod: TypeAlias = Callable[[Request], Awaitable[Plan]]


async def to_earliest(request: Request) -> Plan:
    ranges = await offset_ranges(request.cluster, request.partitions)
    return {partition: start for partition, (start, _) in ranges.items()}


async def to_latest(request: Request) -> Plan:
    return await _ends(request, request.partitions)


async def to_current(request: Request) -> Plan:
    """A partition without a committed offset goes to the end."""
    committed = await committed_offsets(request.cluster, request.group_id)
    known = {
        partition: committed[partition].offset
        for partition in request.partitions
        if partition in committed
    }
    others = [partition for partition in request.partitions if partition not in known]
    return known | await _ends(request, others)


def to_offset(offset: int) -> ResetMethod:
    async def plan(request: Request) -> Plan:
        return await _within_logs(request, dict.fromkeys(request.partitions, offset))

    return plan


def shift_by(count: int) -> ResetMethod:
    async def plan(request: Request) -> Plan:
        committed = await committed_offsets(request.cluster, request.group_id)
        shifted = {}
        for partition in request.partitions:
            if partition not in committed:
                raise ClientError(
                    f"group '{request.group_id}' has no committed offset for {partition} to shift"
                )
            shifted[partition] = committed[partition].offset + count
        return await _within_logs(request, shifted)

    return plan


def to_time(time_ms: int) -> ResetMethod:
    """The first record at that time or later; the end if there is none."""

    async def plan(request: Request) -> Plan:
        offsets = await list_offsets(request.cluster, dict.fromkeys(request.partitions, time_ms))
        too_late = [partition for partition, at in offsets.items() if at.offset == NO_OFFSET]
        for partition in too_late:
            request.warn(f"{partition} has no record at or after that time; using its end")
        known = {
            partition: at.offset for partition, at in offsets.items() if partition not in too_late
        }
        return known | await _ends(request, too_late)

    return plan


def from_plans(plans: Mapping[str, Plan]) -> ResetMethod:
    async def plan(request: Request) -> Plan:
        if request.group_id not in plans:
            raise ClientError(f"the file has no plan for group '{request.group_id}'")
        return await _within_logs(request, plans[request.group_id])

    return plan


async def _ends(request: Request, partitions: list[TopicPartition]) -> Plan:
    ends = await list_offsets(request.cluster, dict.fromkeys(partitions, int(LATEST)))
    return {partition: end.offset for partition, end in ends.items()}


async def _within_logs(request: Request, requested: Plan) -> Plan:
    ranges = await offset_ranges(request.cluster, list(requested))
    plan = {}
    for partition, offset in requested.items():
        start, end = ranges[partition]
        bounded = plan[partition] = min(max(offset, start), end)
        if bounded != offset:
            edge = "end" if offset > end else "first offset"
            request.warn(
                f"{partition}: offset {offset} is not in the log; using its {edge}, {bounded}"
            )
    return plan


def read_plans(content: str, group_ids: Iterable[str]) -> dict[str, Plan]:
    """Kafka's CSV: topic,partition,offset for one group; group,topic,partition,offset for more."""
    groups = list(group_ids)
    plans: dict[str, Plan] = {}
    for number, row in enumerate(csv.reader(io.StringIO(content)), start=1):
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == 3 and len(groups) == 1:
            cells.insert(0, groups[0])
        if len(cells) != 4 or not all(map(_is_count, cells[2:])):
            shape = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise ClientError(f"line {number} of the file is not {shape}: {','.join(row)}")
        group, topic, partition, offset = cells
        plans.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
    return plans


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()


def write_plans(plans: Mapping[str, Plan]) -> str:
    """CSV that `read_plans` reads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, plan in plans.items():
        for partition, offset in plan.items():
            row = [partition.topic, partition.partition, offset]
            writer.writerow(row if len(plans) == 1 else [group, *row])
    return out.getvalue()
