"""AlterPartition: a leader proposes a new set of in-sync replicas."""

from moldau.core.controller.decision_context import DecisionContext
from moldau.core.controller.partitions.leadership import PartitionAt, changed
from moldau.core.controller.partitions.partition_change import Election, Target
from moldau.core.controller.topics.topic_settings import is_unclean_election_allowed
from moldau.core.decision import Decision
from moldau.core.metadata.image import TopicImage
from moldau.core.metadata.topic_changes import NO_LEADER_CHANGE, changed_partition
from moldau.protocol.enums import LeaderRecoveryState
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId

_EPOCHS_FROM = 3
"""The first version that names every in-sync replica with its broker epoch."""


def decide_alter_partition(
    context: DecisionContext, request: AlterPartitionRequest, version: int
) -> Decision[Message, AlterPartitionResponse]:
    context.check_broker_epoch(BrokerId(request.broker_id), request.broker_epoch)
    proposals = _Proposals(context, BrokerId(request.broker_id), version)
    topics = []
    for requested in request.topics:
        topic = context.image.topics_by_id.get(requested.topic_id)
        partitions = [proposals.answer(topic, each) for each in requested.partitions]
        topics.append(
            AlterPartitionResponseTopicData(topic_id=requested.topic_id, partitions=partitions)
        )
    response = AlterPartitionResponse(topics=topics)
    return Decision(response, proposals.records, is_atomic=False)


class _Proposals:
    def __init__(self, context: DecisionContext, broker_id: BrokerId, version: int) -> None:
        self.records: list[Message] = []
        self._context = context
        self._broker_id = broker_id
        self._version = version

    def answer(
        self, topic: TopicImage | None, proposal: AlterPartitionRequestPartitionData
    ) -> AlterPartitionResponsePartitionData:
        index = proposal.partition_index
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif index not in topic.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            return self._change(PartitionAt(topic, index, topic.partitions[index]), proposal)
        return AlterPartitionResponsePartitionData(partition_index=index, error_code=code)

    def _change(
        self, at: PartitionAt, proposal: AlterPartitionRequestPartitionData
    ) -> AlterPartitionResponsePartitionData:
        members = self._members(proposal)
        code = self._stale(at, proposal) or self._invalid(at, proposal, members)
        if code:
            return AlterPartitionResponsePartitionData(partition_index=at.index, error_code=code)
        unclean = is_unclean_election_allowed(self._context, at.topic.name)
        target = Target(
            isr=tuple(BrokerId(member.broker_id) for member in members),
            election=Election.UNCLEAN if unclean else Election.ONLINE,
            recovery_state=proposal.leader_recovery_state,
        )
        record = changed(self._context, at, target)
        after = at.now
        if record is not None:
            self.records.append(record)
            after = changed_partition(at.now, record)
            if record.leader not in {self._broker_id, NO_LEADER_CHANGE}:
                return AlterPartitionResponsePartitionData(
                    partition_index=at.index, error_code=ErrorCode.NEW_LEADER_ELECTED
                )
        return AlterPartitionResponsePartitionData(
            partition_index=at.index,
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=list(after.isr),
            leader_recovery_state=after.leader_recovery_state,
            partition_epoch=after.partition_epoch,
        )

    def _members(self, proposal: AlterPartitionRequestPartitionData) -> list[BrokerState]:
        if self._version >= _EPOCHS_FROM:
            return proposal.new_isr_with_epochs
        return [BrokerState(broker_id=broker_id) for broker_id in proposal.new_isr]

    def _stale(self, at: PartitionAt, proposal: AlterPartitionRequestPartitionData) -> ErrorCode:
        # A leader with newer metadata has it from a newer controller.
        if proposal.leader_epoch > at.now.leader_epoch:
            return ErrorCode.NOT_CONTROLLER
        if proposal.partition_epoch > at.now.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if proposal.leader_epoch < at.now.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if self._broker_id != at.now.leader:
            return ErrorCode.INVALID_REQUEST
        if proposal.partition_epoch < at.now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        return ErrorCode.NONE

    def _invalid(
        self,
        at: PartitionAt,
        proposal: AlterPartitionRequestPartitionData,
        members: list[BrokerState],
    ) -> ErrorCode:
        ids = [member.broker_id for member in members]
        if len(set(ids)) != len(ids) or not set(ids) <= set(at.now.replicas):
            return ErrorCode.INVALID_REQUEST
        if at.now.leader not in ids:
            return ErrorCode.INVALID_REQUEST
        if proposal.leader_recovery_state not in set(LeaderRecoveryState):
            return ErrorCode.INVALID_REQUEST
        if proposal.leader_recovery_state == LeaderRecoveryState.RECOVERING:
            was_recovered = at.now.leader_recovery_state == LeaderRecoveryState.RECOVERED
            if was_recovered or len(ids) > 1:
                return ErrorCode.INVALID_REQUEST
        eligible = all(self._is_eligible(member) for member in members)
        return ErrorCode.NONE if eligible else ErrorCode.INELIGIBLE_REPLICA

    def _is_eligible(self, member: BrokerState) -> bool:
        broker_id = BrokerId(member.broker_id)
        broker = self._context.image.brokers.get(broker_id)
        if broker is None or not self._context.is_active(broker_id):
            return False
        return member.broker_epoch in {-1, broker.epoch}
