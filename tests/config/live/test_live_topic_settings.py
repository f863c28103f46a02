"""Every topic setting that has an effect is observed: as the node's default at start and changed at
run time, and as the topic's own value at creation and changed later.
"""

from typing import NamedTuple

import pytest
from config.live.live_node import live_node
from config.live.topic_checks import (
    JITTERED,
    Check,
    check_batch_size,
    check_cleanable_ratio,
    check_codec,
    check_compaction_lag,
    check_file_delay,
    check_flush_count,
    check_flush_time,
    check_index_interval,
    check_index_size,
    check_level,
    check_overdue_compaction,
    check_policy,
    check_retention_size,
    check_retention_time,
    check_segment_age,
    check_segment_jitter,
    check_segment_size,
    check_timestamp_type,
    check_timestamps,
    check_tombstones,
)
from support.proofs import proves, proves_change
from support.wire_client import WireClient

from moldau.protocol.records.compression import Compression

NOTHING: dict[str, str] = {}


class Row(NamedTuple):
    name: str
    """The name of the topic's setting."""
    node_name: str
    """The name of the node's setting; empty if there is none."""
    one: str
    other: str
    check: Check
    needs: dict[str, str] = NOTHING
    """Other settings of the topic that the check needs."""
    partitions: int = 1


SMALL = {"internal.segment.bytes": "1000"}
COMPACTED = SMALL | {"cleanup.policy": "compact"}
ENDLESS = {"retention.ms": "-1"}
HOURLY = ENDLESS | {"segment.ms": "3600000"}
NEVER = {"min.cleanable.dirty.ratio": "1"}
EAGER = {"min.cleanable.dirty.ratio": "0"}

ROWS = [
    Row("cleanup.policy", "log.cleanup.policy", "compact", "delete", check_policy),
    Row("compression.type", "compression.type", "lz4", "zstd", check_codec),
    *(
        Row(
            f"compression.{codec.name.lower()}.level",
            f"compression.{codec.name.lower()}.level",
            *levels,
            check_level(codec),
            {"compression.type": codec.name.lower()},
        )
        for codec, levels in {
            Compression.GZIP: ("1", "9"),
            Compression.LZ4: ("1", "12"),
            Compression.ZSTD: ("1", "12"),
        }.items()
    ),
    Row("delete.retention.ms", "log.cleaner.delete.retention.ms", "3600000", "72000000",
        check_tombstones, COMPACTED | EAGER),
    Row("file.delete.delay.ms", "log.segment.delete.delay.ms", "10000", "36000000",
        check_file_delay),
    Row("flush.messages", "log.flush.interval.messages", "1", "7", check_flush_count),
    Row("flush.ms", "log.flush.interval.ms", "20000", "3600000", check_flush_time),
    Row("index.interval.bytes", "log.index.interval.bytes", "500", "5000", check_index_interval,
        HOURLY),
    Row("internal.segment.bytes", "", "2000", "20000", check_segment_size, HOURLY),
    Row("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", "3600000", "72000000",
        check_overdue_compaction, {"cleanup.policy": "compact"} | NEVER),
    Row("max.message.bytes", "message.max.bytes", "500", "5000", check_batch_size),
    Row("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", "60000",
        "36000000", check_timestamps(1)),
    Row("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", "60000",
        "36000000", check_timestamps(-1)),
    Row("message.timestamp.type", "log.message.timestamp.type", "LogAppendTime", "CreateTime",
        check_timestamp_type, ENDLESS),
    Row("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", "1", "0.1",
        check_cleanable_ratio, COMPACTED),
    Row("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", "3600000", "72000000",
        check_compaction_lag, COMPACTED | EAGER),
    Row("retention.bytes", "log.retention.bytes", "3000", "9000", check_retention_size,
        SMALL | ENDLESS),
    Row("retention.ms", "log.retention.ms", "7200000", "144000000", check_retention_time),
    Row("segment.bytes", "log.segment.bytes", "1048576", "1500000", check_segment_size, HOURLY),
    Row("segment.index.bytes", "log.index.size.max.bytes", "120", "10000000", check_index_size,
        HOURLY | {"index.interval.bytes": "0"}),
    Row("segment.jitter.ms", "log.roll.jitter.ms", "360000000", "60000", check_segment_jitter,
        ENDLESS | {"segment.ms": "360000000"}, JITTERED),
    Row("segment.ms", "log.roll.ms", "3600000", "72000000", check_segment_age, ENDLESS),
]  # fmt: skip
TOPIC_SETTINGS = [row.name for row in ROWS]
NODE_SETTINGS = [row.node_name for row in ROWS if row.node_name]
NEEDED_BY_ALL = {
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "moldau.flush.policy": "os",
}


@proves(*TOPIC_SETTINGS, of="topic")
@proves_change(*TOPIC_SETTINGS, of="topic")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_topic_obeys_its_own_setting(row: Row) -> None:
    node_settings = {row.node_name: row.other} if row.node_name else {}
    with live_node(NEEDED_BY_ALL | node_settings) as node:
        topic = node.create_topic("own", row.needs | {row.name: row.one}, row.partitions)
        row.check(node, topic, row.one)
        node.change(row.name, row.other, topic=topic)
        row.check(node, topic, row.other)


@proves(*NODE_SETTINGS)
@proves_change(*NODE_SETTINGS)
@pytest.mark.parametrize("row", [row for row in ROWS if row.node_name], ids=lambda r: r.node_name)
def test_a_topic_without_its_own_setting_obeys_the_nodes(row: Row) -> None:
    with live_node(NEEDED_BY_ALL | {row.node_name: row.one}) as node:
        topic = node.create_topic("plain", row.needs, row.partitions)
        row.check(node, topic, row.one)
        node.change(row.node_name, row.other)
        row.check(node, topic, row.other)
        node.change(row.node_name, row.one, node="1")
        row.check(node, topic, row.one)


def test_changed_settings_survive_a_restart() -> None:
    with live_node({"compression.type": "lz4"}) as node:
        plain, own = node.create_topic("plain"), node.create_topic("own")
        node.change("compression.type", "zstd")
        node.change("compression.type", "snappy", topic=own)
        node.broker.restart()
        with WireClient(node.broker.bootstrap) as node.client:
            check_codec(node, plain, "zstd")
            check_codec(node, own, "snappy")
