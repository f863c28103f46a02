"""ListOffsets, which finds the first offset, the last one, or one by time; and DeleteRecords, which
moves the first.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from moldau.client.cluster.cluster import Cluster
from moldau.client.errors import ClientError, UnknownTopicError
from moldau.protocol.enums import IsolationLevel, ListOffsetsTimestamp
from moldau.protocol.error_codes import RETRIABLE
from moldau.protocol.errors import KafkaError, MoldauError, error_code
from moldau.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.versions import LIST_OFFSETS_SPECIAL
from moldau.types import CONSUMER_REPLICA, TopicPartition

Result = TypeVar("Result")
Rows: TypeAlias = dict[TopicPartition, tuple[int, Result]]
"""An error code, 0 for none, and the result."""

EARLIEST = ListOffsetsTimestamp.EARLIEST
LATEST = ListOffsetsTimestamp.LATEST
MAX_TIMESTAMP = ListOffsetsTimestamp.MAX_TIMESTAMP
HIGH_WATERMARK = -1
"""For delete_records: the offset after all committed records."""


class FoundOffset(NamedTuple):
    """An offset that `Admin.list_offsets` found."""

    offset: int
    """-1 if no record matches."""
    timestamp: int
    """The timestamp of the record, in milliseconds since 1970; -1 for EARLIEST and LATEST."""
    leader_epoch: int
    """The epoch of the leader that wrote the record; -1 if it is unknown."""


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset]:
    """Finds an offset for each partition, by a time in ms or a ListOffsetsTimestamp. Raises the
    first error of a partition.
    """
    found: dict[TopicPartition, FoundOffset] = {}
    for partition, result in (await list_offsets_each(cluster, wanted, isolation)).items():
        if isinstance(result, MoldauError):
            raise result
        found[partition] = result
    return found


async def list_offsets_each(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset | MoldauError]:
    """Like `list_offsets`, but the error of a partition is its result."""
    oldest = max((LIST_OFFSETS_SPECIAL.get(time, 0) for time in wanted.values()), default=0)

    async def send(node_id: int, partitions: list[TopicPartition]) -> Rows[FoundOffset]:
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA,
            isolation_level=isolation,
            topics=_by_topic(partitions, wanted),
            timeout_ms=cluster.settings.request_timeout_ms,
        )
        answer = await cluster.send(node_id, request, ListOffsetsResponse, oldest=oldest)
        return {
            TopicPartition(topic.name, row.partition_index): (
                row.error_code,
                FoundOffset(row.offset, row.timestamp, row.leader_epoch),
            )
            for topic in answer.topics
            for row in topic.partitions
        }

    return await _send_to_leaders(cluster, wanted, send)


async def _send_to_leaders(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    send: Callable[[int, list[TopicPartition]], Awaitable[Rows[Result]]],
) -> dict[TopicPartition, Result | MoldauError]:
    """Sends a request to each leader for its partitions. If leadership has moved, retries with the
    new leaders.
    """
    done: dict[TopicPartition, Result | MoldauError] = {}
    missing: dict[TopicPartition, MoldauError] = {}
    retriable: dict[TopicPartition, KafkaError] = {}

    async def attempt() -> None:
        retriable.clear()
        left = [
            partition
            for partition in partitions
            if partition not in done and partition not in missing
        ]
        for node_id, led in (await cluster.by_leader(left)).items():
            for partition, (number, result) in (await send(node_id, led)).items():
                error = KafkaError(error_code(number), str(partition))
                if not number:
                    done[partition] = result
                elif error.code in RETRIABLE:
                    retriable[partition] = error
                else:
                    done[partition] = error
        if retriable:
            raise next(iter(retriable.values()))

    missing |= await _missing(cluster, partitions)
    try:
        await cluster.with_retries(attempt)
    except KafkaError:
        if not retriable:
            raise
    everything = done | missing | retriable
    return {partition: everything[partition] for partition in partitions}


async def _missing(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, MoldauError]:
    """The errors of the partitions that do not exist."""
    refused: dict[TopicPartition, MoldauError] = {}
    for name in dict.fromkeys(partition.topic for partition in partitions):
        of_topic = [partition for partition in partitions if partition.topic == name]
        try:
            topic = await cluster.topic(name)
        except UnknownTopicError as error:
            refused |= dict.fromkeys(of_topic, error)
            continue
        for partition in of_topic:
            try:
                topic.partition(partition.partition)
            except ClientError as error:
                refused[partition] = error
    return refused


def _by_topic(
    partitions: list[TopicPartition], wanted: Mapping[TopicPartition, int]
) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=partition.partition, timestamp=wanted[partition])
        )
    return list(topics.values())


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | MoldauError]:
    """Deletes records before these offsets. Returns the first remaining one of each partition."""

    async def send(node_id: int, partitions: list[TopicPartition]) -> Rows[int]:
        topics: dict[str, DeleteRecordsTopic] = {}
        for name, number in partitions:
            row = DeleteRecordsPartition(
                partition_index=number, offset=before[TopicPartition(name, number)]
            )
            topics.setdefault(name, DeleteRecordsTopic(name=name)).partitions.append(row)
        request = DeleteRecordsRequest(
            topics=list(topics.values()), timeout_ms=cluster.settings.request_timeout_ms
        )
        answer = await cluster.send(node_id, request, DeleteRecordsResponse)
        return {
            TopicPartition(topic.name, row.partition_index): (row.error_code, row.low_watermark)
            for topic in answer.topics
            for row in topic.partitions
        }

    return await _send_to_leaders(cluster, before, send)


async def offset_ranges(
    cluster: Cluster, partitions: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """The first offset and the end offset of each partition."""
    starts = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {key: (starts[key].offset, ends[key].offset) for key in partitions}
