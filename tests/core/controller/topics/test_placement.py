import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.controller.topics.placement import UsableBroker, place
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

RACKS = st.sampled_from([None, "a", "b", "c"])


@st.composite
def clusters(draw: st.DrawFn) -> list[UsableBroker]:
    racks = draw(st.lists(st.tuples(RACKS, st.booleans()), min_size=1, max_size=9))
    return [UsableBroker(number, rack, fenced) for number, (rack, fenced) in enumerate(racks)]


@given(clusters(), st.integers(1, 9), st.integers(1, 40), st.integers())
def test_replicas_are_different_brokers_and_leaders_are_alive(
    brokers: list[UsableBroker], factor: int, count: int, seed: int
) -> None:
    alive = {broker.broker_id for broker in brokers if not broker.is_fenced}
    if factor > len(brokers) or not alive:
        with pytest.raises(KafkaError) as refused:
            place(brokers, count, factor, random.Random(seed))
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    placed = place(brokers, count, factor, random.Random(seed))
    assert len(placed) == count
    for replicas in placed:
        assert len(replicas) == factor == len(set(replicas))
        assert replicas[0] in alive


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 40), st.integers())
def test_replicas_are_spread_over_racks_and_brokers(
    rack_count: int, per_rack: int, count: int, seed: int
) -> None:
    brokers = [
        UsableBroker(number, f"rack-{number % rack_count}", is_fenced=False)
        for number in range(rack_count * per_rack)
    ]
    rack_of = {broker.broker_id: broker.rack for broker in brokers}
    for factor in range(1, len(brokers) + 1):
        placed = place(brokers, count, factor, random.Random(seed))
        for replicas in placed:
            in_racks = Counter(rack_of[replica] for replica in replicas)
            shares = [in_racks[f"rack-{number}"] for number in range(rack_count)]
            assert max(shares) - min(shares) <= 1


@given(st.integers(1, 8), st.integers(1, 5), st.integers())
def test_each_broker_leads_once_before_any_leads_twice(
    broker_count: int, turns: int, seed: int
) -> None:
    brokers = [UsableBroker(number, None, is_fenced=False) for number in range(broker_count)]
    placed = place(brokers, broker_count * turns, 1, random.Random(seed))
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {turns}


def test_fenced_brokers_get_replicas_only_without_alternatives() -> None:
    brokers = [UsableBroker(1, None, is_fenced=False), UsableBroker(2, None, is_fenced=False)]
    brokers.append(UsableBroker(3, None, is_fenced=True))
    two = place(brokers, 30, 2, random.Random(1))
    assert all(3 not in replicas for replicas in two)
    three = place(brokers, 30, 3, random.Random(1))
    assert all(replicas[2] == 3 for replicas in three)


def test_the_same_seed_gives_the_same_placement() -> None:
    brokers = [UsableBroker(number, None, is_fenced=False) for number in range(5)]
    first, second = (place(brokers, 20, 3, random.Random(7)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("brokers", "factor", "text"),
    [
        ([], 1, "All brokers are currently fenced"),
        ([UsableBroker(1, None, is_fenced=True)], 1, "All brokers are currently fenced"),
        ([UsableBroker(1, None, is_fenced=False)], 2, "only 1 broker(s) are registered"),
        ([UsableBroker(1, None, is_fenced=False)], 0, "must be positive"),
    ],
)
def test_refusals_have_a_reason(brokers: list[UsableBroker], factor: int, text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        place(brokers, 1, factor, random.Random(1))
    assert text in refused.value.detail
