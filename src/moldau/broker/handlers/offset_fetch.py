"""OffsetFetch: the offsets that groups have committed, for the named partitions or for all."""

from collections.abc import Iterator
from functools import partial

from moldau.broker.server.context import RequestContext
from moldau.core.metadata.image import MetadataImage
from moldau.net.slices import Slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from moldau.protocol.versions import OFFSET_FETCH_GROUPS, OFFSET_FETCH_TOPIC_IDS
from moldau.types import ZERO_UUID

_GROUP_ERROR_FROM = 2
_TOPICS_AT_ONCE = 1_000

# Consumers before 3.9 do not expect this error here, and handle it like a coordinator that moved.
_FOR_OLD_CLIENTS = {ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR}


async def handle_offset_fetch(
    ctx: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    if ctx.version >= OFFSET_FETCH_GROUPS:
        groups = []
        slices = Slices()
        for group in _distinct(request.groups):
            groups.append(await _fetch(ctx, group, request.require_stable))
            if slices.is_over:
                await slices.next()
        return OffsetFetchResponse(groups=groups)
    only = await _fetch(ctx, await ctx.work(_only_group, request), request.require_stable)
    topics = await ctx.work(lambda: list(map(_as_old, only.topics)))
    return OffsetFetchResponse(error_code=only.error_code, topics=topics)


def _distinct(groups: list[OffsetFetchRequestGroup]) -> Iterator[OffsetFetchRequestGroup]:
    """All offsets of a group are returned once, however often they are requested: Kafka repeats
    them each time, so that a small request can have an unbounded response. Partitions that are
    named are answered as often as they are named.
    """
    answered: set[str] = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in answered:
                continue
            answered.add(group.group_id)
        yield group


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes)
            for t in topics
        ],
    )


def _as_old(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=p.partition_index,
                committed_offset=p.committed_offset,
                committed_leader_epoch=p.committed_leader_epoch,
                metadata=p.metadata,
                error_code=p.error_code,
            )
            for p in topic.partitions
        ],
    )


async def _fetch(
    ctx: RequestContext, group: OffsetFetchRequestGroup, requires_stable: bool
) -> OffsetFetchResponseGroup:
    by_id = ctx.version >= OFFSET_FETCH_TOPIC_IDS
    # A request may also be large for its many groups, each of which is small.
    is_long = len(group.topics or ()) > _TOPICS_AT_ONCE
    image, unknown = ctx.broker.image, []
    if by_id:
        naming = partial(_name_topics, image, group)
        unknown = await ctx.work(naming) if is_long else naming()
    try:
        fetched = await ctx.broker.groups.fetch_offsets(group, requires_stable=requires_stable)
    except KafkaError as error:
        return _refused(group, _FOR_OLD_CLIENTS.get(error.code, error.code), ctx.version)
    if by_id:
        identifying = partial(_identified, image, fetched.topics)
        known = await ctx.work(identifying) if is_long else identifying()
        fetched.topics = [*known, *unknown]
    return fetched


def _name_topics(
    image: MetadataImage, group: OffsetFetchRequestGroup
) -> list[OffsetFetchResponseTopics]:
    """Removes topics that do not exist from the request, and returns their responses."""
    known: list[OffsetFetchRequestTopics] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for topic in group.topics or ():
        name = image.topic_name(topic.topic_id)
        if name is None:
            unknown.append(_refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = name
            known.append(topic)
    if group.topics is not None:
        group.topics = known
    return unknown


def _identified(
    image: MetadataImage, topics: list[OffsetFetchResponseTopics]
) -> list[OffsetFetchResponseTopics]:
    """A topic without an id cannot be named in these versions, so a deleted one is left out."""
    for topic in topics:
        known = image.topic(topic.name)
        if topic.topic_id == ZERO_UUID and known is not None:
            topic.topic_id = known.topic_id
    return [topic for topic in topics if topic.topic_id != ZERO_UUID]


def _refused(
    group: OffsetFetchRequestGroup, code: ErrorCode, version: int
) -> OffsetFetchResponseGroup:
    if version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
    topics = [_refused_topic(topic, code) for topic in group.topics or ()]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _refused_topic(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, error_code=code
            )
            for index in topic.partition_indexes
        ],
    )
