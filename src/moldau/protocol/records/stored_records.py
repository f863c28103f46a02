"""The framing of records in the metadata log and the coordinators' topics: metadata records in a
frame of three varints, coordinator keys after their type, coordinator values after their version.
"""

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from moldau.protocol import log_records
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError
from moldau.protocol.wire.codec import TRUSTED_ELEMENT_BUDGET, decode, encode
from moldau.protocol.wire.primitives import read_unsigned_varint, unsigned_varint
from moldau.protocol.wire.schema import Message
from moldau.types import Buffer

METADATA_FRAME_VERSION = 1
# Every key has this version; the type before it distinguishes keys.
KEY_VERSION = 0

_Lookup = Callable[[int], type[Message]]


class CoordinatorTopic(Enum):
    """The owner of the records: each topic numbers its record types separately."""

    GROUP = "__consumer_offsets"
    TRANSACTION = "__transaction_state"
    SHARE = "__share_group_state"


_INT16 = Struct(">h")
_CLASSES: dict[CoordinatorTopic, tuple[_Lookup, _Lookup]] = {
    CoordinatorTopic.GROUP: (log_records.group_key_class, log_records.group_value_class),
    CoordinatorTopic.TRANSACTION: (
        log_records.transaction_key_class,
        log_records.transaction_value_class,
    ),
    CoordinatorTopic.SHARE: (log_records.share_key_class, log_records.share_value_class),
}


class StoredRecord(NamedTuple):
    message: Message
    version: int


def encode_metadata_record(message: Message, version: int) -> bytes:
    head = (METADATA_FRAME_VERSION, message.API_KEY, version)
    return b"".join(unsigned_varint(number) for number in head) + encode(message, version)


def decode_metadata_record(
    buffer: Buffer, lookup: _Lookup = log_records.metadata_record_class
) -> StoredRecord:
    """Raises MalformedRequestError for broken bytes, KafkaError(UNSUPPORTED_VERSION) for a frame,
    type or version from a later release. Remote log metadata has the same frame and its own types.
    """
    view = memoryview(buffer).cast("B")
    frame_version, offset = read_unsigned_varint(view, 0)
    if frame_version != METADATA_FRAME_VERSION:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"metadata frame version {frame_version}")
    record_type, offset = read_unsigned_varint(view, offset)
    version, offset = read_unsigned_varint(view, offset)
    message_class = _class_of(lookup, record_type, "metadata record")
    message = decode(message_class, version, view[offset:], budget=TRUSTED_ELEMENT_BUDGET)
    return StoredRecord(message, version)


def encode_coordinator_key(key: Message) -> bytes:
    return key.API_KEY.to_bytes(2, "big") + encode(key, KEY_VERSION)


def encode_coordinator_value(value: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(value, version)


def decode_coordinator_key(topic: CoordinatorTopic, buffer: Buffer) -> Message:
    record_type, body = _int16_and_rest(buffer)
    return decode(_key_class(topic, record_type), KEY_VERSION, body, budget=TRUSTED_ELEMENT_BUDGET)


def decode_coordinator_value(
    topic: CoordinatorTopic, record_type: int, buffer: Buffer
) -> StoredRecord:
    """`record_type` is the API_KEY of the key."""
    version, body = _int16_and_rest(buffer)
    message_class = _value_class(topic, record_type)
    return StoredRecord(
        decode(message_class, version, body, budget=TRUSTED_ELEMENT_BUDGET), version
    )


# Finding a class goes through Python's importer, which takes longer than decoding a record.


@lru_cache(maxsize=256)
def _key_class(topic: CoordinatorTopic, record_type: int) -> type[Message]:
    return _class_of(_CLASSES[topic][0], record_type, f"{topic.value} record")


@lru_cache(maxsize=256)
def _value_class(topic: CoordinatorTopic, record_type: int) -> type[Message]:
    return _class_of(_CLASSES[topic][1], record_type, f"{topic.value} record")


@lru_cache(maxsize=256)
def _found(lookup: _Lookup, record_type: int) -> type[Message]:
    return lookup(record_type)


def _class_of(lookup: _Lookup, record_type: int, what: str) -> type[Message]:
    try:
        return _found(lookup, record_type)
    except KeyError:
        detail = f"{what} type {record_type} is unknown"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, detail) from None


def _int16_and_rest(buffer: Buffer) -> tuple[int, Buffer]:
    # A copy of a few bytes is cheaper than a view of them.
    content = buffer if isinstance(buffer, bytes) else memoryview(buffer).cast("B")
    if len(content) < _INT16.size:
        raise MalformedRequestError(f"coordinator record of {len(content)} bytes has no type")
    return _INT16.unpack_from(content)[0], content[_INT16.size :]
