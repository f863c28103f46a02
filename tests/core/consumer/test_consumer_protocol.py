"""The protocol between members: encoded and assigned like other clients do."""

from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.core.consumer.assignors import ASSIGNORS, Subscription
from moldau.core.consumer.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.wire.codec import encode
from moldau.types import TopicPartition

TOPICS = st.sampled_from(["a", "b", "c", "d"])
SUBSCRIPTIONS = st.dictionaries(
    st.text("mnop", min_size=1, max_size=4), st.lists(TOPICS, min_size=1, unique=True), min_size=1
)
PARTITIONS = st.dictionaries(TOPICS, st.integers(0, 9))


class PeerCluster:
    """The part of a client that aiokafka's assignors need."""

    def __init__(self, partitions: dict[str, int]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        count = self._partitions.get(topic)
        return None if count is None else set(range(count))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)],
)
@settings(deadline=None)
@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS)
def test_assignors_agree_with_those_of_aiokafka(
    ours: str, theirs: Any, subscriptions: dict[str, list[str]], partitions: dict[str, int]
) -> None:
    metadata = {
        member: ConsumerProtocolMemberMetadata(0, topics, b"")
        for member, topics in subscriptions.items()
    }
    expected = theirs.assign(PeerCluster(partitions), metadata)
    racks = {topic: [frozenset[str]()] * count for topic, count in partitions.items()}
    members = {name: Subscription(topics=tuple(topics)) for name, topics in subscriptions.items()}
    assigned = ASSIGNORS[ours]().assign(racks, members)
    assert {member: sorted(found) for member, found in assigned.items()} == {
        member: sorted(TopicPartition(*one) for one in found.partitions())
        for member, found in expected.items()
    }


def test_aiokafka_and_moldau_read_each_others_subscriptions() -> None:
    ours = write_subscription(Subscription(topics=("orders", "users")))
    assert ConsumerProtocolMemberMetadata.decode(ours).subscription == ["orders", "users"]
    theirs = ConsumerProtocolMemberMetadata(0, ["orders"], b"").encode()
    assert read_subscription(theirs).topics == ("orders",)


def test_aiokafka_and_moldau_read_each_others_assignments() -> None:
    partitions = (TopicPartition("orders", 0), TopicPartition("orders", 2), TopicPartition("u", 1))
    decoded = ConsumerProtocolMemberAssignment.decode(write_assignment(partitions))
    assert [tuple(one) for one in decoded.partitions()] == list(partitions)
    theirs = ConsumerProtocolMemberAssignment(0, [("orders", [2, 0]), ("u", [1])], b"").encode()
    assert sorted(read_assignment(theirs)) == list(partitions)


def test_a_member_without_a_share_has_no_bytes() -> None:
    assert read_assignment(b"") == ()


@pytest.mark.parametrize("version", [1, 2, 3, 99])
def test_subscriptions_of_newer_clients_are_read(version: int) -> None:
    newest = ConsumerProtocolSubscription.VERSIONS[1]
    message = ConsumerProtocolSubscription(topics=["orders"], rack_id="r1")
    content = version.to_bytes(2, "big") + encode(message, min(version, newest))
    later = b"fields of a later version" if version > newest else b""
    assert read_subscription(content + later).topics == ("orders",)


@pytest.mark.parametrize("content", [b"\x00", b"\x00\x00", b"\x00\x00\x00\x00\x00\x09ab"])
def test_broken_subscriptions_are_refused(content: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        read_subscription(content)
