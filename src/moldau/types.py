"""Named types for numbers and bytes, so that signatures are precise, and the numbers with a meaning
of their own, each defined here and nowhere else. No behaviour beyond conversion.
"""

import base64
import binascii
from typing import NamedTuple, NewType, TypeAlias

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TimestampMs = NewType("TimestampMs", int)

# Sixteen raw bytes: cheap to read from the wire, hashable, comparable.
Uuid = NewType("Uuid", bytes)

# Bytes-like: input of the codec and of the log's writes.
Buffer: TypeAlias = bytes | bytearray | memoryview

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

ZERO_UUID = Uuid(bytes(16))
NO_OFFSET = Offset(-1)
FIRST_OFFSET = Offset(0)
OFFSET_MAX = Offset(INT64_MAX)
NO_EPOCH = LeaderEpoch(-1)
FIRST_EPOCH = LeaderEpoch(0)
NO_LEADER = BrokerId(-1)
NO_NODE = BrokerId(-1)
CONSUMER_REPLICA = BrokerId(-1)
"""Fetch and ListOffsets name the replica that reads: consumers are not replicas."""
NO_BROKER_EPOCH = -1
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
PRODUCER_EPOCH_MAX = ProducerEpoch(INT16_MAX)
NO_SEQUENCE = -1
NO_TIMESTAMP = TimestampMs(-1)

NO_FETCH_SESSION = 0
FIRST_FETCH_EPOCH = 0
FINAL_FETCH_EPOCH = -1
"""A Fetch with this epoch ends its session, or has none."""


class TopicPartition(NamedTuple):
    """A partition: the name of its topic and its number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


METADATA_PARTITION = TopicPartition("__cluster_metadata", 0)
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The same in every cluster."""


def uuid_text(uuid: Uuid) -> str:
    """Kafka's text form: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid).decode("ascii").rstrip("=")


def parse_uuid(text: str) -> Uuid:
    """Raises ValueError unless `text` is the text form of exactly sixteen bytes."""
    if not set(text).isdisjoint("+/"):
        raise ValueError(f"not a Kafka UUID: {text!r} uses the other base64 alphabet")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a Kafka UUID: {text!r}") from error
    if len(raw) != 16:
        raise ValueError(f"not a Kafka UUID: {text!r} has {len(raw)} bytes, expected 16")
    return Uuid(raw)
