"""Assignors. tests/interop compares their results with Kafka's."""

import struct
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.core.consumer.assignors import ASSIGNORS, MemberView, Shares, Subscription
from moldau.core.consumer.assignors.user_data import read_previous, write_previous
from moldau.core.consumer.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from moldau.protocol.errors import MalformedRequestError
from moldau.types import TopicPartition

NOWHERE: frozenset[str] = frozenset()


def topics_of(**counts: int) -> dict[str, list[frozenset[str]]]:
    return {topic: [NOWHERE] * count for topic, count in counts.items()}


def members_of(**topics: str) -> dict[str, Subscription]:
    """`m1="a b"`: the member m1 subscribes to the topics a and b."""
    return {member: Subscription(topics=tuple(names.split())) for member, names in topics.items()}


def shown(shares: Shares) -> dict[str, str]:
    return {member: " ".join(map(str, sorted(share))) for member, share in shares.items()}


def assign(name: str, topics: Mapping[str, list[frozenset[str]]], **members: str) -> dict[str, str]:
    return shown(ASSIGNORS[name]().assign(topics, members_of(**members)))


def test_range_gives_consecutive_partitions() -> None:
    assert assign("range", topics_of(a=3, b=3), x="a b", y="a b") == {
        "x": "a-0 a-1 b-0 b-1",
        "y": "a-2 b-2",
    }


def test_round_robin_assigns_in_turn() -> None:
    assert assign("roundrobin", topics_of(a=3, b=3), x="a b", y="a b") == {
        "x": "a-0 a-2 b-1",
        "y": "a-1 b-0 b-2",
    }


@pytest.mark.parametrize("name", ASSIGNORS)
def test_members_without_existing_topics_get_nothing(name: str) -> None:
    assert assign(name, topics_of(a=1), x="a", y="gone") == {"x": "a-0", "y": ""}


def test_range_prefers_replicas_in_the_members_rack() -> None:
    topics = {"a": [frozenset({"left"}), frozenset({"right"})]}
    members = {
        "x": Subscription(topics=("a",), rack="right"),
        "y": Subscription(topics=("a",), rack="left"),
    }
    assert shown(ASSIGNORS["range"]().assign(topics, members)) == {"x": "a-1", "y": "a-0"}


def test_static_members_come_first() -> None:
    members = {
        "x": Subscription(topics=("a",)),
        "z": Subscription(topics=("a",), instance_id="i"),
    }
    found = ASSIGNORS["range"]().assign(topics_of(a=1), members)
    assert shown(found) == {"x": "", "z": "a-0"}


@st.composite
def situations(
    draw: st.DrawFn,
) -> tuple[dict[str, list[frozenset[str]]], dict[str, tuple[str, ...]]]:
    topics = topics_of(**{f"t{n}": draw(st.integers(1, 7)) for n in range(draw(st.integers(1, 4)))})
    wanted = st.lists(st.sampled_from(sorted(topics)), min_size=1, unique=True).map(tuple)
    members = {f"m{n}": draw(wanted) for n in range(draw(st.integers(1, 6)))}
    return topics, members


def rebalanced(
    name: str,
    topics: Mapping[str, list[frozenset[str]]],
    wanted: Mapping[str, tuple[str, ...]],
    before: Shares,
    generation: int,
) -> Shares:
    assignor = ASSIGNORS[name]()
    members = {}
    for member, names in wanted.items():
        had = tuple(before[member]) if member in before else None
        view = MemberView(topics=names, last_assigned=had, generation=generation if had else -1)
        members[member] = Subscription(
            topics=names,
            user_data=assignor.user_data(view),
            owned=had or () if name == "cooperative-sticky" else (),
            generation=view.generation,
        )
    return assignor.assign(topics, members)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(situation=situations())
@settings(deadline=None, max_examples=60)
def test_every_subscribed_partition_has_one_reader(name: str, situation: tuple[dict, dict]) -> None:  # type: ignore[type-arg]
    topics, wanted = situation
    found = rebalanced(name, topics, wanted, {}, 1)
    given_out = sorted(one for share in found.values() for one in share)
    read = {topic for names in wanted.values() for topic in names}
    assert given_out == sorted(TopicPartition(t, n) for t in read for n in range(len(topics[t])))
    assert all(one.topic in wanted[member] for member, share in found.items() for one in share)


@given(situation=situations(), left=st.integers(0, 5))
@settings(deadline=None, max_examples=60)
def test_sticky_moves_only_what_it_must(situation: tuple[dict, dict], left: int) -> None:  # type: ignore[type-arg]
    topics, wanted = situation
    everybody = {member: tuple(topics) for member in wanted}
    first = rebalanced("sticky", topics, everybody, {}, 1)
    assert shown(rebalanced("sticky", topics, everybody, first, 1)) == shown(first)
    gone = f"m{left}"
    if gone in everybody and len(everybody) > 1:
        rest = {member: names for member, names in everybody.items() if member != gone}
        second = rebalanced("sticky", topics, rest, first, 1)
        assert all(set(first[member]) <= set(second[member]) for member in rest)
        sizes = [len(share) for share in second.values()]
        assert max(sizes) - min(sizes) <= 1


@given(situation=situations())
@settings(deadline=None, max_examples=60)
def test_cooperative_never_assigns_a_partition_with_an_owner(situation: tuple[dict, dict]) -> None:  # type: ignore[type-arg]
    topics, wanted = situation
    shares: Shares = {}
    present: dict[str, tuple[str, ...]] = {}
    for member, names in wanted.items():
        present[member] = names
        for generation in range(1, 5):
            after = rebalanced("cooperative-sticky", topics, present, shares, generation)
            for one, share in after.items():
                others = {p for other, had in shares.items() if other != one for p in had}
                assert others.isdisjoint(share)
            assigned = {one: sorted(share) for one, share in after.items()}
            is_same = assigned == {one: sorted(share) for one, share in shares.items()}
            shares = after
            if is_same:
                break


# Bytes.


def test_subscriptions_and_assignments_survive_a_round_trip() -> None:
    sent = Subscription(
        topics=("a", "b"),
        user_data=b"u",
        owned=(TopicPartition("a", 1),),
        generation=3,
        rack="r",
        instance_id="i",
    )
    assert read_subscription(write_subscription(sent), "i") == sent
    share = (TopicPartition("b", 2), TopicPartition("a", 0))
    assert set(read_assignment(write_assignment(share))) == set(share)
    assert read_assignment(b"") == ()
    with pytest.raises(MalformedRequestError):
        read_subscription(b"\0")


def test_the_oldest_subscription_is_read() -> None:
    content = struct.pack(">hih1s", 0, 1, 1, b"t") + struct.pack(">i", -1)
    assert read_subscription(content) == Subscription(topics=("t",))


@given(content=st.binary(max_size=60))
def test_unreadable_user_data_counts_as_empty(content: bytes) -> None:
    partitions, _ = read_previous(content)
    assert all(isinstance(one, TopicPartition) for one in partitions)


def test_sticky_user_data_survives_a_round_trip() -> None:
    had = [TopicPartition("a", 1), TopicPartition("b", 0)]
    assert read_previous(write_previous(had, 7)) == (had, 7)
    assert read_previous(write_previous(had, 7)[:-4]) == (had, None)
    assert read_previous(b"\x7f\xff\xff\xff") == ([], -1)
