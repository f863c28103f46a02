"""OffsetForLeaderEpoch (versions 2 to 4): where a leader epoch ends in the leader's log."""

from collections.abc import Awaitable

from moldau.broker.server.context import RequestContext
from moldau.net.slices import in_slices
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
) -> OffsetForLeaderEpochResponse | Awaitable[OffsetForLeaderEpochResponse]:
    topics = [OffsetForLeaderTopicResult(topic=t.topic, partitions=[]) for t in request.topics]
    requested = [
        (answered, partition)
        for answered, topic in zip(topics, request.topics, strict=True)
        for partition in topic.partitions
    ]

    def answer(part: tuple[OffsetForLeaderTopicResult, OffsetForLeaderPartition]) -> None:
        topic, partition = part
        topic.partitions.append(_end_offset(ctx, topic.topic, partition))

    return in_slices(answer, requested, lambda _: OffsetForLeaderEpochResponse(topics=topics))


def _end_offset(
    ctx: RequestContext, topic: str, requested: OffsetForLeaderPartition
) -> EpochEndOffset:
    """Without an epoch and an offset if the log knows none that early or that late."""
    answer = EpochEndOffset(partition=requested.partition)
    try:
        log = ctx.broker.replicas.lookup(
            topic, requested.partition, LeaderEpoch(requested.current_leader_epoch)
        ).log
        answer.leader_epoch, answer.end_offset = log.epochs.end_offset_for(
            LeaderEpoch(requested.leader_epoch), Offset(log.log_end_offset)
        )
    except KafkaError as error:
        answer.error_code = error.code
    return answer
