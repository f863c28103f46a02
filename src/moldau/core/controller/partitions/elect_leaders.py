"""ElectLeaders: elections that a client requests."""

from moldau.core.controller.decision_context import (
    RECORDS_PER_REQUEST_MAX,
    DecisionContext,
    too_many_records,
)
from moldau.core.controller.partitions.leadership import PartitionAt, changed
from moldau.core.controller.partitions.partition_change import Election, Target
from moldau.core.decision import Decision
from moldau.protocol.enums import ElectionType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from moldau.protocol.wire.schema import Message
from moldau.types import NO_LEADER

_ELECTIONS = {
    ElectionType.PREFERRED: Election.PREFERRED,
    ElectionType.UNCLEAN: Election.UNCLEAN,
}


def decide_elect_leaders(
    context: DecisionContext, request: ElectLeadersRequest, _version: int
) -> Decision[Message, ElectLeadersResponse]:
    if request.election_type not in set(ElectionType):
        return Decision(_unknown_type(request))
    elections = _Elections(context, ElectionType(request.election_type))
    if request.topic_partitions is None:
        results = elections.everywhere()
    else:
        results = [
            ReplicaElectionResult(
                topic=requested.topic,
                partition_result=[
                    elections.elect(requested.topic, index) for index in requested.partitions
                ],
            )
            for requested in request.topic_partitions
        ]
    response = ElectLeadersResponse(replica_election_results=results)
    # Elections are independent of each other.
    return Decision(response, elections.records, is_atomic=False)


def _unknown_type(request: ElectLeadersRequest) -> ElectLeadersResponse:
    code, detail = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
    results = [
        ReplicaElectionResult(
            topic=requested.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=code, error_message=detail)
                for index in requested.partitions
            ],
        )
        for requested in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


class _Elections:
    def __init__(self, context: DecisionContext, kind: ElectionType) -> None:
        self.records: list[Message] = []
        self._context = context
        self._kind = kind

    def everywhere(self) -> list[ReplicaElectionResult]:
        """Results of all topics, without the partitions that need no election."""
        results = []
        for topic in self._context.image.topics.values():
            elected = [self.elect(topic.name, index) for index in topic.partitions]
            needed = [r for r in elected if r.error_code != ErrorCode.ELECTION_NOT_NEEDED]
            results.append(ReplicaElectionResult(topic=topic.name, partition_result=needed))
        return results

    def elect(self, topic_name: str, index: int) -> PartitionResult:
        code, message = self._result(topic_name, index)
        return PartitionResult(partition_id=index, error_code=code, error_message=message)

    def _result(self, topic_name: str, index: int) -> tuple[ErrorCode, str | None]:
        topic = self._context.image.topics.get(topic_name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}"
        partition = topic.partitions.get(index)
        if partition is None:
            detail = f"No such partition as {topic_name}-{index}"
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail
        is_preferred = self._kind is ElectionType.PREFERRED
        is_fine = (
            partition.leader == partition.replicas[0]
            if is_preferred
            else partition.leader != NO_LEADER
        )
        if is_fine:
            detail = "Leader election not needed for topic partition."
            return ErrorCode.ELECTION_NOT_NEEDED, detail
        target = Target(election=_ELECTIONS[self._kind])
        record = changed(self._context, PartitionAt(topic, index, partition), target)
        if record is None and is_preferred:
            return (
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                "The preferred leader was not available.",
            )
        if record is None:
            detail = "Eligible topic partition leaders are not available."
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, detail
        self._add(record)
        return ErrorCode.NONE, None

    def _add(self, record: Message) -> None:
        if len(self.records) >= RECORDS_PER_REQUEST_MAX:
            raise too_many_records()
        self.records.append(record)
