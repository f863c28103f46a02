"""Histories of metadata records that a controller could have written, by seed and length: a shorter
history of the same seed is the start of the longer one.
"""

import random
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.partition_counts import PartitionCounts
from moldau.protocol.log_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from moldau.protocol.log_records.client_quota_record import EntityData
from moldau.protocol.log_records.register_broker_record import BrokerEndpoint, BrokerFeature
from moldau.protocol.log_records.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
)
from moldau.protocol.wire.schema import Message
from moldau.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("a", "b.c", "d_e", "__consumer_offsets")
LATEST = FeatureLevelRecord(name="metadata.version", feature_level=30)


def history(seed: int, length: int) -> list[Message]:
    world = World(random.Random(seed))
    return [LATEST, *(world.next_record() for _ in range(length))]


def histories(length_max: int = 60) -> st.SearchStrategy[list[Message]]:
    return st.builds(history, st.integers(0, 1 << 32), st.integers(0, length_max))


def counted(image: MetadataImage) -> PartitionCounts:
    """The counts that the image must have, by looking at every partition."""
    partitions = [each for topic in image.topics.values() for each in topic.partitions.values()]
    return PartitionCounts(
        total=len(partitions),
        led=Counter(each.leader for each in partitions),
        in_sync=Counter(broker for each in partitions for broker in each.isr),
        eligible=Counter(broker for each in partitions for broker in each.eligible_leader_replicas),
        not_preferred=sum(each.leader != each.replicas[0] for each in partitions),
    )


