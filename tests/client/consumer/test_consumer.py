"""Which records a consumer reads, where it starts, and its positions."""

import threading
import time

import pytest
from client.consumed import consumer_of, fresh_name, fresh_topic, poll_until, produce, read, values
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from moldau import Consumer
from moldau.client.consumer.errors import DeserializationError, NoOffsetError, WakeupError
from moldau.client.errors import ClientError, ClosedError, ConfigError, UnsupportedError
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition


def test_records_come_in_order_with_all_their_parts(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    producer = ConfluentProducer({"bootstrap.servers": node.bootstrap})
    producer.produce(topic, b"v", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp=12345)
    producer.produce(topic, None, key=b"gone")
    producer.flush(30)
    with consumer_of(node) as consumer:
        consumer.subscribe(topic)
        first, second = read(consumer, 2)
    assert (first.topic, first.partition, first.offset, first.leader_epoch) == (topic, 0, 0, 0)
    assert (first.key, first.value, first.timestamp, first.timestamp_type) == (b"k", b"v", 12345, 0)
    assert first.headers == (("a", b"1"), ("b", None))
    assert (second.offset, second.key, second.value, second.headers) == (1, b"gone", None, ())


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(node: ThreadBroker, codec: str) -> None:
    topic = fresh_topic(node)
    written = [b"%d" % i * 20 for i in range(500)]
    produce(node.bootstrap, topic, written, 0, compression_type=codec, linger_ms=50)
    with consumer_of(node) as consumer:
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 500)) == written


def test_each_partition_keeps_its_order(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 5)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(5000)])
    with consumer_of(node, max_poll_records=70) as consumer:
        consumer.subscribe([topic])
        found = read(consumer, 5000)
    assert sorted(int(one.value) for one in found) == list(range(5000))
    for number in range(5):
        offsets = [one.offset for one in found if one.partition == number]
        assert offsets == list(range(len(offsets)))


def test_a_poll_returns_at_most_max_poll_records(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"x"] * 20, 0)
    with consumer_of(node, max_poll_records=7) as consumer:
        consumer.subscribe(topic)
        assert len(read(consumer, 7)) == 7
        assert len(consumer.poll(5)) == 7
        assert len(consumer.poll(5, max_records=2)) == 2
        assert consumer.position((topic, 0)) == 16


def test_memory_for_fetched_records_is_bounded(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"x" * 10_000] * 400, 0, batch_size=20_000)
    with consumer_of(node, max_partition_fetch_bytes=50_000) as consumer:
        consumer.subscribe(topic)
        found = consumer.poll(10, 1)
        poll_until(lambda: consumer._engine.fetching.wants_room)
        state = consumer._engine.state_of(TopicPartition(topic, 0))
        assert 100_000 <= state.buffered_bytes < 170_000
        found += read(consumer, 399)
    assert [one.offset for one in found] == list(range(400))


def test_a_fetch_session_sends_only_what_changed(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 3)
    with consumer_of(node, fetch_max_wait_ms=10) as consumer:
        consumer.assign([(topic, number) for number in range(3)])
        for number in range(3):
            produce(node.bootstrap, topic, [b"%d" % number], number)
            assert values(read(consumer, 1)) == [b"%d" % number]
        (session,) = consumer._engine.fetching._sessions.values()
        plan = session.plan(session._known)
        assert plan.session_id != 0
        assert plan.epoch > 1
        assert (plan.rows, plan.forgotten) == ({}, {})


# Start positions.


def test_earliest_and_latest(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"old"], 0)
    with consumer_of(node, auto_offset_reset="latest") as late, consumer_of(node) as early:
        late.assign([(topic, 0)])
        early.assign([(topic, 0)])
        assert late.position((topic, 0)) == 1
        produce(node.bootstrap, topic, [b"new"], 0)
        assert values(read(late, 1)) == [b"new"]
        assert values(read(early, 2)) == [b"old", b"new"]


