"""Assignors prefer replicas in a member's rack (KIP-881), and stay fair. tests/interop compares the
results with Kafka's.
"""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.consumer.assignors import ASSIGNORS, MemberView, Shares, Subscription
from moldau.types import TopicPartition

RACK_AWARE = ["range", "sticky", "cooperative-sticky"]
RACKS = ["left", "middle", "right"]

TopicRacks = dict[str, list[frozenset[str]]]


def in_racks(*racks: str) -> list[frozenset[str]]:
    """One partition for each text; spaces separate the racks of its replicas."""
    return [frozenset(text.split()) for text in racks]


def rebalanced(
    name: str, topics: TopicRacks, racks: Mapping[str, str | None], before: Shares
) -> Shares:
    """Rebalances; all members subscribe to all topics and own their former partitions."""
    assignor = ASSIGNORS[name]()
    members = {}
    for member, rack in racks.items():
        owned = tuple(before.get(member, ()))
        view = MemberView(topics=tuple(topics), last_assigned=owned, generation=1)
        members[member] = Subscription(
            topics=tuple(topics),
            user_data=assignor.user_data(view),
            owned=owned if name == "cooperative-sticky" else (),
            generation=1,
            rack=rack,
        )
    return assignor.assign(topics, members)


def assigned(name: str, topics: TopicRacks, **racks: str) -> dict[str, str]:
    shares = rebalanced(name, topics, racks, {})
    return {member: " ".join(map(str, sorted(share))) for member, share in shares.items()}


@pytest.mark.parametrize("name", RACK_AWARE)
def test_every_member_reads_from_its_rack(name: str) -> None:
    topics = {"a": in_racks("right", "left", "right", "left")}
    assert assigned(name, topics, x="left", y="right") == {"x": "a-1 a-3", "y": "a-0 a-2"}


@pytest.mark.parametrize("name", RACK_AWARE)
def test_fairness_comes_before_racks(name: str) -> None:
    topics = {"a": in_racks("left", "left", "left", "right")}
    shares = assigned(name, topics, x="left", y="right")
    assert {member: len(share.split()) for member, share in shares.items()} == {"x": 2, "y": 2}
    assert "a-3" in shares["y"]


def test_range_gives_the_same_partitions_of_topics_alike() -> None:
    """A join reads all of its topics from the member's rack."""
    topics = {"a": in_racks("right", "left"), "b": in_racks("right", "left")}
    assert assigned("range", topics, x="left", y="right") == {"x": "a-1 b-1", "y": "a-0 b-0"}


@pytest.mark.parametrize("name", RACK_AWARE)
@pytest.mark.parametrize("racks", [("left right",) * 2, ("", "")], ids=["everywhere", "nowhere"])
def test_racks_that_cannot_help_change_nothing(name: str, racks: tuple[str, ...]) -> None:
    topics = {"a": in_racks(*racks)}
    assert assigned(name, topics, x="right", y="left") == {"x": "a-0", "y": "a-1"}


def test_sticky_moves_partitions_of_other_racks() -> None:
    topics = {"a": in_racks("left", "right")}
    before = {"x": [TopicPartition("a", 0)], "y": [TopicPartition("a", 1)]}
    after = rebalanced("sticky", topics, {"x": "right", "y": "left"}, before)
    assert after == {"x": [TopicPartition("a", 1)], "y": [TopicPartition("a", 0)]}


def test_cooperative_takes_a_partition_away_before_it_moves() -> None:
    topics = {"a": in_racks("left", "right")}
    before = {"x": [TopicPartition("a", 0)], "y": [TopicPartition("a", 1)]}
    racks = {"x": "right", "y": "left"}
    revoked = rebalanced("cooperative-sticky", topics, racks, before)
    assert revoked == {"x": [], "y": []}
    after = rebalanced("cooperative-sticky", topics, racks, revoked)
    assert after == {"x": [TopicPartition("a", 1)], "y": [TopicPartition("a", 0)]}


@st.composite
def situations(draw: st.DrawFn) -> tuple[TopicRacks, dict[str, str | None], dict[str, str | None]]:
    """Topics, the racks of the members, and those of the members after a rebalance."""
    replicas = st.frozensets(st.sampled_from(RACKS), max_size=2)
    topics = {
        f"t{n}": draw(st.lists(replicas, min_size=1, max_size=6))
        for n in range(draw(st.integers(1, 3)))
    }
    members = st.dictionaries(
        st.sampled_from([f"m{n}" for n in range(6)]),
        st.none() | st.sampled_from(RACKS),
        min_size=1,
    )
    return topics, draw(members), draw(members)


@pytest.mark.parametrize("name", ["range", "sticky"])
@given(situation=situations())
def test_every_partition_has_one_reader_and_shares_are_fair(
    name: str,
    situation: tuple[TopicRacks, dict[str, str | None], dict[str, str | None]],
) -> None:
    topics, members, later = situation
    everything = sorted(TopicPartition(t, n) for t in topics for n in range(len(topics[t])))
    first = rebalanced(name, topics, members, {})
    second = rebalanced(name, topics, later, first)
    for shares in (first, second):
        assert sorted(one for share in shares.values() for one in share) == everything
        # Range distributes each topic separately, sticky all topics together.
        sizes = [
            [sum(one.topic == topic for one in share) for share in shares.values()]
            for topic in topics
        ]
        if name == "sticky":
            sizes = [[len(share) for share in shares.values()]]
        assert all(max(row) - min(row) <= 1 for row in sizes)
