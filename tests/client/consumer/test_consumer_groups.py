"""Consumers that share topics, with each other and with another client library."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from client.consumed import consumer_of, fresh_name, fresh_topic, poll_until, produce, read, values
from confluent_kafka import Consumer as ConfluentConsumer
from support.waiting import wait_for

from moldau import Consumer
from moldau.client.consumer.errors import CommitFailedError
from moldau.core.consumer.assignors import MemberView, RebalanceProtocol, Shares, TopicRacks
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.testing import ThreadBroker, broker
from moldau.types import TopicPartition

ALL_ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


class CallRecorder:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        self.threads: set[int] = set()

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        self.calls.append((what, set(partitions)))
        self.threads.add(threading.get_ident())

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self._note("lost", partitions)


@contextlib.contextmanager
def members(node: ThreadBroker, count: int, **settings: Any) -> Iterator[list[Consumer]]:
    group = fresh_name("group")
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                consumer_of(node, **({"group_id": group, "heartbeat_interval_ms": 100} | settings))
            )
            for _ in range(count)
        ]


def sizes(*consumers: Consumer) -> list[int]:
    return sorted(len(one.assignment()) for one in consumers)


@pytest.mark.parametrize("assignor", ALL_ASSIGNORS)
def test_members_share_and_take_over(node: ThreadBroker, assignor: str) -> None:
    topic = fresh_topic(node, 6)
    everything = {TopicPartition(topic, number) for number in range(6)}
    with members(node, 3, partition_assignment_strategy=[assignor]) as (one, two, three):
        one.subscribe(topic)
        poll_until(lambda: one.assignment() == everything, one)
        two.subscribe(topic)
        poll_until(lambda: sizes(one, two) == [3, 3], one, two)
        three.subscribe(topic)
        poll_until(lambda: sizes(one, two, three) == [2, 2, 2], one, two, three)
        assert one.assignment() | two.assignment() | three.assignment() == everything
        two.close()
        poll_until(lambda: sizes(one, three) == [3, 3], one, three)
        three.unsubscribe()
        poll_until(lambda: one.assignment() == everything, one)


def test_eager_members_give_up_everything_first(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    recorder = CallRecorder()
    with members(node, 2, partition_assignment_strategy=["range"]) as (one, two):
        one.subscribe(topic, listener=recorder)
        poll_until(lambda: len(recorder.calls) == 1, one)
        two.subscribe(topic)
        poll_until(lambda: sizes(one, two) == [1, 1], one, two)
        both = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        mine = one.assignment()
        assert recorder.calls == [("assigned", both), ("revoked", both), ("assigned", mine)]
        one.close()
    assert recorder.calls[3:] == [("revoked", mine)]
    assert recorder.threads == {threading.get_ident()}


def test_cooperative_members_keep_what_stays_theirs(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    recorder = CallRecorder()
    settings = {"partition_assignment_strategy": ["cooperative-sticky"]}
    with members(node, 2, **settings) as (one, two):
        one.subscribe(topic, listener=recorder)
        poll_until(lambda: len(recorder.calls) == 1, one)
        two.subscribe(topic)
        poll_until(lambda: sizes(one, two) == [1, 1], one, two)
        moved = two.assignment()
        poll_until(lambda: one._engine.group is not None and one._engine.group.is_stable, one, two)
        calls = [entry for entry in recorder.calls[1:] if entry[1]]
        assert calls == [("revoked", moved)]


def test_records_are_read_once_while_members_come_and_go(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 4)
    written = [b"%d" % i for i in range(4000)]
    produce(node.bootstrap, topic, written[:2000])
    settings = {
        "partition_assignment_strategy": ["cooperative-sticky"],
        "max_poll_records": 50,
    }
    with members(node, 2, **settings) as (one, two):
        one.subscribe(topic)
        found = values(read(one, 500))
        two.subscribe(topic)
        while sizes(one, two) != [2, 2]:
            found += values(one.poll(0.05)) + values(two.poll(0.05))
        produce(node.bootstrap, topic, written[2000:])
        while len(found) < 3000:
            found += values(one.poll(0.05)) + values(two.poll(0.05))
        one.close()
        found += values(read(two, 4000 - len(found)))
    assert sorted(map(int, found)) == list(range(4000))


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("confluent_leads", [True, False])
def test_groups_are_shared_with_confluent_kafka(
    node: ThreadBroker, assignor: str, confluent_leads: bool
) -> None:
    topic = fresh_topic(node, 6)
    group = fresh_name("shared")
    settings = {
        "bootstrap.servers": node.bootstrap,
        "group.id": group,
        "partition.assignment.strategy": assignor,
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 6000,
    }
    theirs = ConfluentConsumer(settings)
    ours = consumer_of(
        node,
        group_id=group,
        partition_assignment_strategy=[assignor],
        heartbeat_interval_ms=100,
    )
    found: list[Any] = []

    class Theirs:
        def poll(self, timeout: float) -> None:
            messages = theirs.consume(500, timeout)
            found.extend(message.value() for message in messages if not message.error())

    class Ours:
        def poll(self, timeout: float) -> None:
            found.extend(values(ours.poll(timeout)))

    def first() -> bool:
        return len(theirs.assignment() if confluent_leads else ours.assignment()) == 6

    with ours:
        if confluent_leads:
            theirs.subscribe([topic])
            poll_until(first, Theirs())
            ours.subscribe(topic)
        else:
            ours.subscribe(topic)
            poll_until(first, Ours())
            theirs.subscribe([topic])
        poll_until(
            lambda: len(theirs.assignment()) == len(ours.assignment()) == 3, Ours(), Theirs()
        )
        produce(node.bootstrap, topic, [b"%d" % i for i in range(300)])
        poll_until(lambda: len(found) >= 300, Ours(), Theirs())
        theirs.close()
        poll_until(lambda: len(ours.assignment()) == 6, Ours())
    assert sorted(map(int, found)) == list(range(300))


def test_a_pattern_includes_later_topics(node: ThreadBroker) -> None:
    prefix = fresh_name("pattern")
    node.create_topic(f"{prefix}-a", 1)
    with members(node, 1, metadata_max_age_ms=200) as (one,):
        one.subscribe(pattern=f"{prefix}-.*")
        poll_until(lambda: sizes(one) == [1], one)
        node.create_topic(f"{prefix}-b", 2)
        poll_until(lambda: sizes(one) == [3], one)
        assert one.subscription() == {f"{prefix}-a", f"{prefix}-b"}


def test_a_leader_notices_new_partitions(node: ThreadBroker) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewPartitions

    topic = fresh_topic(node, 1)
    with members(node, 2, metadata_max_age_ms=200) as (one, two):
        one.subscribe(topic)
        two.subscribe(topic)
        poll_until(lambda: sizes(one, two) == [0, 1], one, two)
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for done in admin.create_partitions([NewPartitions(topic, 4)]).values():
            done.result(30)
        poll_until(lambda: sizes(one, two) == [2, 2], one, two)


def test_a_subscription_can_change(node: ThreadBroker) -> None:
    first, second = fresh_topic(node, 2), fresh_topic(node, 3)
    settings = {"partition_assignment_strategy": ["cooperative-sticky"]}
    recorder = CallRecorder()
    with members(node, 1, **settings) as (one,):
        one.subscribe(first, listener=recorder)
        poll_until(lambda: sizes(one) == [2], one)
        one.subscribe([second], listener=recorder)
        poll_until(lambda: sizes(one) == [3], one)
        assert [what for what, _ in recorder.calls] == ["assigned", "revoked", "assigned"]
        one.unsubscribe()
        assert (one.assignment(), one.subscription()) == (set(), set())


def test_a_custom_assignor_is_used(node: ThreadBroker) -> None:
    class EverythingToTheFirst:
        name = "first"
        protocols = (RebalanceProtocol.EAGER,)

        def user_data(self, _member: MemberView) -> bytes | None:
            return b"hello"

        def assign(self, topics: TopicRacks, members: Any) -> Shares:
            assert all(one.user_data == b"hello" for one in members.values())
            every = [TopicPartition(t, n) for t, found in topics.items() for n in range(len(found))]
            return {min(members): every}

    topic = fresh_topic(node, 4)
    with members(node, 2, partition_assignment_strategy=[EverythingToTheFirst()]) as (one, two):
        one.subscribe(topic)
        two.subscribe(topic)
        poll_until(lambda: sizes(one, two) == [0, 4], one, two)


# Heartbeats and polls.


def wait_for_heartbeats(member: Consumer, count: int) -> None:
    least = member.metrics()["heartbeats_answered"] + count
    wait_for(lambda: member.metrics()["heartbeats_answered"] >= least, "heartbeats")


def test_a_member_stays_while_its_user_is_busy(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    settings = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100}
    with members(node, 1, **settings) as (one,):
        one.subscribe(topic)
        poll_until(lambda: sizes(one) == [1], one)
        before = one.group_metadata()
        # The broker's time passes in steps shorter than the session, with heartbeats in between.
        # An answer may be to a heartbeat from before the step, so two are awaited.
        for _ in range(4):
            node.clock.advance(seconds=4)
            wait_for_heartbeats(one, 2)
        one.poll(0.2)
        one.commit({(topic, 0): 0})
        assert one.group_metadata() == before


def test_a_member_that_polls_too_late_loses_its_partitions_and_rejoins(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a", b"b"], 0)
    recorder = CallRecorder()
    settings = {"max_poll_interval_ms": 1000, "enable_auto_commit": False}
    with members(node, 2, **settings) as (slow, other):
        slow.subscribe(topic, listener=recorder)
        read(slow, 2)
        other.subscribe(topic)
        # The first one does not poll: the group continues without it.
        poll_until(lambda: sizes(other) == [1], other)
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
            slow.commit({(topic, 0): 2})
        other.close()
        # The poll that returns the partition may also return its records.
        again = values(read(slow, 2))
        assert [what for what, partitions in recorder.calls if partitions] == [
            "assigned",
            "lost",
            "assigned",
        ]
        assert again == [b"a", b"b"]


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_partitions_of_a_removed_member_are_lost_not_revoked(
    node: ThreadBroker, assignor: str
) -> None:
    topic = fresh_topic(node)
    mine = {TopicPartition(topic, 0)}
    recorder = CallRecorder()
    with members(node, 1, partition_assignment_strategy=[assignor]) as (one,):
        one.subscribe(topic, listener=recorder)
        poll_until(lambda: sizes(one) == [1], one)
        node.fail_next("Heartbeat", "UNKNOWN_MEMBER_ID")
        poll_until(lambda: len(recorder.calls) == 2, one)
        assert one.assignment() == set()
    assert recorder.calls == [("assigned", mine), ("lost", mine)]


def test_closing_leaves_the_group_at_once(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with members(node, 2, session_timeout_ms=45_000) as (one, two):
        one.subscribe(topic)
        poll_until(lambda: sizes(one) == [1], one)
        one.close()
        two.subscribe(topic)
        poll_until(lambda: sizes(two) == [1], two, patience_s=10)


def test_a_static_member_comes_back_to_its_partitions(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    group = fresh_name("group")
    recorder = CallRecorder()
    settings = {"group_id": group, "heartbeat_interval_ms": 100}
    with consumer_of(node, group_instance_id="b", **settings) as other:
        first = consumer_of(node, group_instance_id="a", **settings)
        first.subscribe(topic)
        other.subscribe(topic, listener=recorder)
        poll_until(lambda: sizes(first, other) == [1, 1], first, other)
        mine = first.assignment()
        count = len(recorder.calls)
        first.close()
        with consumer_of(node, group_instance_id="a", **settings) as again:
            again.subscribe(topic)
            poll_until(lambda: sizes(again) == [1], again, other)
            assert again.assignment() == mine
            assert len(recorder.calls) == count


def test_a_new_owner_of_an_instance_id_fences_the_old_one(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    group = fresh_name("group")
    settings = {"group_id": group, "heartbeat_interval_ms": 100, "group_instance_id": "a"}
    with consumer_of(node, **settings) as first, consumer_of(node, **settings) as second:
        first.subscribe(topic)
        poll_until(lambda: sizes(first) == [1], first)
        second.subscribe(topic)
        poll_until(lambda: sizes(second) == [1], second)
        for _ in range(2):
            with pytest.raises(KafkaError) as caught:
                poll_until(lambda: False, first, patience_s=20)
            assert caught.value.code is ErrorCode.FENCED_INSTANCE_ID


# Committing.


def test_commits_hold_offsets_and_metadata(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    produce(node.bootstrap, topic, [b"x"] * 10, 0)
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with members(node, 1, enable_auto_commit=False) as (one,):
        one.subscribe(topic)
        read(one, 4)
        one.commit()
        found = one.committed([place, other])
        assert found[place] == OffsetAndMetadata(4, "", 0)
        one.commit({place: OffsetAndMetadata(7, "seven"), other: 0})
        found = one.committed([place, other])
        assert (found[place], found[other]) == (OffsetAndMetadata(7, "seven"), OffsetAndMetadata(0))
        done: list[Any] = []
        one.commit_async({place: 9}, lambda offsets, error: done.append((offsets, error)))
        poll_until(lambda: bool(done), one)
        assert done == [({place: OffsetAndMetadata(9)}, None)]
        assert one.committed([place])[place] == OffsetAndMetadata(9)


def test_positions_are_committed_automatically(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(10)], 0)
    place = TopicPartition(topic, 0)
    with members(node, 2, auto_commit_interval_ms=100) as (one, two):
        one.subscribe(topic)
        read(one, 6)
        one.pause(place)
        poll_until(lambda: one.committed([place])[place] == OffsetAndMetadata(6, "", 0), one)
        one.close()
        two.subscribe(topic)
        assert values(read(two, 4)) == [b"6", b"7", b"8", b"9"]


def test_the_next_member_begins_where_the_last_one_ended(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(10)], 0)
    with members(node, 2, max_poll_records=3) as (one, two):
        one.subscribe(topic)
        assert values(read(one, 3)) == [b"0", b"1", b"2"]
        one.close()
        two.subscribe(topic)
        assert values(read(two, 7)) == [b"%d" % i for i in range(3, 10)]


def test_a_listener_may_use_its_consumer(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(5)], 0)
    with members(node, 1, enable_auto_commit=False) as (one,):

        class Listener:
            def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
                for partition in partitions:
                    one.seek(partition, 3)

            def on_partitions_revoked(self, _partitions: list[TopicPartition]) -> None:
                one.commit()

        one.subscribe(topic, listener=Listener())
        assert values(read(one, 2)) == [b"3", b"4"]
        group = one.group_metadata().group_id
        one.close()
        with consumer_of(node, group_id=group) as after:
            found = after.committed([(topic, 0)])[TopicPartition(topic, 0)]
            assert found is not None
            assert found.offset == 5


def test_poll_raises_the_error_of_a_listener(node: ThreadBroker) -> None:
    class Listener:
        def on_partitions_assigned(self, _partitions: object) -> None:
            raise RuntimeError("no thanks")

    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)
    with members(node, 1) as (one,):
        one.subscribe(topic, listener=Listener())
        with pytest.raises(RuntimeError, match="no thanks"):
            poll_until(lambda: False, one)
        assert values(read(one, 1)) == [b"a"]


def test_members_without_a_common_assignor_get_an_error(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    group = fresh_name("group")
    with (
        consumer_of(node, group_id=group, partition_assignment_strategy=["range"]) as one,
        consumer_of(node, group_id=group, partition_assignment_strategy=["roundrobin"]) as two,
    ):
        one.subscribe(topic)
        poll_until(lambda: sizes(one) == [1], one)
        two.subscribe(topic)
        with pytest.raises(KafkaError, match="support none of the assignors"):
            poll_until(lambda: False, two, patience_s=20)


def test_a_group_survives_its_broker(tmp_path: Any) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with broker(settings, directory=tmp_path) as node:
        assert isinstance(node, ThreadBroker)
        topic = fresh_topic(node, 2)
        produce(node.bootstrap, topic, [b"%d" % i for i in range(100)])
        with members(node, 2) as (one, two):
            one.subscribe(topic)
            two.subscribe(topic)
            poll_until(lambda: sizes(one, two) == [1, 1], one, two)
            node.restart()
            produce(node.bootstrap, topic, [b"%d" % i for i in range(100, 200)])
            poll_until(lambda: sizes(one, two) == [1, 1], one, two)
            one.commit({})


def test_a_consumer_counts_what_it_does(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(100)], 0)
    with members(node, 1, enable_auto_commit=False) as (one,):
        assert one.metrics()["assigned_partitions"] == 0
        one.subscribe(topic)
        read(one, 60)
        one.commit()
        poll_until(lambda: one.metrics()["heartbeats_answered"] > 0)
        found = one.metrics()
        assert (found["records_consumed"], found["records_lag_max"]) == (60, 40)
        assert (found["commits_done"], found["commits_failed"]) == (1, 0)
        assert (found["rebalances"], found["assigned_partitions"]) == (1, 2)
        assert (found["fetches_failed"], found["polls_too_late"]) == (0, 0)
        assert found["fetches_answered"] > 0
        assert found["fetched_bytes"] >= found["buffered_bytes"] > 0
