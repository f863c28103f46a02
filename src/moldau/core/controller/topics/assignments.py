"""Replicas and first leader of new partitions, for CreateTopics and CreatePartitions."""

from collections.abc import Sequence

from moldau.core.controller.decision_context import DecisionContext, has_uncordoned_directory
from moldau.core.controller.topics.placement import place
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import PartitionRecord
from moldau.types import BrokerId, Uuid


def placed(context: DecisionContext, count: int, replication_factor: int) -> list[list[int]]:
    """The replicas of `count` new partitions. Raises INVALID_REPLICATION_FACTOR."""
    return place(context.usable_brokers(), count, replication_factor, context.chance)


def check_manual(
    context: DecisionContext, replicas: Sequence[int], replication_factor: int | None
) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT. The first partition sets the factor of the others."""
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    for broker_id in sorted(replicas):
        broker = context.image.brokers.get(broker_id)
        if broker is None:
            raise _invalid(
                f"The manual partition assignment includes broker {broker_id}, but no such broker "
                "is registered."
            )
        if not has_uncordoned_directory(broker):
            raise _invalid(
                f"The manual partition assignment includes broker {broker_id}, but all its log "
                "directories are cordoned."
            )
        if replicas.count(broker_id) > 1:
            raise _invalid(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _invalid(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{replication_factor} replica(s)."
        )


def check_manual_is_alive(context: DecisionContext, index: int, replicas: Sequence[int]) -> None:
    if not any(context.is_active(BrokerId(each)) for each in replicas):
        raise _invalid(
            f"All brokers specified in the manual partition assignment for partition {index} are "
            "fenced or in controlled shutdown."
        )


def check_placed_is_alive(context: DecisionContext, replicas: Sequence[int]) -> None:
    if not any(context.is_active(BrokerId(each)) for each in replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently "
            "fenced or in controlled shutdown.",
        )


def new_partition_record(
    context: DecisionContext, topic_id: Uuid, index: int, replicas: Sequence[int]
) -> PartitionRecord:
    """The replicas on active brokers are in sync, and the first of them leads."""
    in_sync = [each for each in replicas if context.is_active(BrokerId(each))]
    record = PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=in_sync,
        leader=in_sync[0],
        leader_epoch=0,
        partition_epoch=0,
    )
    if context.has_directories:
        record.directories = [context.default_directory(BrokerId(each)) for each in replicas]
    return record


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
