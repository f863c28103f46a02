"""AssignReplicasToDirs: a broker reports which of its directories hold its replicas."""

from collections.abc import Iterator

from moldau.core.controller.decision_context import DecisionContext, is_online
from moldau.core.controller.partitions.leadership import (
    Movement,
    PartitionAt,
    changed,
    movement_records,
)
from moldau.core.controller.partitions.partition_change import Target
from moldau.core.decision import Decision
from moldau.core.metadata.image import BrokerImage, TopicImage
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId, Uuid


def decide_assign_directories(
    context: DecisionContext, request: AssignReplicasToDirsRequest, _version: int
) -> Decision[Message, AssignReplicasToDirsResponse]:
    if not context.has_directories:
        detail = "Directory assignment is not supported yet."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail)
    broker = context.check_broker_epoch(BrokerId(request.broker_id), request.broker_epoch)
    assignment = _Assignment(context, broker)
    directories = [assignment.of_directory(directory) for directory in request.directories]
    response = AssignReplicasToDirsResponse(directories=directories)
    return Decision(response, list(assignment.all_records()), is_atomic=False)


class _Assignment:
    def __init__(self, context: DecisionContext, broker: BrokerImage) -> None:
        self._context = context
        self._broker = broker
        self._records: list[Message] = []
        self._gone_offline: list[PartitionAt] = []

    def all_records(self) -> Iterator[Message]:
        yield from self._records
        movement = Movement(leaving=self._broker.broker_id)
        yield from movement_records(self._context, self._gone_offline, movement)

    def of_directory(
        self, directory: AssignReplicasToDirsRequestDirectoryData
    ) -> AssignReplicasToDirsResponseDirectoryData:
        topics = []
        for requested in directory.topics:
            topic = self._context.image.topics_by_id.get(requested.topic_id)
            partitions = [
                AssignReplicasToDirsResponsePartitionData(
                    partition_index=each.partition_index,
                    error_code=self._assign(topic, each.partition_index, directory.id),
                )
                for each in requested.partitions
            ]
            topics.append(
                AssignReplicasToDirsResponseTopicData(
                    topic_id=requested.topic_id, partitions=partitions
                )
            )
        return AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics)

    def _assign(self, topic: TopicImage | None, index: int, directory: Uuid) -> ErrorCode:
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = topic.partitions.get(index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._broker.broker_id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        at = PartitionAt(topic, index, partition)
        target = Target(directory=(self._broker.broker_id, directory))
        record = changed(self._context, at, target)
        if record is not None:
            self._records.append(record)
        if not is_online(self._broker, directory):
            self._gone_offline.append(at)
        return ErrorCode.NONE
