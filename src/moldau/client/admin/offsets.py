"""ListOffsets: the first, the last, by time; and DeleteRecords, which moves the first."""

from collections.abc import Mapping
from typing import NamedTuple

from moldau.client.cluster import Cluster
from moldau.client.errors import error_code
from moldau.protocol.enums import IsolationLevel, ListOffsetsTimestamp
from moldau.protocol.error_codes import RETRIABLE
from moldau.protocol.errors import KafkaError
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
from moldau.types import TopicPartition

EARLIEST = ListOffsetsTimestamp.EARLIEST
LATEST = ListOffsetsTimestamp.LATEST
MAX_TIMESTAMP = ListOffsetsTimestamp.MAX_TIMESTAMP
NO_OFFSET = -1
HIGH_WATERMARK = -1
"""Given to delete_records: everything that is committed."""

# The first version whose brokers know what these stand for.
_SPECIAL_VERSIONS: dict[int, int] = {
    ListOffsetsTimestamp.MAX_TIMESTAMP: 7,
    ListOffsetsTimestamp.EARLIEST_LOCAL: 8,
    ListOffsetsTimestamp.LATEST_TIERED: 9,
    ListOffsetsTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
_CONSUMER = -1


class FoundOffset(NamedTuple):
    offset: int
    """NO_OFFSET: there is no such record."""
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, FoundOffset]:
    """`wanted` maps to a time in ms, or to one of ListOffsetsTimestamp."""
    found: dict[TopicPartition, FoundOffset] = {}
    oldest = max((_SPECIAL_VERSIONS.get(time, 0) for time in wanted.values()), default=0)

    async def ask_for_the_rest() -> None:
        left = [partition for partition in wanted if partition not in found]
        passing: KafkaError | None = None
        for node_id, partitions in (await cluster.by_leader(left)).items():
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=isolation,
                topics=_by_topic(partitions, wanted),
                timeout_ms=cluster.settings.request_timeout_ms,
            )
            answer = await cluster.ask(node_id, request, ListOffsetsResponse, oldest=oldest)
            passing = _take(answer, found) or passing
        if passing is not None:
            raise passing

    await cluster.with_patience(ask_for_the_rest)
    return {partition: found[partition] for partition in wanted}


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


def _take(
    answer: ListOffsetsResponse, found: dict[TopicPartition, FoundOffset]
) -> KafkaError | None:
    """Gives an error that may pass, raises one that will not."""
    passing = None
    for topic in answer.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if not row.error_code:
                found[partition] = FoundOffset(row.offset, row.timestamp, row.leader_epoch)
                continue
            error = KafkaError(error_code(row.error_code), str(partition))
            if error.code not in RETRIABLE:
                raise error
            passing = error
    return passing


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError]:
    """Deletes records below these offsets; gives the first offset of each partition then."""
    done: dict[TopicPartition, int | KafkaError] = {}
    by_leader = await cluster.with_patience(lambda: cluster.by_leader(before))
    for node_id, partitions in by_leader.items():
        topics: dict[str, DeleteRecordsTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic))
            topic.partitions.append(
                DeleteRecordsPartition(
                    partition_index=partition.partition, offset=before[partition]
                )
            )
        request = DeleteRecordsRequest(
            topics=list(topics.values()), timeout_ms=cluster.settings.request_timeout_ms
        )
        answer = await cluster.ask(node_id, request, DeleteRecordsResponse)
        for result in answer.topics:
            for row in result.partitions:
                done[TopicPartition(result.name, row.partition_index)] = (
                    KafkaError(error_code(row.error_code)) if row.error_code else row.low_watermark
                )
    return done


async def offset_ranges(
    cluster: Cluster, partitions: list[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """First offset and the one behind the last."""
    starts = await list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {one: (starts[one].offset, ends[one].offset) for one in partitions}
