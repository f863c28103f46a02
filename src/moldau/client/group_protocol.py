"""What members of a classic group say to each other: subscriptions, assignments, and the assignors
that every Kafka client knows. Bytes and pure functions.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import TypeVar

from moldau.protocol.codec import decode_prefix, encode
from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from moldau.protocol.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from moldau.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.schema import Message
from moldau.types import TopicPartition

PROTOCOL_TYPE = "consumer"
# The oldest form: every member understands it, and nothing of the later ones is used.
_WRITTEN_VERSION = 0
_version = struct.Struct(">h")

Subscriptions = Mapping[str, Sequence[str]]
"""Member id to topics."""
Assignment = dict[str, list[TopicPartition]]
Assignor = Callable[[Subscriptions, Mapping[str, int]], Assignment]
Found = TypeVar("Found", bound=Message)


def write_subscription(topics: Sequence[str]) -> bytes:
    return _write(ConsumerProtocolSubscription(topics=list(topics)))


def read_subscription(content: bytes) -> list[str]:
    return _read(ConsumerProtocolSubscription, content).topics


def write_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    topics: dict[str, AssignedTopic] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, AssignedTopic(topic=topic)).partitions.append(number)
    return _write(ConsumerProtocolAssignment(assigned_partitions=list(topics.values())))


def read_assignment(content: bytes) -> tuple[TopicPartition, ...]:
    """Empty for a member that has none yet."""
    if not content:
        return ()
    found = _read(ConsumerProtocolAssignment, content).assigned_partitions
    return tuple(sorted(TopicPartition(one.topic, n) for one in found for n in one.partitions))


def _write(message: Message) -> bytes:
    return _version.pack(_WRITTEN_VERSION) + encode(message, _WRITTEN_VERSION)


def _read(message_class: type[Found], content: bytes) -> Found:
    """A newer version is read as the newest that is known: later fields come behind."""
    if len(content) < _version.size:
        raise MalformedRequestError(f"{message_class.__name__} of {len(content)} bytes")
    (version,) = _version.unpack_from(content)
    oldest, newest = message_class.VERSIONS
    found, _ = decode_prefix(
        message_class, max(oldest, min(version, newest)), memoryview(content)[_version.size :]
    )
    return found


def assign_range(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignment:
    """Topic by topic, each member a run of partitions; the first members get one more."""
    assigned: Assignment = {member: [] for member in subscriptions}
    for topic in sorted(partitions):
        members = sorted(one for one, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        least, more = divmod(partitions[topic], len(members))
        start = 0
        for place, member in enumerate(members):
            end = start + least + (place < more)
            assigned[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assigned


def assign_round_robin(subscriptions: Subscriptions, partitions: Mapping[str, int]) -> Assignment:
    """All partitions in order, dealt out to those who want them."""
    assigned: Assignment = {member: [] for member in subscriptions}
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    members = cycle(sorted(subscriptions))
    for topic in sorted(wanted & set(partitions)):
        for number in range(partitions[topic]):
            member = next(one for one in members if topic in subscriptions[one])
            assigned[member].append(TopicPartition(topic, number))
    return assigned


ASSIGNORS: dict[str, Assignor] = {"range": assign_range, "roundrobin": assign_round_robin}
