"""A group's view of its members' subscriptions: exact, within bounds of time and memory."""

import tracemalloc

import pytest
from core.groups.scenario import Scenario, subscription
from core.groups.test_group_offsets import delete

from moldau.core.coordinator.effects import Ticket
from moldau.core.groups.classic_group import ClassicGroup
from moldau.core.groups.group_shard import EXPIRY_SUBSCRIPTION_BYTES_MAX, EXPIRY_TIMER
from moldau.core.groups.member import Member, Protocols, weight_of
from moldau.core.groups.states import GroupState
from moldau.core.groups.subscriptions import BYTES_MAX, NAMES_MAX, subscribed_topics
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.wire.codec import encode

KIB = 1 << 10
MIB = 1 << 20


def names(count: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def with_user_data(topics: list[str], user_data: bytes) -> bytes:
    message = ConsumerProtocolSubscription(topics=topics, user_data=user_data)
    return b"\0\1" + encode(message, 1)


def with_members(*subscriptions: bytes) -> ClassicGroup:
    """A group whose first generation has just begun."""
    group = ClassicGroup("g")
    for number, metadata in enumerate(subscriptions):
        group.add(member(f"m{number}", (("range", metadata),)), "consumer")
    group.move_to(GroupState.PREPARING_REBALANCE, 0)
    group.begin_generation(0)
    return group


def member(member_id: str, protocols: Protocols) -> Member:
    return Member(
        member_id=member_id,
        instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        principal=None,
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocols=protocols,
    )


def test_all_topics_of_all_members_are_known() -> None:
    assert subscribed_topics([subscription("a", "b"), subscription("b", "c")]) == frozenset("abc")
    assert subscribed_topics([subscription(), subscription("a"), subscription()]) == frozenset("a")
    assert subscribed_topics([]) == frozenset()
    # One list is the beginning of the other.
    assert subscribed_topics([subscription("a"), subscription("a", "b")]) == frozenset("ab")


@pytest.mark.parametrize("broken", [b"", b"\0", b"\0\0\0\0\0\1", b"\0\0\0\0\0\1\0\1"])
def test_one_broken_subscription_makes_all_unknown(broken: bytes) -> None:
    assert subscribed_topics([subscription("a"), broken, subscription("a")]) is None


def test_equal_lists_of_a_large_group_are_read_once() -> None:
    topics = names(400)
    lists = [topics, topics[::-1], topics[200:] + topics[:200]]
    members = [with_user_data(lists[i % 3], bytes([i % 256]) * i) for i in range(500)]
    assert subscribed_topics(members) == frozenset(topics)


def test_lists_that_would_take_long_to_read_are_unknown() -> None:
    tens = [subscription(*names(NAMES_MAX // 10, f"{number}-")) for number in range(10)]
    known = subscribed_topics(tens)
    assert known is not None
    assert len(known) == NAMES_MAX
    assert subscribed_topics([*tens, subscription("one more")]) is None
    large = with_user_data([], bytes(BYTES_MAX // 8))
    assert subscribed_topics([large] * 7) == frozenset()
    assert subscribed_topics([large] * 8) is None


def test_a_generation_of_members_with_very_many_topics_takes_little_more_memory() -> None:
    """120 JoinGroups with 5-byte names once took half a gigabyte and two seconds."""
    subscriptions = [subscription(*names(36_000, f"{number}-")) for number in range(20)]
    tracemalloc.start()
    try:
        group = with_members(*subscriptions)
        assert group.subscribed_topics() is None
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_a_consumer_with_too_many_topics_may_be_subscribed_to_any() -> None:
    scenario = Scenario()
    topics = ",".join(names(NAMES_MAX + 1))
    for line in (
        "settings initial_rebalance_delay_ms=0",
        f"a joins v=3 topics={topics}",
        "after 0",
        "a syncs a=1",
        "a commits u-0=6",
    ):
        scenario.run(line)
    assert delete(scenario, "u") == {"u": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_subscriptions_of_a_generation_count_as_memory_until_the_next() -> None:
    first, other = bytes(KIB), bytes(KIB)
    group = with_members(first, other)
    weights = group.weight
    renewed, leaving = group.members["m0"], group.members["m1"]
    ticket = Ticket[object](1)
    group.renew(renewed, (("range", b""),), ticket)  # type: ignore[arg-type]
    # What the member had sent before is still needed to decide about offsets.
    assert group.weight == weights
    group.renew(renewed, (("range", bytes(2)),), ticket)  # type: ignore[arg-type]
    assert group.weight == weights + 2
    group.remove(leaving.member_id)
    assert group.weight == weight_of(renewed.protocols) + 2 * KIB
    group.move_to(GroupState.PREPARING_REBALANCE, 0)
    group.begin_generation(0)
    assert group.weight == weight_of(renewed.protocols)


def test_protocols_that_no_member_supports_any_more_are_forgotten() -> None:
    group = with_members(b"")
    (only,) = group.members.values()
    own: Protocols = ()
    tracemalloc.start()
    try:
        for turn in range(100):
            own = tuple((f"{turn}-{number}-" + KIB * "n", b"") for number in range(20))
            group.renew(only, (("range", b""), *own), Ticket(turn))
        assert tracemalloc.get_traced_memory()[0] < 200 * KIB
    finally:
        tracemalloc.stop()
    assert not group.supports("consumer", (("0-0-" + KIB * "n", b""),))
    assert group.supports("consumer", own)


def test_groups_with_large_subscriptions_are_checked_for_expired_offsets_one_at_a_time() -> None:
    scenario = Scenario()
    bench = scenario.bench
    topics = ",".join(names(EXPIRY_SUBSCRIPTION_BYTES_MAX // 7, "n-"))
    scenario.run("settings initial_rebalance_delay_ms=0 offsets_retention_ms=1")
    for client in "abc":
        scenario.run(f"{client} joins v=3 group={client} topics={topics} session=1800000")
        scenario.run("after 0")
        scenario.run(f"{client} syncs {client}=1")
        scenario.run(f"{client} commits n-1-0=1 u-0=2")
    bench.now_ms += 2
    for left in (2, 1, 0):
        turn = bench.turn()
        bench.shard.timer_fired(EXPIRY_TIMER, turn)
        bench.perform(turn)
        kept = [str(partition) for _, partition, _ in bench.shard.store]
        assert sorted(kept) == ["n-1-0"] * 3 + ["u-0"] * left
        delay_ms = bench.timers[EXPIRY_TIMER] - bench.now_ms
        assert delay_ms == (0 if left else bench.settings.offsets_check_interval_ms)
