"""Levels of metadata.version, and the version of each metadata record at a level."""

from collections.abc import Iterable

from moldau.core.metadata.image import METADATA_VERSION
from moldau.protocol.enums import METADATA_VERSIONS
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from moldau.protocol.records.stored_records import encode_metadata_record
from moldau.protocol.wire.schema import Message

LEVELS = {version.name: version.level for version in METADATA_VERSIONS}
OLDEST_LEVEL = METADATA_VERSIONS[0].level
NEWEST_LEVEL = METADATA_VERSIONS[-1].level
# The newest level that this release may finalize; later ones are unstable.
LATEST_RELEASED_LEVEL = LEVELS["4.3-IV0"]

ZK_MIGRATION_FROM = LEVELS["3.4-IV0"]
SCRAM_FROM = LEVELS["3.5-IV2"]
TRANSACTIONS_FROM = LEVELS["3.6-IV1"]
DELEGATION_TOKENS_FROM = LEVELS["3.6-IV2"]
CONTROLLER_REGISTRATION_FROM = LEVELS["3.7-IV0"]
DIRECTORIES_FROM = LEVELS["3.7-IV2"]
ELR_FROM = LEVELS["4.0-IV1"]
CORDONED_DIRECTORIES_FROM = LEVELS["4.3-IV0"]


def record_version(record: Message, level: int) -> int:
    """The version in which Kafka writes this record at a level of metadata.version."""
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        return 2 if level >= ELR_FROM else int(level >= DIRECTORIES_FROM)
    if isinstance(record, RegisterBrokerRecord):
        return _register_broker_version(level)
    if isinstance(record, BrokerRegistrationChangeRecord):
        return _registration_change_version(record)
    return 0


def _register_broker_version(level: int) -> int:
    if level >= CORDONED_DIRECTORIES_FROM:
        return 4
    if level >= DIRECTORIES_FROM:
        return 3
    return 2 if level >= ZK_MIGRATION_FROM else 1


def _registration_change_version(record: BrokerRegistrationChangeRecord) -> int:
    """The oldest version that has the record's fields."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return int(record.in_controlled_shutdown != 0)


def check_level(level: int) -> None:
    """Raises KafkaError(UNSUPPORTED_VERSION) for an unknown level of metadata.version."""
    if not OLDEST_LEVEL <= level <= NEWEST_LEVEL:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version {level} is not supported: "
            f"{METADATA_VERSIONS[0].name} ({OLDEST_LEVEL}) to "
            f"{METADATA_VERSIONS[-1].name} ({NEWEST_LEVEL}) are",
        )


def level_after(records: Iterable[Message], level: int | None) -> int | None:
    """The level after these records, one of which may set it."""
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            level = record.feature_level
    return level


def encode_records(records: Iterable[Message], level: int | None) -> list[bytes]:
    """The records in the log's encoding. Each is written at the level before it, or at the one that
    it sets.
    """
    encoded = []
    for record in records:
        level = level_after([record], level)
        encoded.append(
            encode_metadata_record(record, record_version(record, level or OLDEST_LEVEL))
        )
    return encoded
