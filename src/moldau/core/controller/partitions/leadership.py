"""Leadership: the partition changes that follow when a broker starts, stops or loses a directory,
and preferred and unclean elections.
"""

from collections.abc import Callable, Iterable, Iterator

from moldau.core.controller.decision_context import DecisionContext
from moldau.core.controller.partitions.partition_change import (
    Election,
    Rules,
    Target,
    change_record,
)
from moldau.core.controller.topics.topic_settings import (
    effective_min_isr,
    is_unclean_election_allowed,
)
from moldau.core.metadata.cluster_changes import FENCED, IN_CONTROLLED_SHUTDOWN, UNFENCED
from moldau.core.metadata.image import BrokerImage, PartitionImage, TopicImage
from moldau.core.metadata.levels import LEVELS
from moldau.frozen import frozen
from moldau.protocol.log_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from moldau.protocol.wire.schema import Message
from moldau.types import NO_LEADER, BrokerId, Uuid

ELECTIONS_AT_ONCE_MAX = 1_000
_EPOCH_ON_SHRINK_UNTIL = LEVELS["3.6-IV0"]


@frozen
class PartitionAt:
    topic: TopicImage
    index: int
    now: PartitionImage


def all_partitions(context: DecisionContext) -> Iterator[PartitionAt]:
    """With a hundred thousand partitions, the walk takes tens of milliseconds."""
    for topic in context.image.topics.values():
        for index, partition in topic.partitions.items():
            yield PartitionAt(topic, index, partition)


@frozen(kw_only=True)
class Movement:
    """Brokers whose state is about to change; the image still has the old state."""

    leaving: BrokerId | None = None
    coming: BrokerId | None = None
    lost: BrokerId | None = None
    """It stopped uncleanly, so records that it had acknowledged may be gone."""


def movement_records(
    context: DecisionContext, partitions: Iterable[PartitionAt], movement: Movement
) -> Iterator[PartitionChangeRecord]:
    gone = {movement.leaving, movement.lost}

    def is_alive(broker_id: BrokerId) -> bool:
        if broker_id in gone:
            return False
        return broker_id == movement.coming or context.is_active(broker_id)

    lost = frozenset() if movement.lost is None else frozenset({movement.lost})
    for at in partitions:
        target = Target(
            isr=tuple(replica for replica in at.now.isr if replica not in gone),
            election=_online_election(context, at.topic),
            lost_replicas=lost,
        )
        record = changed(context, at, target, is_alive)
        if record is not None:
            yield record


def changed(
    context: DecisionContext,
    at: PartitionAt,
    target: Target,
    is_alive: Callable[[BrokerId], bool] | None = None,
) -> PartitionChangeRecord | None:
    """The record of the change, None if nothing changes."""
    alive = context.is_active if is_alive is None else is_alive
    rules = Rules(
        may_lead=lambda broker: alive(broker) and context.may_lead(at.now, broker),
        min_isr=effective_min_isr(context, at.topic),
        has_eligible_replicas=context.has_eligible_replicas,
        default_directory=context.default_directory if context.has_directories else None,
        bumps_epoch_on_shrink=context.level < _EPOCH_ON_SHRINK_UNTIL,
    )
    return change_record(at.topic.topic_id, at.index, at.now, rules, target)


def in_sync_on(context: DecisionContext, broker_id: BrokerId) -> Iterator[PartitionAt]:
    if broker_id not in context.image.partition_counts.in_sync:
        return iter(())
    return (at for at in all_partitions(context) if broker_id in at.now.isr)


def eligible_on(context: DecisionContext, broker_id: BrokerId) -> Iterator[PartitionAt]:
    if broker_id not in context.image.partition_counts.eligible:
        return iter(())
    return (at for at in all_partitions(context) if broker_id in at.now.eligible_leader_replicas)


def leaderless(context: DecisionContext) -> Iterator[PartitionAt]:
    if NO_LEADER not in context.image.partition_counts.led:
        return iter(())
    return (at for at in all_partitions(context) if at.now.leader == NO_LEADER)


