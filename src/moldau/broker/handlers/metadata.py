"""Metadata: brokers, topics, and who leads what, as seen through the client's listener. Topics that
do not exist are made on the way if the client wants that and the node allows it.
"""

from moldau.broker.cluster_view import (
    NO_LEADER,
    authorized_operations,
    brokers_of,
    controller_id,
    is_reachable,
    offline_replicas,
    reachable_leader,
)
from moldau.broker.context import RequestContext
from moldau.core.controller.topic_names import is_internal, is_valid_name
from moldau.core.metadata.image import MetadataImage, PartitionImage, TopicImage
from moldau.protocol.enums import ResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.types import ZERO_UUID, Uuid

_IDS_FROM = 12
"""From this version on topics may be named by their ids, although ids can be sent before."""
_LISTENER_ERROR_FROM = 6


async def handle_metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse:
    asked = request.topics
    if asked is None or (ctx.version == 0 and not asked):
        return _response(ctx, request, _all_topics(ctx))
    if any(_is_unclear(topic, ctx.version) for topic in asked):
        return MetadataResponse(topics=[_refused(topic) for topic in asked])
    ids = list(dict.fromkeys(each.topic_id for each in asked if each.topic_id != ZERO_UUID))
    if ids:
        return _response(ctx, request, [_topic_with_id(ctx, topic_id) for topic_id in ids])
    names = list(dict.fromkeys(each.name for each in asked if each.name is not None))
    missing = [name for name in names if not _exists(ctx.broker.image, name)]
    if (
        missing
        and request.allow_auto_topic_creation
        and ctx.broker.config.auto_create_topics_enable
    ):
        await ctx.broker.topic_creation.ensure(missing)
    return _response(ctx, request, [_topic_named(ctx, name) for name in names])


def _response(
    ctx: RequestContext, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    image = ctx.broker.image
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in brokers_of(image, ctx.peer.listener_name)
            if not broker.is_fenced
        ],
        cluster_id=ctx.broker.cluster_id,
        controller_id=controller_id(image, ctx.broker.node_id),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations(ResourceType.CLUSTER)
    if request.include_topic_authorized_operations:
        for topic in topics:
            # Nothing is said about an id that nobody knows.
            if topic.name is not None:
                topic.topic_authorized_operations = authorized_operations(ResourceType.TOPIC)
    return response


def _is_unclear(asked: MetadataRequestTopic, version: int) -> bool:
    has_id = asked.topic_id != ZERO_UUID
    if version < _IDS_FROM:
        return has_id or asked.name is None
    return not has_id and asked.name is None


def _exists(image: MetadataImage, name: str) -> bool:
    topic = image.topics.get(name)
    return topic is not None and bool(topic.partitions)


def _refused(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id
    )


def _all_topics(ctx: RequestContext) -> list[MetadataResponseTopic]:
    topics = ctx.broker.image.topics.values()
    return [_known(ctx, topic) for topic in topics if topic.partitions]


def _topic_with_id(ctx: RequestContext, topic_id: Uuid) -> MetadataResponseTopic:
    topic = ctx.broker.image.topics_by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )
    return _known(ctx, topic)


def _topic_named(ctx: RequestContext, name: str) -> MetadataResponseTopic:
    topic = ctx.broker.image.topics.get(name)
    if topic is not None and topic.partitions:
        return _known(ctx, topic)
    code = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_valid_name(name)
        else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name))


def _known(ctx: RequestContext, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(ctx, *numbered) for numbered in topic.partitions.items()],
    )


def _partition(
    ctx: RequestContext, index: int, partition: PartitionImage
) -> MetadataResponsePartition:
    image, listener = ctx.broker.image, ctx.peer.listener_name
    replicas, in_sync = list(partition.replicas), list(partition.isr)
    if ctx.version == 0:
        # Its clients look every replica up among the brokers of the answer.
        replicas = [each for each in replicas if is_reachable(image, each, listener)]
        in_sync = [each for each in in_sync if is_reachable(image, each, listener)]
    leader = reachable_leader(image, partition, listener)
    code = ErrorCode.NONE
    if leader == NO_LEADER:
        is_listener_missing = partition.leader in image.brokers
        code = (
            ErrorCode.LISTENER_NOT_FOUND
            if is_listener_missing and ctx.version >= _LISTENER_ERROR_FROM
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
    elif len(replicas) < len(partition.replicas) or len(in_sync) < len(partition.isr):
        code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=in_sync,
        offline_replicas=offline_replicas(image, partition, listener),
    )
