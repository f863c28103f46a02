"""A record of a coordinator's topic: a typed key and a typed value, or a tombstone."""

from typing import NamedTuple

from moldau.protocol.records.stored_records import encode_coordinator_key, encode_coordinator_value
from moldau.protocol.wire.schema import Message


class CoordinatorRecord(NamedTuple):
    key: Message
    value: Message | None = None
    """None is a tombstone."""
    version: int = 0
    """The schema version of the value."""


class StoredPair(NamedTuple):
    key: bytes
    value: bytes | None


def encode_record(record: CoordinatorRecord) -> StoredPair:
    value = record.value
    return StoredPair(
        encode_coordinator_key(record.key),
        None if value is None else encode_coordinator_value(value, record.version),
    )
