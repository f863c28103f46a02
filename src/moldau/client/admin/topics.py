"""Topics: creating and deleting them, and adding partitions."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from moldau.client.cluster.cluster import Cluster
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, error_code
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from moldau.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.types import NO_LEADER, Uuid

BROKERS_DEFAULT = -1
_UNREPORTED = -1
# The first version with names and ids in one field; brokers before 2.8 know names only.
_DELETE_STATES_VERSION = 6
# The first version that leaves numbers to the broker (2.4).
_DEFAULTS_VERSION = 4
_KNOWN_PATIENCE_MS = 10_000


@frozen(kw_only=True)
class NewTopic:
    """A topic to create. -1 partitions or replicas stand for the defaults of the broker."""

    name: str
    partitions: int = BROKERS_DEFAULT
    replication_factor: int = BROKERS_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Sequence[Sequence[int]] = ()
    """The replicas of each partition; empty leaves them to the controller."""


class CreatedTopic(NamedTuple):
    """A topic that `Admin.create_topics` created."""

    name: str
    topic_id: Uuid
    partitions: int
    replication_factor: int


async def create_topics(
    cluster: Cluster, topics: Collection[NewTopic], *, validate_only: bool = False
) -> dict[str, CreatedTopic | KafkaError]:
    request = CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics],
        timeout_ms=cluster.settings.request_timeout_ms,
        validate_only=validate_only,
    )
    oldest = 0 if all(map(_is_complete, topics)) else _DEFAULTS_VERSION
    answer = await cluster.send_to_controller(request, CreateTopicsResponse, oldest=oldest)
    check_controller(row.error_code for row in answer.topics)
    made: dict[str, CreatedTopic | KafkaError] = {}
    for result in answer.topics:
        made[result.name] = (
            KafkaError(error_code(result.error_code), result.error_message or "")
            if result.error_code
            else CreatedTopic(
                result.name, result.topic_id, result.num_partitions, result.replication_factor
            )
        )
    if not validate_only:
        await _wait_until_known(
            cluster, [name for name, topic in made.items() if isinstance(topic, CreatedTopic)]
        )
    return {name: _with_numbers(cluster, topic) for name, topic in made.items()}


def _with_numbers(cluster: Cluster, made: CreatedTopic | KafkaError) -> CreatedTopic | KafkaError:
    """Takes the numbers from the metadata: brokers before 2.4 do not report what they created."""
    if isinstance(made, KafkaError) or made.partitions != _UNREPORTED:
        return made
    topic = cluster.known.topics.get(made.name)
    if topic is None or not topic.partitions:
        return made
    replicas = len(topic.partitions[0].replicas)
    return made._replace(partitions=len(topic.partitions), replication_factor=replicas)


def _is_complete(topic: NewTopic) -> bool:
    return bool(topic.assignment) or BROKERS_DEFAULT not in {
        topic.partitions,
        topic.replication_factor,
    }


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKERS_DEFAULT if topic.assignment else topic.partitions,
        replication_factor=BROKERS_DEFAULT if topic.assignment else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number, replicas in enumerate(topic.assignment)
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


async def _wait_until_known(cluster: Cluster, names: Collection[str]) -> None:
    """Waits until the brokers know the topics: the controller responds before that."""
    if not names:
        return

    async def check_leaders() -> None:
        found = await cluster.metadata(names)
        waits = found.missing or any(
            partition.leader == NO_LEADER
            for topic in found.topics.values()
            for partition in topic.partitions.values()
        )
        if waits:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the topic has no leaders yet")

    await cluster.with_retries(check_leaders, patience_ms=_KNOWN_PATIENCE_MS)


async def delete_topics(cluster: Cluster, names: Collection[str]) -> dict[str, KafkaError | None]:
    connection = await cluster.connection(await cluster.controller())
    request = DeleteTopicsRequest(timeout_ms=cluster.settings.request_timeout_ms)
    if connection.newest_of(DeleteTopicsRequest) >= _DELETE_STATES_VERSION:
        request.topics = [DeleteTopicState(name=name) for name in names]
    else:
        request.topic_names = list(names)
    answer = await connection.send(request, DeleteTopicsResponse)
    check_controller(row.error_code for row in answer.responses)
    cluster.forget()
    return {
        result.name or "": _failure(result.error_code, result.error_message)
        for result in answer.responses
    }


async def delete_topics_by_id(
    cluster: Cluster, topic_ids: Collection[Uuid]
) -> dict[Uuid, KafkaError | None]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(topic_id=topic_id) for topic_id in topic_ids],
        timeout_ms=cluster.settings.request_timeout_ms,
    )
    answer = await cluster.send_to_controller(
        request, DeleteTopicsResponse, oldest=_DELETE_STATES_VERSION
    )
    check_controller(row.error_code for row in answer.responses)
    cluster.forget()
    return {
        result.topic_id: _failure(result.error_code, result.error_message)
        for result in answer.responses
    }


async def add_partitions(
    cluster: Cluster,
    topic: str,
    total: int,
    *,
    assignment: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> None:
    """Raises the number of partitions to `total`; `assignment` has the replicas of the new ones."""
    replicas = None
    if assignment is not None:
        replicas = [
            CreatePartitionsAssignment(broker_ids=list(replica_ids)) for replica_ids in assignment
        ]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=total, assignments=replicas)],
        timeout_ms=cluster.settings.request_timeout_ms,
        validate_only=validate_only,
    )
    answer = await cluster.send_to_controller(request, CreatePartitionsResponse)
    for result in answer.results:
        if failure := _failure(result.error_code, result.error_message):
            raise failure
    cluster.forget()
    if not validate_only:
        await _wait_until_known(cluster, [topic])


def check_controller(codes: Iterable[int]) -> None:
    """Raises NOT_CONTROLLER, which a former controller reports for every item, so that the call is
    retried.
    """
    if ErrorCode.NOT_CONTROLLER in codes:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller has moved")


def _failure(number: int, message: str | None) -> KafkaError | None:
    return KafkaError(error_code(number), message or "") if number else None