def leads_any(context: DecisionContext, broker_id: BrokerId) -> bool:
    return broker_id in context.image.partition_counts.led


def fence_records(context: DecisionContext, broker: BrokerImage) -> list[Message]:
    broker_id = broker.broker_id
    movement = Movement(leaving=broker_id)
    return [
        *movement_records(context, in_sync_on(context, broker_id), movement),
        BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=broker.epoch, fenced=FENCED
        ),
    ]


def unfence_records(context: DecisionContext, broker: BrokerImage) -> list[Message]:
    """Partitions without a leader may have one now."""
    movement = Movement(coming=broker.broker_id)
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCED
        ),
        *movement_records(context, leaderless(context), movement),
    ]


def controlled_shutdown_records(context: DecisionContext, broker: BrokerImage) -> list[Message]:
    records: list[Message] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id,
                broker_epoch=broker.epoch,
                in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN,
            )
        )
    movement = Movement(leaving=broker.broker_id)
    led_and_followed = in_sync_on(context, broker.broker_id)
    records.extend(movement_records(context, led_and_followed, movement))
    return records


def unregister_records(context: DecisionContext, broker: BrokerImage) -> Iterator[Message]:
    broker_id = broker.broker_id
    movement = Movement(leaving=broker_id)
    yield from movement_records(context, in_sync_on(context, broker_id), movement)
    yield from movement_records(context, eligible_on(context, broker_id), movement)
    yield UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)


def restart_records(
    context: DecisionContext, broker_id: BrokerId, *, was_clean: bool
) -> list[Message]:
    """For a new incarnation of a broker. After an unclean stop, the last writes of the former one
    may be lost.
    """
    if was_clean or not context.has_eligible_replicas:
        movement = Movement(leaving=broker_id)
        return list(movement_records(context, in_sync_on(context, broker_id), movement))
    movement = Movement(lost=broker_id)
    return [
        *movement_records(context, in_sync_on(context, broker_id), movement),
        *movement_records(context, eligible_on(context, broker_id), movement),
    ]


def offline_directory_records(
    context: DecisionContext, broker: BrokerImage, offline: Iterable[Uuid]
) -> list[Message]:
    """For those of the `offline` directories that are still online in the image."""
    reported = set(offline)
    lost = [each for each in broker.log_directories if each in reported]
    if not lost:
        return []
    on_them = (
        at for at in all_partitions(context) if _directory_of(at.now, broker.broker_id) in lost
    )
    left = [each for each in broker.log_directories if each not in reported]
    return [
        *movement_records(context, on_them, Movement(leaving=broker.broker_id)),
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=left
        ),
    ]


def preferred_leader_records(context: DecisionContext) -> list[Message]:
    """Moves leadership back to preferred replicas that are in sync again, up to a maximum."""
    records: list[Message] = []
    if not context.image.partition_counts.not_preferred:
        return records
    target = Target(election=Election.PREFERRED)
    for at in all_partitions(context):
        if at.now.leader != at.now.replicas[0]:
            record = changed(context, at, target)
            if record is not None:
                records.append(record)
        if len(records) >= ELECTIONS_AT_ONCE_MAX:
            break
    return records


def unclean_leader_records(context: DecisionContext) -> list[Message]:
    """Unclean elections for leaderless partitions whose topics allow them, up to a maximum."""
    records: list[Message] = []
    target = Target(election=Election.UNCLEAN)
    for at in leaderless(context):
        if is_unclean_election_allowed(context, at.topic.name):
            record = changed(context, at, target)
            if record is not None:
                records.append(record)
        if len(records) >= ELECTIONS_AT_ONCE_MAX:
            break
    return records


def _online_election(context: DecisionContext, topic: TopicImage) -> Election:
    unclean = is_unclean_election_allowed(context, topic.name)
    return Election.UNCLEAN if unclean else Election.ONLINE


def _directory_of(partition: PartitionImage, broker_id: BrokerId) -> Uuid | None:
    if broker_id not in partition.replicas:
        return None
    return partition.directories[partition.replicas.index(broker_id)]
