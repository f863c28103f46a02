"""Metadata: brokers, topics, and the leaders of partitions, as seen through the client's listener.
Topics that do not exist are created if the client wants that and the node allows it.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from moldau.broker.cluster.cluster_view import ClusterView, authorized_operations
from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import is_internal, is_valid_name
from moldau.core.metadata.image import MetadataImage, PartitionImage, TopicImage
from moldau.net.slices import in_slices
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
from moldau.types import NO_LEADER, ZERO_UUID, Uuid

_IDS_FROM = 12
"""The version from which topics may be requested by their ids, although the field is older."""
_LISTENER_ERROR_FROM = 6
_CACHED_PARTITIONS_MAX = 10_000

TopicKeyT = TypeVar("TopicKeyT")


def handle_metadata(
    ctx: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    requested = request.topics
    if requested is None or (ctx.version == 0 and not requested):
        return _response(ctx, request, None)
    if ctx.is_large:
        return _describe_many(ctx, request, requested)
    named = _named(requested, ctx.version, ctx.broker.image)
    return _describe(ctx, request, named)


async def _describe_many(
    ctx: RequestContext, request: MetadataRequest, requested: list[MetadataRequestTopic]
) -> MetadataResponse:
    named = await ctx.work(_named, requested, ctx.version, ctx.broker.image)
    response = _describe(ctx, request, named)
    return response if isinstance(response, MetadataResponse) else await response


def _describe(
    ctx: RequestContext, request: MetadataRequest, named: "_Named"
) -> MetadataResponse | Awaitable[MetadataResponse]:
    if named.refused:
        return MetadataResponse(topics=named.refused)
    if named.ids:
        return _response(ctx, request, named.ids)
    creates = request.allow_auto_topic_creation and ctx.broker.config.auto_create_topics_enable
    if creates and named.missing:
        return _response_after_creation(ctx, request, named)
    return _response(ctx, request, named.names)


async def _response_after_creation(
    ctx: RequestContext, request: MetadataRequest, named: "_Named"
) -> MetadataResponse:
    await ctx.broker.topic_creation.ensure(named.missing, ctx.peer)
    response = _response(ctx, request, named.names)
    return response if isinstance(response, MetadataResponse) else await response


class _Named(NamedTuple):
    """The topics that a request names, each once."""

    refused: list[MetadataResponseTopic]
    """All topics of the request, if one of them is neither a name nor an id."""
    ids: list[Uuid]
    names: list[str]
    missing: list[str]


def _named(requested: list[MetadataRequestTopic], version: int, image: MetadataImage) -> _Named:
    if any(_is_unclear(topic, version) for topic in requested):
        return _Named([_refused(topic) for topic in requested], [], [], [])
    ids = list(dict.fromkeys(each.topic_id for each in requested if each.topic_id != ZERO_UUID))
    names = list(dict.fromkeys(each.name for each in requested if each.name is not None))
    return _Named([], ids, names, [name for name in names if not _exists(image, name)])


def _response(
    ctx: RequestContext, request: MetadataRequest, selected: list[str] | list[Uuid] | None
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Describes topics by name or by id, or all if None. All come from one image, however long it
    takes.
    """
    broker, listener, version = ctx.broker, ctx.peer.listener_name, ctx.version
    kind = (MetadataResponse, listener, version == 0, version >= _LISTENER_ERROR_FROM)
    cluster = broker.topology_cache.of(
        broker.image, kind, lambda image: _Cluster(ClusterView(image, listener), version)
    )
    finish = partial(_finished, ctx, request, cluster)
    includes_operations = request.include_topic_authorized_operations
    if selected is None:
        known = _with_operations_of(cluster.known) if includes_operations else cluster.known
        return in_slices(known, cluster.all(), finish)
    requested: Sequence[str | Uuid] = selected
    topic = _with_operations_of(cluster.topic) if includes_operations else cluster.topic
    return in_slices(topic, requested, finish)


