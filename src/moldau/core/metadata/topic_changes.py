"""Changes of topics and partitions within a delta."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, cast

from moldau.core.metadata.draft import Draft, differing_keys
from moldau.core.metadata.image import (
    MIGRATING_DIRECTORY,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from moldau.core.metadata.replay_errors import MetadataReplayError
from moldau.protocol.enums import LeaderRecoveryState
from moldau.protocol.log_records import PartitionChangeRecord
from moldau.types import BrokerId, LeaderEpoch, Uuid, uuid_text

if TYPE_CHECKING:
    from moldau.protocol.log_records import (
        ClearElrRecord,
        PartitionRecord,
        RemoveTopicRecord,
        TopicRecord,
    )

# Values of PartitionChangeRecord for no change.
NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1

_RECOVERY_STATES = frozenset(LeaderRecoveryState)


class TopicChanges:
    """`deleted` only has topics of the old image; a topic that is created again is also changed."""

    def __init__(self, image: MetadataImage) -> None:
        self.changed: set[str] = set()
        self.deleted: dict[str, Uuid] = {}
        self._before = image
        self._by_name = Draft(image.topics)
        self._by_id = Draft(image.topics_by_id)
        # Partitions of changed topics, as dicts that this delta may write to.
        self._partitions: dict[Uuid, dict[int, PartitionImage]] = {}

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self._by_name.mapping

    @property
    def topics_by_id(self) -> Mapping[Uuid, TopicImage]:
        return self._by_id.mapping

    def become(self, image: MetadataImage) -> None:
        """Changes the topics to those of `image` as if by records."""
        before = self._before.topics_by_id
        self._by_name.become(image.topics)
        self._by_id.become(image.topics_by_id)
        self.deleted = {
            topic.name: topic.topic_id
            for topic in before.values()
            if topic.topic_id not in image.topics_by_id
        }
        for topic_id in differing_keys(before, image.topics_by_id) & image.topics_by_id.keys():
            self.changed.add(image.topics_by_id[topic_id].name)

    def replay_topic(self, record: "TopicRecord") -> None:
        self._start(record.name, record.topic_id, {})

    def replay_partition(self, record: "PartitionRecord") -> None:
        self._put(record.topic_id, record.partition_id, partition_of(record))

    def replay_partition_change(self, record: "PartitionChangeRecord") -> None:
        topic = self._by_id.get(record.topic_id)
        before = topic.partitions.get(record.partition_id) if topic is not None else None
        if before is None:
            raise MetadataReplayError(
                f"partition {uuid_text(record.topic_id)}:{record.partition_id} was changed, but "
                "does not exist"
            )
        self._put(record.topic_id, record.partition_id, changed_partition(before, record))

    def replay_remove(self, record: "RemoveTopicRecord") -> str:
        """Returns the name of the removed topic."""
        topic = self._by_id.drop(record.topic_id)
        if topic is None:
            _unknown_topic(record.topic_id)
        name = topic.name
        self._by_name.drop(name)
        self._partitions.pop(record.topic_id, None)
        self.changed.discard(name)
        if record.topic_id in self._before.topics_by_id:
            self.deleted[name] = record.topic_id
        return name

    def replay_clear_elr(self, record: "ClearElrRecord") -> None:
        if record.topic_name:
            topic = self._by_name.get(record.topic_name)
            if topic is None:
                raise MetadataReplayError(
                    f"the eligible leaders of {record.topic_name!r} were cleared, but it does "
                    "not exist"
                )
            self._clear_elr(topic)
        else:
            for topic in list(self.topics.values()):
                self._clear_elr(topic)

    def _clear_elr(self, topic: TopicImage) -> None:
        for index, partition in list(topic.partitions.items()):
            if partition.eligible_leader_replicas or partition.last_known_elr:
                cleared = PartitionChangeRecord(
                    partition_id=index,
                    topic_id=topic.topic_id,
                    eligible_leader_replicas=[],
                    last_known_elr=[],
                )
                self._put(topic.topic_id, index, changed_partition(partition, cleared))

    def _put(self, topic_id: Uuid, index: int, partition: PartitionImage) -> None:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = self._by_id.get(topic_id)
            if topic is None:
                _unknown_topic(topic_id)
            partitions = self._start(topic.name, topic_id, topic.partitions)
        partitions[index] = partition

    def _start(
        self, name: str, topic_id: Uuid, known: Mapping[int, PartitionImage]
    ) -> dict[int, PartitionImage]:
        partitions = self._partitions[topic_id] = dict(known)
        topic = TopicImage(name, topic_id, partitions)
        self._by_name.put(name, topic)
        self._by_id.put(topic_id, topic)
        self.changed.add(name)
        return partitions


def partition_of(record: "PartitionRecord") -> PartitionImage:
    replicas = _brokers(record.replicas)
    return PartitionImage(
        replicas=replicas,
        directories=_directories(record.directories, replicas, record),
        isr=_brokers(record.isr),
        removing_replicas=_brokers(record.removing_replicas),
        adding_replicas=_brokers(record.adding_replicas),
        eligible_leader_replicas=_brokers(record.eligible_leader_replicas or []),
        last_known_elr=_brokers(record.last_known_elr or []),
        leader=BrokerId(record.leader),
        leader_recovery_state=_recovery_state(record.leader_recovery_state),
        leader_epoch=LeaderEpoch(record.leader_epoch),
        partition_epoch=record.partition_epoch,
    )


def changed_partition(before: PartitionImage, record: "PartitionChangeRecord") -> PartitionImage:
    """Fields that the record omits stay. Each change raises the partition epoch; a leader in the
    record, even the same one, raises the leader epoch.
    """
    replicas = before.replicas if record.replicas is None else _brokers(record.replicas)
    directories = before.directories if record.directories is None else record.directories
    elects = record.leader != NO_LEADER_CHANGE
    recovers = record.leader_recovery_state != NO_RECOVERY_STATE_CHANGE
    return replace(
        before,
        replicas=replicas,
        directories=_directories(directories, replicas, record),
        isr=_changed_or_before(record.isr, before.isr),
        removing_replicas=_changed_or_before(record.removing_replicas, before.removing_replicas),
        adding_replicas=_changed_or_before(record.adding_replicas, before.adding_replicas),
        eligible_leader_replicas=_changed_or_before(
            record.eligible_leader_replicas, before.eligible_leader_replicas
        ),
        last_known_elr=_changed_or_before(record.last_known_elr, before.last_known_elr),
        leader=BrokerId(record.leader) if elects else before.leader,
        leader_epoch=LeaderEpoch(before.leader_epoch + elects),
        leader_recovery_state=(
            _recovery_state(record.leader_recovery_state)
            if recovers
            else before.leader_recovery_state
        ),
        partition_epoch=before.partition_epoch + 1,
    )


def _changed_or_before(
    changed: list[int] | None, before: tuple[BrokerId, ...]
) -> tuple[BrokerId, ...]:
    return before if changed is None else _brokers(changed)


def _brokers(ids: list[int]) -> tuple[BrokerId, ...]:
    """Not converted one by one: an image has many."""
    return cast("tuple[BrokerId, ...]", tuple(ids))


def _directories(
    directories: Sequence[Uuid],
    replicas: tuple[int, ...],
    record: "PartitionRecord | PartitionChangeRecord",
) -> tuple[Uuid, ...]:
    """Records that predate directory ids have none, for any number of replicas."""
    if all(directory == MIGRATING_DIRECTORY for directory in directories):
        return (MIGRATING_DIRECTORY,) * len(replicas)
    if len(directories) != len(replicas):
        raise MetadataReplayError(
            f"partition {uuid_text(record.topic_id)}:{record.partition_id} has {len(replicas)} "
            f"replicas in {len(directories)} directories"
        )
    return tuple(directories)


def _recovery_state(number: int) -> int:
    if number not in _RECOVERY_STATES:
        raise MetadataReplayError(f"leader recovery state {number} is unknown")
    return number


def _unknown_topic(topic_id: Uuid) -> NoReturn:
    raise MetadataReplayError(f"a record names topic {uuid_text(topic_id)}, which does not exist")
