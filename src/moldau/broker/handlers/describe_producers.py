"""DescribeProducers (version 0): the idempotent and transactional producers of partitions. A
partition that is named several times is answered once; Kafka repeats it, however many producers
it has.
"""

from collections.abc import Awaitable

from moldau.broker.server.context import RequestContext
from moldau.core.controller.topics.topic_names import name_problem
from moldau.net.slices import in_slices
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from moldau.types import TopicPartition


def handle_describe_producers(
    ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:
    if ctx.is_large:
        return _describe_many(ctx, request)
    return _described(ctx, *_named(request))


async def _describe_many(
    ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    described = _described(ctx, *await ctx.work(_named, request))
    return described if isinstance(described, DescribeProducersResponse) else await described


def _named(
    request: DescribeProducersRequest,
) -> tuple[dict[str, TopicResponse], dict[TopicPartition, None]]:
    """Topics with their responses, and the named partitions."""
    topics = {topic.name: TopicResponse(name=topic.name, partitions=[]) for topic in request.topics}
    named = dict.fromkeys(
        TopicPartition(topic.name, index)
        for topic in request.topics
        for index in topic.partition_indexes
    )
    return topics, named


def _described(
    ctx: RequestContext, topics: dict[str, TopicResponse], named: dict[TopicPartition, None]
) -> DescribeProducersResponse | Awaitable[DescribeProducersResponse]:

    def answer(partition: TopicPartition) -> None:
        topics[partition.topic].partitions.append(_producers(ctx, *partition))

    return in_slices(
        answer, named, lambda _: DescribeProducersResponse(topics=list(topics.values()))
    )


def _producers(ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    problem = name_problem(topic)
    if problem is not None:
        answer.error_code, answer.error_message = ErrorCode.INVALID_TOPIC_EXCEPTION, problem
        return answer
    try:
        producers = ctx.broker.replicas.lookup(topic, index).log.producers
    except KafkaError as error:
        answer.error_code = error.code
        # Kafka has a message for topics that do not exist, and none for other topics' partitions.
        if ctx.broker.image.topic(topic) is None:
            answer.error_message = "This server does not host this topic-partition."
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for entry in producers
    ]
    return answer
