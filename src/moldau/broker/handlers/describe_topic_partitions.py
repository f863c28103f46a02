"""DescribeTopicPartitions: topics in the order of their names, a limited number of partitions at a
time; the cursor of a response says where the next one continues.
"""

from moldau.broker.cluster.cluster_view import ClusterView, authorized_operations
from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import is_internal, is_valid_name
from moldau.core.metadata.image import MetadataImage, PartitionImage, TopicImage
from moldau.net.slices import Slices
from moldau.protocol.enums import ResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


async def handle_describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    view = ClusterView(ctx.broker.image, ctx.peer.listener_name)
    image, cursor = view.image, request.cursor
    first_name = cursor.topic_name if cursor is not None else ""
    wants_all = not request.topics
    names = await ctx.work(_names, image, request, first_name)
    if cursor is not None:
        _check_cursor(names, first_name, cursor.partition_index, wants_all=wants_all)
    limit = min(
        ctx.broker.config.max_request_partition_size_limit, request.response_partition_limit
    )
    room = max(limit, 1)
    response = DescribeTopicPartitionsResponse()
    slices = Slices()
    for name in names:
        if slices.is_over:
            await slices.next()
        if room == 0:
            response.next_cursor = _cursor(name, 0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        start = cursor.partition_index if cursor is not None and name == first_name else 0
        described = _described(view, topic, start, room)
        response.topics.append(described)
        room -= len(described.partitions)
        end = start + len(described.partitions)
        if end < len(topic.partitions):
            response.next_cursor = _cursor(name, end)
            break
    return response


def _names(
    image: MetadataImage, request: DescribeTopicPartitionsRequest, first_name: str
) -> list[str]:
    """The names from `first_name` on. Python orders strings as Java does for every valid topic
    name.
    """
    selected = {topic.name for topic in request.topics} if request.topics else image.topics
    return sorted(name for name in selected if name >= first_name)


def _check_cursor(names: list[str], first_name: str, index: int, *, wants_all: bool) -> None:
    if not wants_all and first_name not in names:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "DescribeTopicPartitionsRequest topic list should contain the cursor topic: "
            f"{first_name}",
        )
    if index < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"DescribeTopicPartitionsRequest cursor partition must be valid: {index}",
        )


def _cursor(name: str, index: int) -> DescribeTopicPartitionsResponseCursor:
    return DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=index)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_valid_name(name)
        else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=authorized_operations(ResourceType.TOPIC),
    )


def _described(
    view: ClusterView, topic: TopicImage, start: int, room: int
) -> DescribeTopicPartitionsResponseTopic:
    indexes = range(start, min(len(topic.partitions), start + room))
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(view, index, topic.partitions[index]) for index in indexes],
        topic_authorized_operations=authorized_operations(ResourceType.TOPIC),
    )


def _partition(
    view: ClusterView, index: int, partition: PartitionImage
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=view.leader(partition),
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=view.offline_replicas(partition),
    )
