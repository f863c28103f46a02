"""AlterPartitionReassignments and ListPartitionReassignments: replicas move to other brokers."""

from collections.abc import Iterable

from moldau.core.controller.decision_context import (
    RECORDS_PER_REQUEST_MAX,
    DecisionContext,
    too_many_records,
)
from moldau.core.controller.partitions.leadership import PartitionAt, all_partitions, changed
from moldau.core.controller.partitions.partition_change import Election, Target
from moldau.core.controller.partitions.reassignment import Reassignment
from moldau.core.controller.topics.assignments import check_manual
from moldau.core.controller.topics.topic_settings import is_unclean_election_allowed
from moldau.core.decision import Decision
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from moldau.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId


def decide_alter_reassignments(
    context: DecisionContext, request: AlterPartitionReassignmentsRequest, _version: int
) -> Decision[Message, AlterPartitionReassignmentsResponse]:
    records: list[Message] = []
    may_resize = request.allow_replication_factor_change
    responses = []
    for topic in request.topics:
        answer = ReassignableTopicResponse(name=topic.name)
        for partition in topic.partitions:
            result = ReassignablePartitionResponse(
                partition_index=partition.partition_index, error_message=None
            )
            try:
                record = _reassigned(context, topic.name, partition, may_resize=may_resize)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.detail or None
            else:
                records += [] if record is None else [record]
            answer.partitions.append(result)
        responses.append(answer)
    if len(records) > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_resize,
        # Kafka answers an empty request with an empty message.
        error_message=None if request.topics else "",
        responses=responses,
    )
    return Decision(response, records)


def decide_list_reassignments(
    context: DecisionContext, request: ListPartitionReassignmentsRequest, _version: int
) -> Decision[Message, ListPartitionReassignmentsResponse]:
    """Lists only ongoing reassignments. Topics that do not exist are skipped."""
    if request.topics is None:
        requested = list(all_partitions(context))
    else:
        requested = [
            PartitionAt(topic, index, topic.partitions[index])
            for each in request.topics
            if (topic := context.image.topic(each.name)) is not None
            for index in each.partition_indexes
            if index in topic.partitions
        ]
    topics = _ongoing(at for at in requested if Reassignment.of(at.now).is_under_way)
    return Decision(ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def _ongoing(partitions: Iterable[PartitionAt]) -> list[OngoingTopicReassignment]:
    by_name: dict[str, OngoingTopicReassignment] = {}
    for at in partitions:
        name = at.topic.name
        topic = by_name.setdefault(name, OngoingTopicReassignment(name=name))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=at.index,
                replicas=list(at.now.replicas),
                adding_replicas=list(at.now.adding_replicas),
                removing_replicas=list(at.now.removing_replicas),
            )
        )
    return list(by_name.values())


def _reassigned(
    context: DecisionContext, topic_name: str, request: ReassignablePartition, *, may_resize: bool
) -> Message | None:
    """The record that begins, changes or reverts a reassignment; None if nothing changes."""
    topic = context.image.topic(topic_name)
    if topic is None:
        detail = f"Unable to find a topic named {topic_name}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
    partition = topic.partitions.get(request.partition_index)
    if partition is None:
        detail = f"Unable to find partition {topic_name}:{request.partition_index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
    at = PartitionAt(topic, request.partition_index, partition)
    if request.replicas is None:
        return changed(context, at, _reverted(context, at))
    check_manual(context, request.replicas, None)
    factor = Reassignment.of(partition).size
    if not may_resize and len(request.replicas) != factor:
        detail = f"The replication factor is changed from {factor} to {len(request.replicas)}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, detail)
    target = Target(
        reassignment=Reassignment.towards(partition, [*map(BrokerId, request.replicas)])
    )
    return changed(context, at, target)


def _reverted(context: DecisionContext, at: PartitionAt) -> Target:
    """The assignment before the reassignment. Loses records if only added replicas are in sync."""
    ongoing = Reassignment.of(at.now)
    if not ongoing.is_under_way:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = ongoing.original()
    if not replicas:
        detail = "Invalid replica assignment: addingReplicas contains all replicas."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
    isr = tuple(each for each in at.now.isr if each not in ongoing.adding)
    may_be_unclean = is_unclean_election_allowed(context, at.topic.name)
    if not isr and not may_be_unclean:
        detail = (
            f"Unable to revert partition assignment for {at.topic.name}:{at.index} because it "
            "would require an unclean leader election."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)
    return Target(
        isr=isr or replicas[:1],
        election=Election.UNCLEAN if may_be_unclean else Election.ONLINE,
        reassignment=Reassignment(replicas=replicas),
    )
