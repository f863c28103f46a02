"""Periodic work of a node on its logs: how often, how fast, and whether at all."""

import os
import re
import threading
from collections.abc import Callable
from itertools import count
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from config.live.live_node import LiveNode, live_node
from config.live.topic_checks import (
    HOUR_MS,
    JITTERED,
    RECOVERY_POINTS,
    check_flush_time,
    check_retention_time,
    check_segment_age,
    check_segment_jitter,
    is_compacted,
    write_twice,
)
from support.proofs import proves, proves_change
from support.waiting import wait_for
from system.node.questions import EARLIEST, delete_records, offset_at

from moldau.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record
from moldau.types import ProducerEpoch

HIGH_WATERMARKS = "replication-offset-checkpoint"
STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
SMALL = {"internal.segment.bytes": "1000"}
_producers = count(1000)


# Hours and minutes


class Coarse(NamedTuple):
    settings: dict[str, str]
    check: Callable[[LiveNode, str, str], None]
    value_ms: int
    partitions: int = 1


COARSE = {
    "log.retention.hours": Coarse({"log.retention.hours": "3"}, check_retention_time, 3 * HOUR_MS),
    "log.retention.minutes": Coarse(
        {"log.retention.minutes": "90", "log.retention.hours": "1000"},
        check_retention_time,
        HOUR_MS * 3 // 2,
    ),
    "log.roll.hours": Coarse({"log.roll.hours": "2"}, check_segment_age, 2 * HOUR_MS),
    "log.roll.jitter.hours": Coarse(
        {"log.roll.jitter.hours": "100", "log.roll.hours": "100", "log.retention.ms": "-1"},
        check_segment_jitter,
        100 * HOUR_MS,
        JITTERED,
    ),
    "log.flush.scheduler.interval.ms": Coarse(
        {
            "log.flush.scheduler.interval.ms": "600000",
            "log.flush.offset.checkpoint.interval.ms": "1000",
        },
        check_flush_time,
        600_000,
    ),
}


@pytest.mark.parametrize("name", COARSE)
@proves(*COARSE)
def test_topics_obey_node_settings_in_other_units(name: str) -> None:
    row = COARSE[name]
    with live_node(row.settings) as node:
        topic = node.create_topic("plain", partitions=row.partitions)
        row.check(node, topic, str(row.value_ms))


def test_logs_are_synced_by_age_only_at_the_scheduled_checks() -> None:
    settings = {
        "log.flush.scheduler.interval.ms": str(HOUR_MS),
        "log.flush.offset.checkpoint.interval.ms": "1000",
    }
    with live_node(settings) as node:
        topic = node.create_topic("eager", {"flush.ms": "1000"})
        check_flush_time(node, topic, str(HOUR_MS))


# How often


@proves("replica.high.watermark.checkpoint.interval.ms", "log.flush.offset.checkpoint.interval.ms")
@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("replica.high.watermark.checkpoint.interval.ms", HIGH_WATERMARKS),
        ("log.flush.offset.checkpoint.interval.ms", RECOVERY_POINTS),
    ],
)
def test_offsets_are_checkpointed_as_often_as_configured(name: str, file_name: str) -> None:
    with live_node({name: str(HOUR_MS), "moldau.flush.policy": "strict"}) as node:
        assert node.write("watched", b"a", b"b", b"c") == 0
        node.assert_happens_after(HOUR_MS, lambda: node.checkpoint(file_name, "watched") == 3)


@proves("log.flush.start.offset.checkpoint.interval.ms")
def test_log_start_offsets_are_checkpointed_as_often_as_configured() -> None:
    """A start offset from a DeleteRecords request is written at once, its removal later."""
    settings = {
        "log.flush.start.offset.checkpoint.interval.ms": str(HOUR_MS),
        "log.retention.check.interval.ms": "1000",
    }
    with live_node(settings) as node:
        assert node.write("watched", b"a", b"b", b"c") == 0
        assert delete_records(node.client, ("watched", 0), 3) == (0, 3)
        assert node.checkpoint(STARTS, "watched") == 3
        node.assert_happens_after(HOUR_MS, lambda: node.checkpoint(STARTS, "watched") == -1)