def _finished(
    ctx: RequestContext,
    request: MetadataRequest,
    cluster: "_Cluster",
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    broker = ctx.broker
    response = MetadataResponse(
        brokers=cluster.brokers,
        cluster_id=broker.cluster_id,
        controller_id=cluster.view.controller_id(broker.node_id),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = authorized_operations(ResourceType.CLUSTER)
    return response


def _with_operations_of(
    describe: Callable[[TopicKeyT], MetadataResponseTopic],
) -> Callable[[TopicKeyT], MetadataResponseTopic]:
    return lambda key: _with_operations(describe(key))


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """Returns a copy: the original is shared. An unknown id has no operations."""
    if topic.name is None:
        return topic
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=authorized_operations(ResourceType.TOPIC),
    )


def _is_unclear(requested: MetadataRequestTopic, version: int) -> bool:
    has_id = requested.topic_id != ZERO_UUID
    if version < _IDS_FROM:
        return has_id or requested.name is None
    return not has_id and requested.name is None


def _exists(image: MetadataImage, name: str) -> bool:
    topic = image.topics.get(name)
    return topic is not None and bool(topic.partitions)


def _refused(requested: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=requested.name or "", topic_id=requested.topic_id
    )


class _Cluster:
    """The topics and brokers of an image in the format of a range of versions, for the clients of
    one listener. The rest of the image may be out of date.
    """

    def __init__(self, view: ClusterView, version: int) -> None:
        self.view = view
        self._image = view.image
        self._filters_replicas = version == 0
        """Clients of these versions look every replica up among the brokers of the response."""
        self._knows_listener_error = version >= _LISTENER_ERROR_FROM
        self._cache: dict[str, MetadataResponseTopic] = {}
        self._cached_partitions = 0
        # While the only broker stops, every broker is fenced. librdkafka 2.16 forgets its broker on
        # an empty list and never finds another.
        brokers = list(view.brokers()) or list(view.brokers(with_fenced=True))
        self.brokers = [
            MetadataResponseBroker(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in brokers
        ]

    def all(self) -> Iterator[TopicImage]:
        return (topic for topic in self._image.topics.values() if topic.partitions)

    def topic(self, key: str | Uuid) -> MetadataResponseTopic:
        topic = (
            self._image.topics.get(key)
            if isinstance(key, str)
            else self._image.topics_by_id.get(key)
        )
        if topic is not None and topic.partitions:
            return self.known(topic)
        if not isinstance(key, str):
            code = ErrorCode.UNKNOWN_TOPIC_ID
            return MetadataResponseTopic(error_code=code, name=None, topic_id=key)
        code = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_valid_name(key)
            else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
        return MetadataResponseTopic(error_code=code, name=key, is_internal=is_internal(key))

    def known(self, topic: TopicImage) -> MetadataResponseTopic:
        described = self._cache.get(topic.name)
        if described is None:
            described = self._described(topic)
            self._cached_partitions += len(topic.partitions)
            if self._cached_partitions <= _CACHED_PARTITIONS_MAX:
                self._cache[topic.name] = described
        return described

    def _described(self, topic: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=[self._partition(*numbered) for numbered in topic.partitions.items()],
        )

    def _partition(self, index: int, partition: PartitionImage) -> MetadataResponsePartition:
        view = self.view
        replicas: list[int] = [*partition.replicas]
        in_sync: list[int] = [*partition.isr]
        if self._filters_replicas:
            replicas, in_sync = view.reachable(partition.replicas), view.reachable(partition.isr)
        leader = view.leader(partition)
        code = ErrorCode.NONE
        if leader == NO_LEADER:
            code = self._missing_leader(partition)
        elif len(replicas) < len(partition.replicas) or len(in_sync) < len(partition.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=in_sync,
            offline_replicas=view.offline_replicas(partition),
        )

    def _missing_leader(self, partition: PartitionImage) -> ErrorCode:
        lacks_listener = partition.leader in self._image.brokers
        if lacks_listener and self._knows_listener_error:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE
