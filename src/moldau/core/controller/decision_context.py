"""Everything that a decision of the controller may read. A context is immutable: every decision
gets a new one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from moldau.core.controller.brokers.sessions import BrokerSessions
from moldau.core.controller.topics.placement import UsableBroker
from moldau.core.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionImage,
)
from moldau.core.metadata.levels import DIRECTORIES_FROM
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import BrokerId, Uuid

if TYPE_CHECKING:
    import random

    from moldau.config.broker import BrokerConfig

ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
RECORDS_PER_REQUEST_MAX = 10_000
"""Records that one request may write. They are committed as one batch, so more are refused."""
_RESERVED_DIRECTORIES = 100


@frozen(kw_only=True)
class DecisionContext:
    image: MetadataImage
    sessions: BrokerSessions
    config: "BrokerConfig"
    """The active controller's own settings."""
    cluster_id: str
    next_offset: int
    """The log offset of the next record."""
    now_ms: float
    """Time of the monotonic clock."""
    chance: "random.Random"
    kraft_version: int = 1

    @property
    def level(self) -> int:
        """The metadata.version. It is always set: the bootstrap records precede every decision."""
        level = self.image.metadata_version
        assert level is not None
        return level

    @property
    def has_directories(self) -> bool:
        return self.level >= DIRECTORIES_FROM

    @property
    def has_eligible_replicas(self) -> bool:
        return self.image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) >= 1

    def new_id(self) -> Uuid:
        """A random id. As in Kafka, its text form does not start with a dash."""
        while True:
            # Version 4, variant 1, as Java's UUID.randomUUID makes them.
            drawn = bytearray(self.chance.randbytes(16))
            drawn[6] = (drawn[6] & 0x0F) | 0x40
            drawn[8] = (drawn[8] & 0x3F) | 0x80
            # 62 of 64: the first six bits are the first character of the text form, "-".
            if drawn[0] >> 2 != 62:
                return Uuid(bytes(drawn))

    def is_active(self, broker_id: BrokerId) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced and not broker.in_controlled_shutdown

    def may_lead(self, partition: PartitionImage, broker_id: BrokerId) -> bool:
        """Whether the directory that holds the replica is online; not whether the broker is."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker_id not in partition.replicas:
            return False
        return is_online(broker, partition.directories[partition.replicas.index(broker_id)])

    def usable_brokers(self) -> Iterator[UsableBroker]:
        """Brokers that may get new replicas."""
        for broker in self.image.brokers.values():
            is_leaving = self.sessions.shutdown_offset(broker.broker_id) is not None
            if not is_leaving and has_uncordoned_directory(broker):
                yield UsableBroker(broker.broker_id, broker.rack, broker.is_fenced)

    def default_directory(self, broker_id: BrokerId) -> Uuid:
        """The directory of a new replica until its broker reports another one."""
        broker = self.image.brokers.get(broker_id)
        if not self.has_directories or (broker is not None and not broker.log_directories):
            return MIGRATING_DIRECTORY
        if broker is not None and len(broker.log_directories) == 1:
            return broker.log_directories[0]
        return UNASSIGNED_DIRECTORY

    def check_broker_epoch(self, broker_id: BrokerId, broker_epoch: int) -> BrokerImage:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            detail = f"No broker registration found for broker id {broker_id}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, detail)
        if broker.epoch != broker_epoch:
            detail = f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, detail)
        return broker


def is_online(broker: BrokerImage, directory: Uuid) -> bool:
    if directory in {UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY}:
        return True
    # A registration without directories predates directory ids: treat every directory as online.
    return directory != LOST_DIRECTORY and (
        not broker.log_directories or directory in broker.log_directories
    )


def has_uncordoned_directory(broker: BrokerImage) -> bool:
    cordoned = broker.cordoned_log_directories
    if not broker.log_directories or cordoned is None:
        return True
    return any(directory not in cordoned for directory in broker.log_directories)


def is_reserved(directory: Uuid) -> bool:
    """Whether the id has a special meaning and does not name a directory."""
    return int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES


def too_many_records() -> KafkaError:
    detail = "Unable to perform excessively large batch operation."
    return KafkaError(ErrorCode.POLICY_VIOLATION, detail)
