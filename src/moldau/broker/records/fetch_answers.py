"""The parts of a fetch response besides offsets and errors: records, aborted transactions,
diverging epochs, and the endpoints of new leaders.
"""

from moldau.broker.records.leader_hints import put_leader_hints
from moldau.broker.server.context import RequestContext
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from moldau.storage.log.log import Log
from moldau.storage.log.read import ReadResult
from moldau.types import NO_EPOCH, LeaderEpoch, Offset, TopicPartition

_MOVED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


def diverging_epoch(log: Log, request: FetchPartition) -> EpochEndOffset | None:
    """Where the reader's log and this one diverge, if they do (KIP-595)."""
    epoch, end_offset = log.epochs.end_offset_for(
        LeaderEpoch(request.last_fetched_epoch), Offset(log.log_end_offset)
    )
    if epoch == NO_EPOCH or end_offset < 0 or request.fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < request.last_fetched_epoch or end_offset < request.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def fill(answer: PartitionData, result: ReadResult) -> None:
    answer.records = result.records
    if result.aborted is not None:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in result.aborted
        ]


def leader_endpoints(
    ctx: RequestContext, topics: list[FetchableTopicResponse]
) -> list[NodeEndpoint]:
    """The new leaders of partitions that moved, and their endpoints."""
    image = ctx.broker.image
    moved = [
        (
            TopicPartition(
                topic.topic or image.topic_name(topic.topic_id) or "", answer.partition_index
            ),
            answer,
        )
        for topic in topics
        for answer in topic.partitions
        if answer.error_code in _MOVED
    ]
    return put_leader_hints(ctx, moved, LeaderIdAndEpoch, NodeEndpoint)
