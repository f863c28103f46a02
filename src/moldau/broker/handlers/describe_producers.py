"""DescribeProducers (version 0): the producers, idempotent or transactional, of partitions."""

from moldau.broker.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from moldau.storage.checkpoints import is_topic_name


def handle_describe_producers(
    ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _producers(ctx, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _producers(ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    try:
        if not is_topic_name(topic):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "not a topic's name")  # noqa: TRY301
        producers = ctx.broker.replicas.lookup(topic, index).log.producers
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.detail or None
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
