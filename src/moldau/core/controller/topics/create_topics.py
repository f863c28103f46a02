"""CreateTopics. Topics are created or refused one by one; the new ones are committed together."""

from collections import Counter

from moldau.core.controller.config_changes import topic_config_records
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
from moldau.core.controller.topics.topic_description import TopicDescription
from moldau.core.controller.topics.topic_names import (
    CLUSTER_METADATA,
    collision_key,
    may_collide,
    name_problem,
)
from moldau.core.decision import Decision
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import TopicRecord
from moldau.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.wire.schema import Message

PARTITIONS_PER_REQUEST_MAX = 10_000
_DEFAULT = -1
_CONFIGS_FROM = 5
"""The first version whose response lists the settings of the new topics."""


def decide_create_topics(
    context: DecisionContext, request: CreateTopicsRequest, version: int
) -> Decision[Message, CreateTopicsResponse]:
    times = Counter(topic.name for topic in request.topics)
    topics = [t for t in request.topics if times[t.name] == 1 and t.name != CLUSTER_METADATA]
    if _partition_count(context, topics) > PARTITIONS_PER_REQUEST_MAX:
        return _too_large(request, "Excessively large number of partitions per request.")
    names = _Names(context, topics)
    description = TopicDescription(context.config) if version >= _CONFIGS_FROM else None
    records: list[Message] = []
    results = []
    for topic in topics:
        try:
            names.check(topic.name)
            created, result = _create(context, topic, description)
        except KafkaError as error:
            results.append(_refusal(topic.name, error.code, error.detail))
        else:
            records += created
            results.append(result)
            names.take(topic.name)
        if len(records) > RECORDS_PER_REQUEST_MAX:
            return _too_large(request, too_many_records().detail)
    results += [
        _refusal(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in times.items()
        if count > 1
    ]
    if times[CLUSTER_METADATA] == 1:
        detail = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
        results.append(_refusal(CLUSTER_METADATA, ErrorCode.INVALID_REQUEST, detail))
    response = CreateTopicsResponse(topics=results)
    return Decision(response, [] if request.validate_only else records)


def _refusal(name: str, code: ErrorCode, detail: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=detail or None)


def _too_large(
    request: CreateTopicsRequest, detail: str
) -> Decision[Message, CreateTopicsResponse]:
    """Refuses the whole request."""
    refusals = [
        _refusal(topic.name, ErrorCode.POLICY_VIOLATION, detail) for topic in request.topics
    ]
    return Decision(CreateTopicsResponse(topics=refusals))


def _partition_count(context: DecisionContext, topics: list[CreatableTopic]) -> int:
    """Checked before any placement, because placing a million partitions takes long."""
    total = 0
    for topic in topics:
        count = len(topic.assignments) or topic.num_partitions
        total += context.config.num_partitions if count == _DEFAULT else max(count, 0)
    return total


class _Names:
    """The names in use, including those of topics that this request creates."""

    def __init__(self, context: DecisionContext, topics: list[CreatableTopic]) -> None:
        self._taken = context.image.topics
        self._colliding: dict[str, str] = {}
        if any(may_collide(topic.name) for topic in topics):
            for name in context.image.topics:
                self.take(name)

    def take(self, name: str) -> None:
        if may_collide(name):
            self._colliding.setdefault(collision_key(name), name)

    def check(self, name: str) -> None:
        if name in self._taken:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        other = self._colliding.get(collision_key(name)) if may_collide(name) else None
        problem = name_problem(name)
        if other is not None:
            problem = f"Topic '{name}' collides with existing topic: {other}"
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def _create(
    context: DecisionContext, topic: CreatableTopic, description: TopicDescription | None
) -> tuple[list[Message], CreatableTopicResult]:
    configs = _configs(topic)
    config_records = topic_config_records(context, topic.name, configs)
    replica_lists = _manual(context, topic) if topic.assignments else _placed(context, topic)
    topic_id = context.new_id()
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replica_lists),
        replication_factor=len(replica_lists[0]),
        configs=[] if description is None else description.of(configs),
    )
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
    records += [
        new_partition_record(context, topic_id, index, replicas)
        for index, replicas in enumerate(replica_lists)
    ]
    return records, result


def _configs(topic: CreatableTopic) -> dict[str, str]:
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        detail = f"Null value not supported for topic configs: {','.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, detail)
    return {config.name: config.value or "" for config in topic.configs}


def _manual(context: DecisionContext, topic: CreatableTopic) -> list[list[int]]:
    for value, field in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "numPartitions"),
    ):
        if value != _DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {field} was not set to -1.",
            )
    assignments: dict[int, list[int]] = {}
    replication_factor = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in assignments:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_manual(context, assignment.broker_ids, replication_factor)
        check_manual_is_alive(context, index, assignment.broker_ids)
        replication_factor = len(assignment.broker_ids)
        assignments[index] = assignment.broker_ids
    if set(assignments) != set(range(len(assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [assignments[index] for index in range(len(assignments))]


def _placed(context: DecisionContext, topic: CreatableTopic) -> list[list[int]]:
    if topic.replication_factor < _DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < _DEFAULT or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    count, factor = topic.num_partitions, topic.replication_factor
    if count == _DEFAULT:
        count = context.config.num_partitions
    if factor == _DEFAULT:
        factor = context.config.default_replication_factor
    try:
        replica_lists = placed(context, count, factor)
    except KafkaError as error:
        detail = f"Unable to replicate the partition {factor} time(s): {error.detail}"
        raise KafkaError(error.code, detail) from None
    for replicas in replica_lists:
        check_placed_is_alive(context, replicas)
    return replica_lists
