"""The cluster's metadata at one offset of the metadata log. An image is immutable: a delta makes
the next one. Mappings are plain dicts that must not be written to.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple, TypeAlias

from moldau.core.metadata.partition_counts import PartitionCounts
from moldau.frozen import frozen
from moldau.protocol.enums import ConfigResourceType
from moldau.types import (
    FIRST_EPOCH,
    NO_LEADER,
    NO_OFFSET,
    ZERO_UUID,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicPartition,
    Uuid,
)

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"

# Reserved directory ids.
MIGRATING_DIRECTORY = ZERO_UUID
"""The replica was assigned before directories had ids."""
UNASSIGNED_DIRECTORY = Uuid(bytes(15) + b"\x01")
LOST_DIRECTORY = Uuid(bytes(15) + b"\x02")
"""The replica's directory is offline."""


class ConfigResource(NamedTuple):
    kind: ConfigResourceType
    name: str
    """"" of kind BROKER is the default of all brokers."""


@frozen(kw_only=True)
class PartitionImage:
    replicas: tuple[BrokerId, ...]
    directories: tuple[Uuid, ...]
    """One directory per replica."""
    isr: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    leader: BrokerId = NO_LEADER
    leader_recovery_state: int = 0
    leader_epoch: LeaderEpoch = FIRST_EPOCH
    partition_epoch: int = 0


@frozen
class TopicImage:
    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionImage]


@frozen
class Endpoint:
    name: str
    """The name of the listener."""
    host: str
    port: int
    security_protocol: int = 0


@frozen(kw_only=True)
class BrokerImage:
    broker_id: BrokerId
    epoch: int
    incarnation_id: Uuid = ZERO_UUID
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    rack: str | None = None
    is_fenced: bool = True
    in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False
    log_directories: tuple[Uuid, ...] = ()
    """Online directories, in Kafka's order."""
    cordoned_log_directories: tuple[Uuid, ...] | None = None
    """None until the broker has reported them."""


@frozen(kw_only=True)
class ControllerImage:
    controller_id: BrokerId
    incarnation_id: Uuid = ZERO_UUID
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    zk_migration_ready: bool = False


class AclImage(NamedTuple):
    """Numbers are those of the enums ResourceType, PatternType, AclOperation and AclPermissionType.
    Unknown numbers of later releases are kept.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class ScramUser(NamedTuple):
    name: str
    mechanism: int


@frozen(kw_only=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


# (type, name) pairs sorted by type; the name None is the default of the type.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]


@frozen(kw_only=True)
class DelegationToken:
    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int


@frozen(kw_only=True)
class MetadataImage:
    offset: Offset = NO_OFFSET
    """The offset of the last record in the image."""
    epoch: LeaderEpoch = FIRST_EPOCH
    timestamp_ms: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels, including metadata.version, without those at 0. kraft.version is kept by
    the quorum instead."""
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    partition_counts: PartitionCounts = PartitionCounts()
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    """Settings of all kinds of resources: topics, brokers, groups, client metrics."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: Mapping[Uuid, AclImage] = field(default_factory=dict)
    scram_credentials: Mapping[ScramUser, ScramCredential] = field(default_factory=dict)
    delegation_tokens: Mapping[str, DelegationToken] = field(default_factory=dict)

    @property
    def metadata_version(self) -> int | None:
        """The level of metadata.version; None before the bootstrap records."""
        return self.features.get(METADATA_VERSION)

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        topic = self.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def partition(self, partition: TopicPartition) -> PartitionImage | None:
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def config_of(self, kind: ConfigResourceType, name: str) -> Mapping[str, str]:
        return self.configs.get(ConfigResource(kind, name), {})


EMPTY_IMAGE = MetadataImage()