def test_without_a_reset_policy_a_seek_clears_the_error(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a", b"b"], 0)
    with consumer_of(node, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(NoOffsetError, match="no committed offset"):
            consumer.poll(30)
        consumer.seek((topic, 0), 1)
        assert values(read(consumer, 1)) == [b"b"]


def test_by_duration_starts_that_long_ago(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    now_ms = time.time_ns() // 1_000_000
    producer = ConfluentProducer({"bootstrap.servers": node.bootstrap})
    for hours in (5, 3, 1):
        producer.produce(topic, b"%d" % hours, timestamp=now_ms - hours * 3_600_000)
    producer.flush(30)
    with consumer_of(node, auto_offset_reset="by_duration:PT4H") as consumer:
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 2)) == [b"3", b"1"]
    with consumer_of(node, auto_offset_reset="by_duration:PT30M") as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.position((topic, 0)) == 3


def test_a_position_that_no_longer_exists_is_reset(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(10)], 0)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for done in admin.delete_records([ConfluentPartition(topic, 0, 6)]).values():
        done.result(30)
    with consumer_of(node) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 2)
        assert values(read(consumer, 4)) == [b"6", b"7", b"8", b"9"]
    with consumer_of(node, group_id=topic, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        consumer.commit({(topic, 0): 8})
        consumer.seek((topic, 0), 2)
        for _ in range(3):  # The committed offset does not help.
            with pytest.raises(NoOffsetError, match="no longer has offset 2"):
                consumer.poll(30)
        consumer.seek((topic, 0), 7)
        assert values(read(consumer, 3)) == [b"7", b"8", b"9"]


# Positions and commits.


def test_seek_position_and_lag(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(100)], 0)
    place = TopicPartition(topic, 0)
    with consumer_of(node, max_poll_records=10) as consumer:
        consumer.assign([place])
        assert consumer.lag(place) in {None, 100}  # It fetches ahead.
        read(consumer, 10)
        assert (consumer.position(place), consumer.lag(place)) == (10, 90)
        consumer.seek(place, 95)
        assert values(read(consumer, 5)) == [b"95", b"96", b"97", b"98", b"99"]
        assert consumer.lag(place) == 0
        consumer.seek_to_beginning()
        assert values(read(consumer, 1)) == [b"0"]
        consumer.seek_to_end(place)
        assert consumer.position(place) == 100
        assert consumer.poll(0.1) == []


def test_records_fetched_before_a_seek_are_dropped(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(1000)], 0)
    with consumer_of(node, max_poll_records=10) as consumer:
        consumer.assign([(topic, 0)])
        for offset in (500, 3, 900, 0):
            read(consumer, 10)
            consumer.seek((topic, 0), offset)
            assert int(read(consumer, 1)[0].value) == offset


def test_times_are_found(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    producer = ConfluentProducer({"bootstrap.servers": node.bootstrap})
    for time_ms in (1000, 2000, 3000):
        producer.produce(topic, b"%d" % time_ms, timestamp=time_ms)
    producer.flush(30)
    place = TopicPartition(topic, 0)
    with consumer_of(node) as consumer:
        found = consumer.offsets_for_times({place: 1500})[place]
        assert found is not None
        assert (found.offset, found.timestamp) == (1, 2000)
        assert consumer.offsets_for_times({place: 9999}) == {place: None}
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 3}
        assert consumer.partitions_for(topic) == [place]
        consumer.assign([place])
        consumer.seek_to_time(2500)
        assert values(read(consumer, 1)) == [b"3000"]
        consumer.seek_to_time(9999, place)
        assert consumer.position(place) == 3


def test_paused_partitions_return_nothing_until_resumed(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    for number in (0, 1):
        produce(node.bootstrap, topic, [b"%d" % number] * 50, number)
    with consumer_of(node, max_poll_records=5) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        first = read(consumer, 5)
        consumer.pause((topic, 0))
        assert consumer.paused() == {(topic, 0)}
        mine = [one for one in first if one.partition == 1]
        mine += read(consumer, 50 - len(mine))
        assert {one.partition for one in mine} == {1}
        assert consumer.poll(0.2) == []
        consumer.resume()
        rest = read(consumer, 50 - sum(one.partition == 0 for one in first))
        assert {one.partition for one in rest} == {0}
        assert rest[-1].offset == 49


def test_read_committed_omits_aborted_records(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    producer = ConfluentProducer(
        {"bootstrap.servers": node.bootstrap, "transactional.id": fresh_name("tx")}
    )
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.produce(topic, b"%d" % number)
        producer.flush(30)
        producer.commit_transaction(30) if number % 2 else producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    with (
        consumer_of(node, isolation_level="read_committed") as committed,
        consumer_of(node) as uncommitted,
    ):
        committed.assign([(topic, 0)])
        uncommitted.assign([(topic, 0)])
        assert values(read(committed, 6)) == [b"1", b"1", b"3", b"3", b"5", b"5"]
        assert committed.poll(0.2) == []
        # After the last marker, before the open transaction.
        assert committed.position((topic, 0)) == 18
        assert committed.end_offsets([(topic, 0)]) == {(topic, 0): 18}
        assert len(read(uncommitted, 13)) == 13
        assert uncommitted.end_offsets([(topic, 0)]) == {(topic, 0): 19}
        producer.commit_transaction(30)
        assert values(read(committed, 1)) == [b"open"]


# Single records, keys and values.


def test_a_loop_commits_only_the_records_that_it_got(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(10)], 0)
    with consumer_of(node) as consumer:
        consumer.subscribe(topic)
        for record in consumer:
            if record.offset == 4:
                break
        # The loop was left while it had the record at 4: that one is not processed.
        assert consumer.position((topic, 0)) == 4
        consumer.commit()
        assert [one.offset for one in read(consumer, 5)] == [5, 6, 7, 8, 9]
        assert consumer.position((topic, 0)) == 10
        committed = consumer.committed([(topic, 0)])[TopicPartition(topic, 0)]
        assert committed is not None
        assert committed.offset == 4


def test_deserializers_make_keys_and_values(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"1"])
    settings = {"key_deserializer": "str", "value_deserializer": "json"}
    with consumer_of(node, **settings) as consumer:
        consumer.subscribe(topic)
        (record,) = read(consumer, 1)
        assert (record.key, record.value) == ("1", 1)


