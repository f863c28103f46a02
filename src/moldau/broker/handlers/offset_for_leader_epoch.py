"""OffsetForLeaderEpoch (versions 2 to 4): where a leader epoch ends in the leader's log."""

from moldau.broker.context import RequestContext
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from moldau.types import LeaderEpoch, Offset


def handle_offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_offset(ctx, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end_offset(ctx: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    """Without an epoch and an offset if we do not know one that early or that late."""
    answer = EpochEndOffset(partition=asked.partition)
    try:
        log = ctx.broker.replicas.lookup(topic, asked.partition, asked.current_leader_epoch).log
        answer.leader_epoch, answer.end_offset = log.epochs.end_offset_for(
            LeaderEpoch(asked.leader_epoch), Offset(log.log_end_offset)
        )
    except KafkaError as error:
        answer.error_code = error.code
    return answer
