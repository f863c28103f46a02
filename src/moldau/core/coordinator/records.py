"""A record of a coordinator's topic: a typed key and a typed value, or a tombstone."""

from typing import NamedTuple

from moldau.protocol.schema import Message
from moldau.protocol.stored_records import (
    CoordinatorTopic,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)
from moldau.types import Buffer


class CoordinatorRecord(NamedTuple):
    key: Message
    value: Message | None = None
    """None is a tombstone."""
    version: int = 0
    """Of the value."""


class StoredPair(NamedTuple):
    key: bytes
    value: bytes | None


def encode_record(record: CoordinatorRecord) -> StoredPair:
    value = record.value
    return StoredPair(
        encode_coordinator_key(record.key),
        None if value is None else encode_coordinator_value(value, record.version),
    )


def decode_record(topic: CoordinatorTopic, key: Buffer, value: Buffer | None) -> CoordinatorRecord:
    """Raises MalformedRequestError for broken bytes, KafkaError(UNSUPPORTED_VERSION) for a type or
    a version from a later release.
    """
    decoded = decode_coordinator_key(topic, key)
    if value is None:
        return CoordinatorRecord(decoded)
    message, version = decode_coordinator_value(topic, decoded.API_KEY, value)
    return CoordinatorRecord(decoded, message, version)
