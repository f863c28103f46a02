"""OffsetCommit: commits offsets of existing partitions, for a member of a group or without one."""

from collections.abc import Iterable

from moldau.broker.coordinators.group_requests import caller_of
from moldau.broker.server.context import RequestContext
from moldau.core.metadata.image import TopicImage
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from moldau.protocol.versions import OFFSET_COMMIT_TOPIC_IDS


async def handle_offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    accepted: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        image = _find(ctx, topic)
        if image is None:
            by_id = ctx.version >= OFFSET_COMMIT_TOPIC_IDS
            unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refuse(topic, topic.partitions, unknown))
            continue
        indexes = image.partitions
        missing = [p for p in topic.partitions if p.partition_index not in indexes]
        if missing:
            refused.append(_refuse(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [p for p in topic.partitions if p.partition_index in indexes]
        if topic.partitions:
            topic.name, topic.topic_id = image.name, image.topic_id
            accepted.append(topic)
    committed = await _commit(ctx, request, accepted) if accepted else []
    return OffsetCommitResponse(topics=_merged(committed, refused) if refused else committed)


def _find(ctx: RequestContext, topic: OffsetCommitRequestTopic) -> TopicImage | None:
    image = ctx.broker.image
    if ctx.version >= OFFSET_COMMIT_TOPIC_IDS:
        return image.topics_by_id.get(topic.topic_id)
    return image.topic(topic.name)


async def _commit(
    ctx: RequestContext, request: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic]
) -> list[OffsetCommitResponseTopic]:
    request.topics = topics
    try:
        response = await ctx.broker.groups.commit_offsets(request, ctx.version, caller_of(ctx))
    except KafkaError as error:
        return [_refuse(topic, topic.partitions, error.code) for topic in topics]
    return response.topics


def _refuse(
    topic: OffsetCommitRequestTopic,
    partitions: Iterable[OffsetCommitRequestPartition],
    code: ErrorCode,
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in partitions
        ],
    )


def _merged(
    committed: list[OffsetCommitResponseTopic], refused: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """A topic's partitions may be divided between the two."""
    merged: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    for topic in (*committed, *refused):
        known = merged.setdefault((topic.name, topic.topic_id), topic)
        if known is not topic:
            known.partitions = [*known.partitions, *topic.partitions]
    return list(merged.values())