@proves("log.retention.check.interval.ms")
def test_old_segments_are_checked_as_often_as_configured() -> None:
    with live_node({"log.retention.check.interval.ms": str(HOUR_MS)}) as node:
        topic = node.create_topic("t", {"retention.ms": "1"})
        assert node.write(topic, b"a") == 0
        node.assert_happens_after(
            HOUR_MS, lambda: offset_at(node.client, (topic, 0), EARLIEST) == 1
        )


def write_as_a_producer(node: LiveNode) -> int:
    producer_id = next(_producers)
    options = BatchOptions(
        producer_id=producer_id, producer_epoch=ProducerEpoch(0), base_sequence=0
    )
    content = build_batch([Record(0, node.now_ms, None, b"a")], options)
    assert node.write_batch("watched", content) == 0
    return producer_id


def is_forgotten(node: LiveNode, producer_id: int) -> Callable[[], bool]:
    wanted = TopicRequest(name="watched", partition_indexes=[0])

    def look() -> bool:
        answer = node.client.ask(DescribeProducersRequest(topics=[wanted]))
        (partition,) = answer.topics[0].partitions
        return producer_id not in {each.producer_id for each in partition.active_producers}

    return look


@proves("producer.id.expiration.ms")
@proves_change("producer.id.expiration.ms")
def test_producers_expire_after_their_time() -> None:
    settings = {
        "producer.id.expiration.ms": str(HOUR_MS),
        "producer.id.expiration.check.interval.ms": "1000",
    }
    with live_node(settings) as node:
        for value_ms in (HOUR_MS, 20 * HOUR_MS):
            node.change("producer.id.expiration.ms", str(value_ms))
            known = write_as_a_producer(node)
            node.assert_happens_after(value_ms, is_forgotten(node, known))
    with live_node(settings) as node:
        known = write_as_a_producer(node)
        node.assert_happens_after(HOUR_MS, is_forgotten(node, known))


@proves("producer.id.expiration.check.interval.ms")
def test_idle_producers_are_checked_as_often_as_configured() -> None:
    settings = {
        "producer.id.expiration.ms": "1",
        "producer.id.expiration.check.interval.ms": str(HOUR_MS),
    }
    with live_node(settings) as node:
        known = write_as_a_producer(node)
        node.assert_happens_after(HOUR_MS, is_forgotten(node, known))


# Flushing


@pytest.mark.parametrize(
    ("policy", "is_synced"), [("os", False), ("group", True), ("strict", True)]
)
@proves("moldau.flush.policy")
def test_the_flush_policy_decides_what_is_synced(policy: str, is_synced: bool) -> None:
    settings = {
        "moldau.flush.policy": policy,
        "log.flush.offset.checkpoint.interval.ms": "1000",
    }
    with live_node(settings) as node:
        assert node.write("watched", b"a") == 0
        if is_synced:
            node.advance_until(
                lambda: node.checkpoint(RECOVERY_POINTS, "watched") == 1, step_ms=1_000
            )
        else:
            node.advance(HOUR_MS)
            node.assert_stays_false(lambda: node.checkpoint(RECOVERY_POINTS, "watched") == 1)


# Compaction


@proves("log.cleaner.backoff.ms")
@proves_change("log.cleaner.backoff.ms")
def test_the_cleaner_sleeps_as_long_as_configured() -> None:
    with live_node({"log.cleaner.backoff.ms": str(HOUR_MS)}) as node:
        topic = node.create_topic("t", COMPACTED | SMALL)
        for value_ms in (HOUR_MS, 20 * HOUR_MS, HOUR_MS):
            node.change("log.cleaner.backoff.ms", str(value_ms))
            node.assert_stays_false(lambda: False)
            key = write_twice(node, topic)
            node.assert_happens_after(value_ms, is_compacted(node, topic, key))


@proves("log.cleaner.enable")
def test_nothing_is_compacted_without_the_cleaner() -> None:
    with live_node({"log.cleaner.enable": "false"}) as node:
        topic = node.create_topic("t", COMPACTED | SMALL)
        key = write_twice(node, topic)
        node.advance(HOUR_MS)
        node.assert_stays_false(is_compacted(node, topic, key))


def wait_for_a_pass(node: LiveNode, topic: str) -> None:
    node.advance_until(lambda: node.checkpoint(CLEANED, topic) > 0)


