"""The cluster's metadata at one offset of the metadata log. Nothing in an image ever changes:
a delta makes the next one. Mappings are plain dicts that nobody may write to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.protocol.enums import ConfigResourceType
from moldau.types import ZERO_UUID, TopicPartition, Uuid

NO_LEADER = -1


class ConfigResource(NamedTuple):
    kind: ConfigResourceType
    name: str
    """"" of BROKER is the default of all brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = 0
    leader_epoch: int = 0
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    """The listener's name."""
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    broker_id: int
    epoch: int
    incarnation_id: Uuid = ZERO_UUID
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    rack: str | None = None
    is_fenced: bool = True
    in_controlled_shutdown: bool = False
    log_directories: tuple[Uuid, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    controller_id: int
    incarnation_id: Uuid = ZERO_UUID
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    offset: int = -1
    """The last offset that is in it."""
    epoch: int = 0
    timestamp_ms: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels: metadata.version and the others."""
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0

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
