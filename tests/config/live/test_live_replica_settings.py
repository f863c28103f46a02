"""Settings that need a second broker, or its absence."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from config.live.live_node import LiveNode, live_node
from config.live.second_broker import FIRST, SECOND, SecondBroker
from support.proofs import proves, proves_change

from moldau.protocol.error_codes import ErrorCode

NO_LEADER = -1
SESSION_MS = 60_000


@contextmanager
def two_brokers(settings: dict[str, str]) -> Iterator[tuple[LiveNode, SecondBroker]]:
    with live_node(settings) as node, SecondBroker(node) as second:
        yield node, second


# How many replicas must be in sync


def accepts(node: LiveNode, topic: str) -> bool:
    code = node.write(topic, b"a")
    assert code in {ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS}
    assert node.write(topic, b"a", acks=1) == 0
    return code == ErrorCode.NONE


@proves("min.insync.replicas", of="topic")
@proves_change("min.insync.replicas", of="topic")
def test_the_topic_sets_the_minimum_of_in_sync_replicas() -> None:
    """The second broker is fenced, so only one replica is in sync."""
    with two_brokers({}) as (node, second):
        topic = second.create_topic("t", FIRST, SECOND, min_insync_replicas="2")
        assert not accepts(node, topic)
        node.change("min.insync.replicas", "1", topic=topic)
        assert accepts(node, topic)


@proves("min.insync.replicas")
@proves_change("min.insync.replicas")
def test_the_node_sets_the_minimum_of_in_sync_replicas() -> None:
    with two_brokers({"min.insync.replicas": "2"}) as (node, second):
        topic = second.create_topic("t", FIRST, SECOND)
        assert not accepts(node, topic)
        node.change("min.insync.replicas", "1")
        assert accepts(node, topic)


# Leadership


@proves("broker.session.timeout.ms")
def test_a_broker_without_heartbeats_loses_its_leaderships() -> None:
    with two_brokers({"broker.session.timeout.ms": "600000"}) as (node, second):
        second.heartbeat()
        topic = second.create_topic("t", SECOND, FIRST)
        # In small steps: larger ones extend all sessions.
        for _ in range(30):
            node.advance(1_000)
            assert second.leader(topic) == SECOND
        node.advance_until(lambda: second.leader(topic) == FIRST, step_ms=30_000)


def lose_the_leader(node: LiveNode, second: SecondBroker, topic: str) -> None:
    """The second broker fails while the first one is not in sync."""
    second.heartbeat()
    second.create_topic(topic, SECOND, FIRST)
    second.alter_isr(topic, SECOND)
    node.advance_until(lambda: second.leader(topic) == NO_LEADER, step_ms=SESSION_MS // 6)


SHORT = {"broker.session.timeout.ms": str(SESSION_MS)}
UNCLEAN = "unclean.leader.election.enable"


@proves_change(UNCLEAN, of="topic")
@proves_change(UNCLEAN)
@proves("unclean.leader.election.interval.ms")
@pytest.mark.parametrize("of_topic", [True, False])
def test_an_unclean_leader_is_elected_once_it_is_allowed(of_topic: bool) -> None:
    interval_ms = 20 * 3_600_000
    settings = SHORT | {"unclean.leader.election.interval.ms": str(interval_ms)}
    with two_brokers(settings) as (node, second):
        lose_the_leader(node, second, "t")
        node.change(UNCLEAN, "true", topic="t" if of_topic else "")
        node.assert_happens_after(interval_ms, lambda: second.leader("t") == FIRST)


@proves(UNCLEAN)
@proves(UNCLEAN, of="topic")
@pytest.mark.parametrize("of_topic", [True, False])
def test_an_unclean_leader_is_elected_at_once_if_it_is_allowed(of_topic: bool) -> None:
    with two_brokers(SHORT | ({} if of_topic else {UNCLEAN: "true"})) as (node, second):
        second.heartbeat()
        configs = {"unclean_leader_election_enable": "true"} if of_topic else {}
        second.create_topic("t", SECOND, FIRST, **configs)
        second.alter_isr("t", SECOND)
        node.advance_until(lambda: second.leader("t") == FIRST, step_ms=SESSION_MS // 6)


def displace_the_preferred(node: LiveNode, second: SecondBroker) -> None:
    """The first broker leads, although the second is preferred, back and in sync."""
    second.heartbeat()
    second.create_topic("t", SECOND, FIRST)
    node.advance_until(lambda: second.leader("t") == FIRST, step_ms=SESSION_MS // 6)
    assert not second.heartbeat()
    second.alter_isr("t", FIRST, SECOND)


def leadership_returns(node: LiveNode, second: SecondBroker) -> bool:
    second.heartbeat()
    node.advance(SESSION_MS // 6)
    return second.leader("t") == SECOND


@proves("leader.imbalance.check.interval.seconds")
def test_leadership_returns_to_the_preferred_replica_after_the_interval() -> None:
    with two_brokers(SHORT | {"leader.imbalance.check.interval.seconds": "100"}) as (node, second):
        displace_the_preferred(node, second)
        steps = 0
        while not leadership_returns(node, second):
            steps += 1
            assert steps < 20, "this is the default interval"


@proves("auto.leader.rebalance.enable")
def test_leadership_does_not_return_automatically_if_disabled() -> None:
    settings = {
        "leader.imbalance.check.interval.seconds": "10",
        "auto.leader.rebalance.enable": "false",
    }
    with two_brokers(SHORT | settings) as (node, second):
        displace_the_preferred(node, second)
        for _ in range(20):
            assert not leadership_returns(node, second)
