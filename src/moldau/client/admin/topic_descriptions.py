"""Topics from DescribeTopicPartitions: page by page, with the replicas that may lead though they
are not in sync (KIP-966). Brokers before 3.8 get a Metadata request instead.
"""

from collections.abc import Collection

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import Partition, Topic
from moldau.client.errors import ClientError, UnknownTopicError
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError, error_code
from moldau.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)

PAGE_PARTITIONS = 2000


async def describe_topics(
    cluster: Cluster, names: Collection[str], *, page: int = PAGE_PARTITIONS
) -> dict[str, Topic | MoldauError]:
    connection = await cluster.connection(None)
    if not names or not connection.serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS):
        return await _described_by_metadata(cluster, names)
    described: dict[str, Topic | MoldauError] = {}
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=page
    )
    while True:
        answer = await connection.send(request, DescribeTopicPartitionsResponse)
        for row in answer.topics:
            _take(row, described)
        cursor = answer.next_cursor
        if cursor is None:
            return {name: described.get(name) or UnknownTopicError(name) for name in names}
        before = request.cursor
        request.cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=cursor.topic_name, partition_index=cursor.partition_index
        )
        if request.cursor == before:
            last = f"{cursor.topic_name}-{cursor.partition_index}"
            raise ClientError(f"the broker's answers do not advance beyond {last}")


async def _described_by_metadata(
    cluster: Cluster, names: Collection[str]
) -> dict[str, Topic | MoldauError]:
    found = await cluster.metadata(names, is_lenient=True)
    return {
        name: found.topics.get(name) or found.failures.get(name) or UnknownTopicError(name)
        for name in names
    }


def _take(
    row: DescribeTopicPartitionsResponseTopic, described: dict[str, Topic | MoldauError]
) -> None:
    name = row.name or ""
    match row.error_code:
        case ErrorCode.NONE:
            # A page may begin in the middle of a topic.
            before = described.get(name)
            partitions = before.partitions if isinstance(before, Topic) else {}
            partitions |= {
                partition.partition_index: _partition(partition) for partition in row.partitions
            }
            described[name] = Topic(name, row.topic_id, row.is_internal, partitions)
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            described[name] = UnknownTopicError(name)
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            described[name] = ClientError(f"'{name}' cannot be the name of a topic")
        case number:
            described[name] = KafkaError(error_code(number), f"topic '{name}'")


def _partition(row: DescribeTopicPartitionsResponsePartition) -> Partition:
    return Partition(
        row.partition_index,
        row.leader_id,
        row.leader_epoch,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.offline_replicas),
        tuple(row.eligible_leader_replicas or ()),
        tuple(row.last_known_elr or ()),
    )