def test_an_unreadable_record_is_named_and_can_be_skipped(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"1", b"x", b"3"], 0)
    with consumer_of(node, value_deserializer=int) as consumer:
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 1)) == [1]
        for _ in range(2):
            with pytest.raises(DeserializationError, match="at offset 1 that cannot be read"):
                consumer.poll(10)
        consumer.seek((topic, 0), 2)
        assert values(read(consumer, 1)) == [3]


def test_interceptors_see_records_and_commits(node: ThreadBroker) -> None:
    seen = []

    class Interceptor:
        def on_consume(self, records: list[object]) -> list[object]:
            return records[:1]

        def on_commit(self, offsets: object) -> None:
            seen.append(offsets)

    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"1", b"2"], 0)
    with consumer_of(node, interceptor_classes=[Interceptor]) as consumer:
        consumer.assign([(topic, 0)])
        assert values(read(consumer, 1)) == [b"1"]
        consumer.commit({(topic, 0): 1})
    assert seen[0] == {TopicPartition(topic, 0): OffsetAndMetadata(1)}


# Ends and misuse.


def test_a_wakeup_ends_a_poll(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with consumer_of(node) as consumer:
        consumer.subscribe(topic)
        consumer.poll(0)
        waker = threading.Timer(0.2, consumer.wakeup)
        waker.start()
        with pytest.raises(WakeupError):
            consumer.poll(60)
        waker.join()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(60)
        produce(node.bootstrap, topic, [b"after"], 0)
        assert values(read(consumer, 1)) == [b"after"]


def test_a_closed_consumer_raises_closed_error(node: ThreadBroker) -> None:
    consumer = consumer_of(node)
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError, match="closed"):
        consumer.poll(1)
    with pytest.raises(ClosedError, match="closed"):
        consumer.subscribe("t")


def test_two_threads_at_once_are_an_error(node: ThreadBroker) -> None:
    with consumer_of(node) as consumer:
        consumer.assign([(fresh_topic(node), 0)])
        poller = threading.Thread(target=consumer.poll, args=(2,))
        poller.start()
        poll_until(lambda: consumer._engine.is_polling)
        with pytest.raises(ClientError, match="another thread"):
            consumer.position(("t", 0))
        poller.join()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_pol_records": 3}, "max_poll_records"),
        ({"auto_offset_reset": "newest"}, "auto.offset.reset"),
        ({"partition_assignment_strategy": ["rage"]}, "did you mean 'range'"),
        ({"partition_assignment_strategy": ["range", "cooperative-sticky"]}, ""),
        ({"value_deserializer": "jsn"}, "did you mean 'json'"),
        ({"heartbeat_interval_ms": 50_000}, "less than session.timeout.ms"),
        ({"group_id": ""}, "group.id is empty"),
    ],
)
def test_wrong_settings_are_named_in_the_error(
    node: ThreadBroker, settings: dict[str, object], problem: str
) -> None:
    if not problem:
        consumer_of(node, **settings).close()
        return
    with pytest.raises(ConfigError, match=problem):
        consumer_of(node, **settings)


def test_wrong_use_is_an_error(node: ThreadBroker) -> None:
    with pytest.raises(UnsupportedError, match=r"group\.protocol"):
        consumer_of(node, group_protocol="consumer")
    with consumer_of(node) as consumer:
        with pytest.raises(ClientError, match="nothing is subscribed"):
            consumer.poll(1)
        with pytest.raises(ClientError, match="either topics or a pattern"):
            consumer.subscribe()
        with pytest.raises(ClientError, match="regular expression"):
            consumer.subscribe(pattern="(")
        consumer.subscribe("t")
        with pytest.raises(ClientError, match="unsubscribe before assigning"):
            consumer.assign([("t", 0)])
        with pytest.raises(ClientError, match="not assigned"):
            consumer.seek(("t", 0), 1)
        with pytest.raises(ClientError, match="negative"):
            consumer.poll(-1)
    with Consumer(node.bootstrap) as alone:
        with pytest.raises(ConfigError, match=r"group\.id"):
            alone.subscribe("t")
        alone.assign([(fresh_topic(node), 0)])
        with pytest.raises(ConfigError, match=r"group\.id"):
            alone.commit({("t", 0): 1})


def test_a_loop_continues_after_any_call_in_its_body(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"%d" % i for i in range(20)], 0)
    seen = []
    with consumer_of(node) as consumer:
        consumer.subscribe(topic)
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 3 and seen.count(3) == 1:
                assert consumer.position((topic, 0)) == 3
                consumer.seek((topic, 0), 10)
            elif record.offset == 12:
                assert [one.offset for one in consumer.poll(1, 2)] == [13, 14]
                assert consumer.position((topic, 0)) == 15
            elif record.offset == 19:
                break
        assert seen == [0, 1, 2, 3, 10, 11, 12, 15, 16, 17, 18, 19]
        assert consumer.position((topic, 0)) == 19
        assert consumer.poll(0.1) == []
        assert consumer.position((topic, 0)) == 20