class World:
    """The state after the records so far: only existing objects can be changed."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.topics: dict[str, Uuid] = {}
        self.partitions: list[tuple[Uuid, int]] = []
        self.brokers: dict[int, int] = {}
        self.acls: list[Uuid] = []
        self.makers: list[Callable[[], Message]] = [
            self._topic, self._topic, self._remove_topic, self._clear_elr,
            self._partition, self._partition, self._partition_change, self._partition_change,
            self._broker, self._fence, self._unfence, self._broker_change, self._unregister,
            self._controller, self._config, self._config, self._feature, self._quota, self._quota,
            self._producer_ids, self._acl, self._acl, self._remove_acl, self._scram,
            self._remove_scram, self._token, self._remove_token, self._other,
        ]  # fmt: skip

    def next_record(self) -> Message:
        return self.chance.choice(self.makers)()

    def _uuid(self) -> Uuid:
        return Uuid(self.chance.randbytes(16))

    def _name(self) -> str:
        return self.chance.choice(NAMES)

    def _maybe_name(self) -> str | None:
        return self.chance.choice((None, *NAMES))

    def _ids(self, least: int = 0) -> list[int]:
        return self.chance.sample(range(5), self.chance.randint(least, 3))

    def _maybe_ids(self) -> list[int] | None:
        return self.chance.choice((None, self._ids()))

    def _directories(self) -> list[Uuid]:
        return [self._uuid() for _ in range(self.chance.randint(0, 2))]

    def _number(self) -> int:
        return self.chance.randrange(5)

    def _flag(self) -> bool:
        return self.chance.random() < 0.5

    # Topics

    def _topic(self) -> Message:
        free = [name for name in NAMES if name not in self.topics]
        if not free:
            return NoOpRecord()
        record = TopicRecord(name=self.chance.choice(free), topic_id=self._uuid())
        self.topics[record.name] = record.topic_id
        return record

    def _remove_topic(self) -> Message:
        if not self.topics:
            return NoOpRecord()
        topic_id = self.topics.pop(self.chance.choice(list(self.topics)))
        self.partitions = [place for place in self.partitions if place[0] != topic_id]
        return RemoveTopicRecord(topic_id=topic_id)

    def _clear_elr(self) -> Message:
        return ClearElrRecord(topic_name=self.chance.choice(["", *self.topics]))

    def _partition(self) -> Message:
        if not self.topics:
            return NoOpRecord()
        topic_id = self.chance.choice(list(self.topics.values()))
        index = self._number()
        if (topic_id, index) not in self.partitions:
            self.partitions.append((topic_id, index))
        replicas = self._ids(1)
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas[:1],
            removing_replicas=self._ids(),
            adding_replicas=self._ids(),
            leader=self.chance.choice([-1, *replicas]),
            leader_recovery_state=self.chance.randrange(2),
            leader_epoch=self._number(),
            partition_epoch=self._number(),
            directories=[self._uuid() for _ in replicas],
            eligible_leader_replicas=self._maybe_ids(),
            last_known_elr=self._maybe_ids(),
        )

    def _partition_change(self) -> Message:
        if not self.partitions:
            return NoOpRecord()
        topic_id, index = self.chance.choice(self.partitions)
        replicas = self._ids(1) if self._flag() else None
        return PartitionChangeRecord(
            partition_id=index,
            topic_id=topic_id,
            isr=self._maybe_ids(),
            leader=self.chance.randint(-2, 4),
            replicas=replicas,
            removing_replicas=self._maybe_ids(),
            adding_replicas=self._maybe_ids(),
            leader_recovery_state=self.chance.randint(-1, 1),
            directories=None if replicas is None else [self._uuid() for _ in replicas],
            eligible_leader_replicas=self._maybe_ids(),
            last_known_elr=self._maybe_ids(),
        )

    # Nodes

    def _broker(self) -> Message:
        broker_id, epoch = self._number(), self._number()
        self.brokers[broker_id] = epoch
        return RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=epoch,
            incarnation_id=self._uuid(),
            is_migrating_zk_broker=self._flag(),
            end_points=[
                BrokerEndpoint(name=name, host="h", port=self._number(), security_protocol=1)
                for name in NAMES[: self._number()]
            ],
            features=[
                BrokerFeature(name=name, max_supported_version=self._number())
                for name in NAMES[: self._number()]
            ],
            rack=self._maybe_name(),
            fenced=self._flag(),
            in_controlled_shutdown=self._flag(),
            log_dirs=self._directories(),
            cordoned_log_dirs=self.chance.choice((None, self._directories())),
        )

    def _some_broker(self) -> tuple[int, int] | None:
        return self.chance.choice(list(self.brokers.items())) if self.brokers else None

    def _fence(self) -> Message:
        found = self._some_broker()
        return FenceBrokerRecord(id=found[0], epoch=found[1]) if found else NoOpRecord()

    def _unfence(self) -> Message:
        found = self._some_broker()
        return UnfenceBrokerRecord(id=found[0], epoch=found[1]) if found else NoOpRecord()

    def _broker_change(self) -> Message:
        found = self._some_broker()
        if found is None:
            return NoOpRecord()
        return BrokerRegistrationChangeRecord(
            broker_id=found[0],
            broker_epoch=found[1],
            fenced=self.chance.randint(-1, 1),
            in_controlled_shutdown=self.chance.randrange(2),
            log_dirs=self._directories(),
            cordoned_log_dirs=self.chance.choice((None, self._directories())),
        )

    def _unregister(self) -> Message:
        found = self._some_broker()
        if found is None:
            return NoOpRecord()
        del self.brokers[found[0]]
        return UnregisterBrokerRecord(broker_id=found[0], broker_epoch=found[1])

    def _controller(self) -> Message:
        return RegisterControllerRecord(
            controller_id=self._number(),
            incarnation_id=self._uuid(),
            zk_migration_ready=self._flag(),
            end_points=[
                ControllerEndpoint(name=name, host="h", port=self._number())
                for name in NAMES[: self._number()]
            ],
            features=[
                ControllerFeature(name=name, max_supported_version=self._number())
                for name in NAMES[: self._number()]
            ],
        )

    # The rest

    def _config(self) -> Message:
        return ConfigRecord(
            resource_type=self.chance.choice([2, 4, 16, 32]),
            resource_name=self.chance.choice(("", *NAMES)),
            name=self._name(),
            value=self._maybe_name(),
        )

    def _feature(self) -> Message:
        name = self.chance.choice(["group.version", "share.version", "kraft.version"])
        return FeatureLevelRecord(name=name, feature_level=self.chance.randrange(3))

    def _quota(self) -> Message:
        kinds = self.chance.sample(["user", "client-id", "ip"], self.chance.randint(1, 2))
        return ClientQuotaRecord(
            entity=[EntityData(entity_type=kind, entity_name=self._maybe_name()) for kind in kinds],
            key=self.chance.choice(["producer_byte_rate", "request_percentage"]),
            value=self.chance.random() * 1e9,
            remove=self._flag(),
        )

    def _producer_ids(self) -> Message:
        return ProducerIdsRecord(next_producer_id=self.chance.randint(1, 1 << 60))

    def _acl(self) -> Message:
        record = AccessControlEntryRecord(
            id=self._uuid(),
            resource_type=self._number(),
            resource_name=self._name(),
            pattern_type=self._number(),
            principal=self._name(),
            host="*",
            operation=self._number(),
            permission_type=self._number(),
        )
        self.acls.append(record.id)
        return record

    def _remove_acl(self) -> Message:
        if not self.acls:
            return NoOpRecord()
        acl_id = self.acls.pop(self.chance.randrange(len(self.acls)))
        return RemoveAccessControlEntryRecord(id=acl_id)

    def _scram(self) -> Message:
        return UserScramCredentialRecord(
            name=self._name(),
            mechanism=self.chance.randint(1, 2),
            salt=self.chance.randbytes(3),
            stored_key=self.chance.randbytes(3),
            server_key=self.chance.randbytes(3),
            iterations=self.chance.randint(4096, 16384),
        )

    def _remove_scram(self) -> Message:
        return RemoveUserScramCredentialRecord(
            name=self._name(), mechanism=self.chance.randint(1, 2)
        )

    def _token(self) -> Message:
        return DelegationTokenRecord(
            owner=self._name(),
            requester=self._name(),
            renewers=[self._name()],
            issue_timestamp=self._number(),
            max_timestamp=self._number(),
            expiration_timestamp=self._number(),
            token_id=self._name(),
        )

    def _remove_token(self) -> Message:
        return RemoveDelegationTokenRecord(token_id=self._name())

    def _other(self) -> Message:
        return self.chance.choice([NoOpRecord(), ZkMigrationStateRecord(zk_migration_state=3)])