def cleaned_in_one_pass(node: LiveNode, topic: str) -> int:
    """The number of keys, of 12,000, that the first pass cleans. The rest is too little for another
    pass.
    """
    node.create_topic(
        topic,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.9",
            "internal.segment.bytes": "50000",
        },
    )
    for start in range(0, 12_000, 500):
        keys = [b"%s-%d" % (topic.encode(), start + n) for n in range(500)]
        records = [Record(n, node.now_ms, key, b"") for n, key in enumerate(keys)]
        assert node.write_batch(topic, build_batch(records, BatchOptions(base_offset=0))) == 0
    # Segments that are not flushed yet would end the pass early.
    wait_for(lambda: not node.files("*.rolled", f"{topic}-0"), "all segments have their names")
    wait_for_a_pass(node, topic)
    return node.checkpoint(CLEANED, topic)


@proves("log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.load.factor")
@proves_change("log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.load.factor")
def test_a_pass_handles_as_many_keys_as_fit_into_memory() -> None:
    size, factor = "log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.load.factor"
    with live_node({size: str((1 << 20) + 24), factor: "0.08"}) as node:
        keys = (1 << 20) * 0.08 / 24
        assert keys - 500 <= cleaned_in_one_pass(node, "first") <= keys + 1
        node.change(size, str(2 << 20))
        assert keys * 2 - 500 <= cleaned_in_one_pass(node, "larger") <= keys * 2 + 1
        node.change(factor, "0.06")
        assert keys * 1.5 - 500 <= cleaned_in_one_pass(node, "emptier") <= keys * 1.5 + 1


@proves("log.cleaner.io.max.bytes.per.second")
@proves_change("log.cleaner.io.max.bytes.per.second")
def test_the_cleaner_obeys_its_rate_limit() -> None:
    name = "log.cleaner.io.max.bytes.per.second"
    with live_node({name: "1"}) as node:
        topic = node.create_topic("t", COMPACTED | SMALL)
        key = write_twice(node, topic)
        # Some 150 bytes have to be read twice, and the remaining ones written.
        for _ in range(6):
            node.advance(20_000)
            node.assert_stays_false(is_compacted(node, topic, key))
        node.change(name, "1e9")
        node.advance_until(is_compacted(node, topic, key))


@proves("log.cleaner.io.buffer.size")
@proves_change("log.cleaner.io.buffer.size")
def test_the_cleaner_reads_no_more_at_once_than_its_buffer_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each batch has a few hundred bytes, a segment 50,000."""
    lengths: list[int] = []
    read = os.pread

    def noted(descriptor: int, length: int, offset: int) -> bytes:
        if threading.current_thread().name.startswith("moldau-compact"):
            lengths.append(length)
        return read(descriptor, length, offset)

    name = "log.cleaner.io.buffer.size"
    with live_node({name: "2000"}) as node:
        monkeypatch.setattr(os, "pread", noted)
        for topic, size in (("first", 2_000), ("second", 20_000)):
            lengths.clear()
            node.create_topic(topic, COMPACTED | {"internal.segment.bytes": "50000"})
            for number in range(200):
                assert node.write(topic, b"a" * 400, key=b"%d" % (number % 7)) == 0
            wait_for_a_pass(node, topic)
            assert max(lengths) == size
            node.change(name, "20000")


@proves("log.cleaner.threads")
@proves_change("log.cleaner.threads")
def test_as_many_logs_are_compacted_at_a_time_as_there_are_threads() -> None:
    """Each pass takes forever at this rate."""
    settings = {
        "log.cleaner.threads": "3",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),
        "log.cleaner.io.max.bytes.per.second": "0.001",
        "moldau.metrics.port": "0",
    }

    def running() -> int:
        with urlopen(f"http://127.0.0.1:{node.broker.metrics_port}/metrics") as page:
            (count,) = re.findall(rb"^moldau_compactions (\d+)", page.read(), re.MULTILINE)
        return int(count)

    with live_node(settings) as node:
        for number in range(6):
            write_twice(node, node.create_topic(f"t{number}", COMPACTED | SMALL))
        node.advance_until(lambda: running() == 3)
        node.assert_stays_false(lambda: running() != 3)
        node.change("log.cleaner.threads", "5")
        node.advance_until(lambda: running() == 5)
        node.assert_stays_false(lambda: running() != 5)
