"""Sticky assignors with whatever members claim: partitions of former generations, the same ones
twice, topics that they left, replicas in other racks.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.core.consumer.assignors import ASSIGNORS, Shares, Subscription
from moldau.core.consumer.assignors.sticky_state import in_java_order
from moldau.core.consumer.assignors.user_data import write_generation, write_previous
from moldau.types import TopicPartition

Topics = dict[str, list[frozenset[str]]]
RACKS = ("left", "middle", "right")
STICKY = ("sticky", "cooperative-sticky")


def subscription(
    name: str,
    topics: tuple[str, ...],
    claimed: tuple[TopicPartition, ...],
    generation: int,
    rack: str | None = None,
) -> Subscription:
    if name == "sticky":
        return Subscription(
            topics=topics,
            user_data=write_previous(claimed, generation),
            generation=generation,
            rack=rack,
        )
    return Subscription(
        topics=topics,
        owned=claimed,
        generation=generation,
        user_data=write_generation(generation),
        rack=rack,
    )


def partitions(topics: Topics) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in topics for n in range(len(topics[topic]))]


@st.composite
def claims(draw: st.DrawFn, *, racks: bool = False) -> tuple[str, Topics, dict[str, Subscription]]:
    places = st.sets(st.sampled_from(RACKS), min_size=1).map(frozenset)
    somewhere = places if racks else st.just(frozenset[str]())
    topics = {
        f"t{number}": draw(st.lists(somewhere, min_size=1, max_size=6))
        for number in range(draw(st.integers(1, 4)))
    }
    name = draw(st.sampled_from(STICKY))
    wanted = st.lists(st.sampled_from(sorted(topics)), min_size=1, unique=True).map(tuple)
    members = {}
    for number in range(draw(st.integers(1, 6))):
        names = draw(wanted)
        # As in Kafka, a claim of an older generation may bring back a topic that the member left.
        known = [partition for partition in partitions(topics) if partition.topic in names]
        claimed = draw(st.lists(st.sampled_from(known), unique=True).map(tuple))
        rack = draw(st.sampled_from(RACKS)) if racks else None
        members[f"m{number}"] = subscription(name, names, claimed, draw(st.integers(-1, 4)), rack)
    return name, topics, members


def check(name: str, topics: Topics, members: dict[str, Subscription], found: Shares) -> None:
    """Each partition that has readers goes to one of them; a cooperative assignor may hold one back
    that another member still owns.
    """
    given_out = [partition for share in found.values() for partition in share]
    assert len(given_out) == len(set(given_out))
    assert found.keys() == members.keys()
    for member, share in found.items():
        assert {partition.topic for partition in share} <= {*members[member].topics}
    read = {topic for member in members.values() for topic in member.topics}
    due = {partition for partition in partitions(topics) if partition.topic in read}
    held_back = {each for member in members.values() for each in member.owned}
    assert due - set(given_out) <= (held_back if name == "cooperative-sticky" else set())


@given(situation=claims())
@settings(deadline=None, max_examples=150)
def test_any_claims_end_in_an_assignment(
    situation: tuple[str, Topics, dict[str, Subscription]],
) -> None:
    name, topics, members = situation
    check(name, topics, members, ASSIGNORS[name]().assign(topics, members))


@given(situation=claims(racks=True))
@settings(deadline=None, max_examples=150)
def test_any_claims_end_in_an_assignment_also_with_racks(
    situation: tuple[str, Topics, dict[str, Subscription]],
) -> None:
    name, topics, members = situation
    check(name, topics, members, ASSIGNORS[name]().assign(topics, members))


@given(situation=claims())
@settings(deadline=None, max_examples=100)
def test_no_member_could_take_a_partition_from_one_with_two_more(
    situation: tuple[str, Topics, dict[str, Subscription]],
) -> None:
    _, topics, members = situation
    members = {
        member: subscription("sticky", each.topics, (*each.owned,), each.generation)
        for member, each in members.items()
    }
    found = ASSIGNORS["sticky"]().assign(topics, members)
    for poor, each in members.items():
        for rich, share in found.items():
            takes = [partition for partition in share if partition.topic in each.topics]
            assert not takes or len(share) <= len(found[poor]) + 1, (poor, rich)


def claimed_by(generations: dict[str, int], topics: tuple[str, ...] = ("t0",)) -> Shares:
    """All members claim partition t0-0, in these generations."""
    zero = (TopicPartition("t0", 0),)
    members = {
        member: subscription("sticky", topics, zero, generation)
        for member, generation in generations.items()
    }
    return ASSIGNORS["sticky"]().assign({"t0": [frozenset()]}, members)


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_the_latest_owner_of_a_partition_keeps_it(order: tuple[str, str]) -> None:
    generations = {"old": 3, "new": 4}
    found = claimed_by({member: generations[member] for member in order})
    assert found == {"old": [], "new": [TopicPartition("t0", 0)]}


def test_a_partition_with_two_owners_of_one_generation_goes_to_one_of_them() -> None:
    found = claimed_by({"a": 4, "b": 4})
    assert sorted(map(len, found.values())) == [0, 1]


def test_a_topic_that_a_member_left_is_given_to_others() -> None:
    zero = TopicPartition("t0", 0)
    members = {
        "left": subscription("sticky", ("t1",), (zero,), 4),
        "stayed": subscription("sticky", ("t0", "t1"), (), 4),
    }
    found = ASSIGNORS["sticky"]().assign({"t0": [frozenset()], "t1": [frozenset()]}, members)
    assert found["stayed"] == [zero]
    assert found["left"] == [TopicPartition("t1", 0)]


def test_topics_of_many_members_have_the_order_of_a_grown_table() -> None:
    """As java.util.HashMap, which doubles its table beyond three quarters."""
    names = [chr(ord("a") + number) for number in range(13)]
    assert in_java_order(reversed(names)) == names
    assert sorted(in_java_order(f"topic-{number}" for number in range(40))) == sorted(
        f"topic-{number}" for number in range(40)
    )
