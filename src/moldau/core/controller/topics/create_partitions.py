"""CreatePartitions: adds partitions to a topic; it never removes any."""

from collections import Counter

from moldau.core.controller.decision_context import (
    RECORDS_PER_REQUEST_MAX,
    DecisionContext,
    too_many_records,
)
from moldau.core.controller.topics.assignments import (
    check_manual,
    check_manual_is_alive,
    check_placed_is_alive,
    new_partition_record,
    placed,
)
from moldau.core.decision import Decision
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from moldau.protocol.wire.schema import Message


def decide_create_partitions(
    context: DecisionContext, request: CreatePartitionsRequest, _version: int
) -> Decision[Message, CreatePartitionsResponse]:
    times = Counter(topic.name for topic in request.topics)
    twice = {name: count for name, count in times.items() if count > 1}
    results = [
        _result(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name in twice
    ]
    records: list[Message] = []
    for topic in request.topics:
        if topic.name in twice:
            continue
        try:
            added = _added(context, topic, RECORDS_PER_REQUEST_MAX - len(records))
        except KafkaError as error:
            if error.code is ErrorCode.POLICY_VIOLATION:
                raise
            results.append(_result(topic.name, error))
        else:
            records += added
            results.append(CreatePartitionsTopicResult(name=topic.name))
    response = CreatePartitionsResponse(results=results)
    return Decision(response, [] if request.validate_only else records)


def _result(name: str, error: KafkaError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=error.code, error_message=error.detail or None
    )


def _added(context: DecisionContext, request: CreatePartitionsTopic, room: int) -> list[Message]:
    topic = context.image.topics.get(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    count = len(topic.partitions)
    if request.count == count:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if request.count < count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {request.name} currently has {count} partition(s); {request.count} would "
            "not be an increase.",
        )
    if request.count - count > room:
        raise too_many_records()
    replication_factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        replica_lists = placed(context, request.count - count, replication_factor)
        for replicas in replica_lists:
            check_placed_is_alive(context, replicas)
    else:
        replica_lists = _manual(context, request, count, replication_factor)
    return [
        new_partition_record(context, topic.topic_id, count + index, replicas)
        for index, replicas in enumerate(replica_lists)
    ]


def _manual(
    context: DecisionContext, request: CreatePartitionsTopic, count: int, replication_factor: int
) -> list[list[int]]:
    assert request.assignments is not None
    if len(request.assignments) != request.count - count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {request.count - count} additional partition(s), but only "
            f"{len(request.assignments)} assignment(s) were specified.",
        )
    for index, assignment in enumerate(request.assignments):
        check_manual(context, assignment.broker_ids, replication_factor)
        check_manual_is_alive(context, count + index, assignment.broker_ids)
    return [assignment.broker_ids for assignment in request.assignments]
