"""The protocol between the members of a classic group: subscriptions and assignments, in the
versions that Kafka's clients write. The coordinator only passes them on.
"""

import struct
from collections.abc import Iterable
from typing import TypeVar

from moldau.core.consumer.assignors.contract import Subscription
from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from moldau.protocol.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from moldau.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from moldau.protocol.wire.codec import decode_prefix, encode
from moldau.protocol.wire.schema import Message
from moldau.types import TopicPartition

PROTOCOL_TYPE = "consumer"
_WRITTEN_VERSION = 3
_version = struct.Struct(">h")
MessageT = TypeVar("MessageT", bound=Message)


def write_subscription(subscription: Subscription) -> bytes:
    owned: dict[str, OwnedTopic] = {}
    for topic, number in sorted(subscription.owned):
        owned.setdefault(topic, OwnedTopic(topic=topic)).partitions.append(number)
    return _write(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=list(owned.values()),
            generation_id=subscription.generation,
            rack_id=subscription.rack,
        )
    )


def read_subscription(content: bytes, instance_id: str | None = None) -> Subscription:
    message = _read(ConsumerProtocolSubscription, content)
    return Subscription(
        topics=tuple(message.topics),
        user_data=None if message.user_data is None else bytes(message.user_data),
        owned=tuple(
            TopicPartition(topic.topic, number)
            for topic in message.owned_partitions
            for number in topic.partitions
        ),
        generation=message.generation_id,
        rack=message.rack_id or None,
        instance_id=instance_id,
    )


def write_assignment(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    topics: dict[str, AssignedTopic] = {}
    for topic, number in partitions:
        topics.setdefault(topic, AssignedTopic(topic=topic)).partitions.append(number)
    return _write(
        ConsumerProtocolAssignment(assigned_partitions=list(topics.values()), user_data=user_data)
    )


def read_assignment(content: bytes) -> tuple[TopicPartition, ...]:
    """Empty for a member without partitions."""
    if not content:
        return ()
    message = _read(ConsumerProtocolAssignment, content).assigned_partitions
    return tuple(
        TopicPartition(topic.topic, number) for topic in message for number in topic.partitions
    )


def _write(message: Message) -> bytes:
    return _version.pack(_WRITTEN_VERSION) + encode(message, _WRITTEN_VERSION)


def _read(message_class: type[MessageT], content: bytes) -> MessageT:
    """Reads a newer version as the newest known one: later fields are appended."""
    if len(content) < _version.size:
        raise MalformedRequestError(f"{message_class.__name__} of {len(content)} bytes")
    (version,) = _version.unpack_from(content)
    oldest, newest = message_class.VERSIONS
    message, _ = decode_prefix(
        message_class, max(oldest, min(version, newest)), memoryview(content)[_version.size :]
    )
    return message
