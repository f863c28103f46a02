"""OffsetDelete: deletes offsets of topics that a group's members are not subscribed to."""

from collections.abc import Iterable

from moldau.broker.server.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle_offset_delete(
    ctx: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    if request.group_id == "":
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    image = ctx.broker.image
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in request.topics:
        known = image.topic(topic.name)
        indexes = known.partitions if known is not None else {}
        missing = [p for p in topic.partitions if p.partition_index not in indexes]
        if missing or known is None:
            refused[topic.name] = _refuse(topic, missing)
        topic.partitions = [p for p in topic.partitions if p.partition_index in indexes]
    request.topics = [topic for topic in request.topics if topic.partitions]
    try:
        response = await ctx.broker.groups.delete_offsets(request)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    for deleted in response.topics:
        other = refused.pop(deleted.name, None)
        if other is not None:
            deleted.partitions = [*deleted.partitions, *other.partitions]
    response.topics = [*response.topics, *refused.values()]
    return response


def _refuse(
    topic: OffsetDeleteRequestTopic, partitions: Iterable[OffsetDeleteRequestPartition]
) -> OffsetDeleteResponseTopic:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=unknown)
            for p in partitions
        ],
    )
