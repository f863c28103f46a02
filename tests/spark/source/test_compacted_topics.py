"""Topics that are compacted while they are read: gaps everywhere, markers at the end of ranges, and
queries that read up to their ends and continue.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from spark.rows import fresh_topic, read_batch, read_parts, source
from support.spark_sessions import started_copy
from support.waiting import wait_for

from moldau import Admin, Producer
from moldau.admin import ConfigChange, ConfigResource, ConfigResourceType, Operation
from moldau.testing import ThreadBroker, broker

KEYS = 10
ROUNDS = 40
WAIT_S = 300
# Values of min.cleanable.dirty.ratio: the dirty part must be larger.
SOON, NEVER = "0.01", "1"
Row = tuple[int, bytes, bytes]


class Reading(NamedTuple):
    batch: list[Row]
    left: list[Row]


@pytest.fixture(scope="module")
def cleaning() -> Iterator[ThreadBroker]:
    with broker({"log.cleaner.backoff.ms": "100"}) as running:
        assert isinstance(running, ThreadBroker)
        yield running


def compacted_topic(node: ThreadBroker, dirty_ratio: str = SOON) -> str:
    """A topic with a new segment for every few records: many start with a gap."""
    return fresh_topic(
        node,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=dirty_ratio,
        internal_segment_bytes="1500",
    )


def let_the_cleaner_begin(node: ThreadBroker, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    with Admin(node.bootstrap) as admin:
        begin = ConfigChange("min.cleanable.dirty.ratio", Operation.SET, SOON)
        assert admin.alter_configs({resource: [begin]}) == {resource: None}


def send_rounds(node: ThreadBroker, topic: str, first: int, stop: int) -> None:
    """Sends all keys in each round; each is a transaction, and every second one is aborted."""
    with Producer(node.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(first, stop):
            producer.begin_transaction()
            for key in range(KEYS):
                producer.send(topic, b"%d" % number, key=b"%d" % key)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def rows_of(found: list[dict[str, Any]]) -> list[Row]:
    return [(row["offset"], row["key"], row["value"]) for row in found]


def wait_for_the_cleaner(node: ThreadBroker, topic: str, before: int) -> None:
    """Waits until most records are gone; more may follow."""
    wait_for(
        lambda: len(read_batch(node, subscribe=topic)) <= before // 2,
        f"fewer than half of {before} records",
        WAIT_S,
    )


def read_between_cleanings(
    node: ThreadBroker, topic: str, reader: Any, parts: list[Any]
) -> Reading:
    """The rows of a batch, and all rows of the topic, which were the same before and after it."""
    deadline = time.monotonic() + WAIT_S
    left = rows_of(read_batch(node, subscribe=topic))
    while True:
        batch = rows_of(read_parts(reader, parts))
        before, left = left, rows_of(read_batch(node, subscribe=topic))
        if before == left:
            return Reading(batch, left)
        assert time.monotonic() < deadline, len(left)


def last_values(rows: list[Row]) -> dict[bytes, bytes]:
    return {key: value for _, key, value in sorted(rows)}


@pytest.mark.parametrize("tasks", ["1", "7"])
def test_a_planned_batch_is_read_after_compaction(cleaning: ThreadBroker, tasks: str) -> None:
    """A batch reads exactly the remaining rows of its range; the next batches read the rest."""
    topic = compacted_topic(cleaning, dirty_ratio=NEVER)
    send_rounds(cleaning, topic, 0, ROUNDS)
    known = {"subscribe": topic, "startingOffsets": "earliest", "minPartitions": tasks}
    found = source(cleaning, **known, longPollMs="0")
    reader: Any = found.streamReader(found.schema())
    before = rows_of(read_batch(cleaning, subscribe=topic))
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(45))
    end = reader.latestOffset(start, ReadMaxRows(150))
    let_the_cleaner_begin(cleaning, topic)
    wait_for_the_cleaner(cleaning, topic, len(before))
    read = []
    while True:
        parts = list(reader.partitions(start, end))
        batch, left = read_between_cleanings(cleaning, topic, reader, parts)
        first, stop = start[topic]["0"], end[topic]["0"]
        assert batch == [row for row in left if first <= row[0] < stop]
        read += batch
        start, end = end, reader.latestOffset(end, ReadMaxRows(150))
        if end == start:
            break
    assert set(read) <= set(before)
    assert last_values(read) == {b"%d" % key: b"%d" % (ROUNDS - 2) for key in range(KEYS)}
    # The last round was aborted: its marker, after its rows, is the end.
    send_rounds(cleaning, topic, ROUNDS, ROUNDS + 1)
    end = reader.latestOffset(start, ReadAllAvailable())
    more = rows_of(read_parts(reader, reader.partitions(start, end)))
    assert [value for _, _, value in more] == [b"%d" % ROUNDS] * KEYS


@pytest.mark.spark
def test_a_running_query_continues_after_compaction(
    session: Any, cleaning: ThreadBroker, tmp_path: Path
) -> None:
    topic, target = compacted_topic(cleaning), fresh_topic(cleaning)
    query = started_copy(session, cleaning.bootstrap, (topic, target), tmp_path / "checkpoint")
    committed = [number for number in range(2 * ROUNDS) if not number % 2]
    try:
        for first in (0, ROUNDS):
            send_rounds(cleaning, topic, first, first + ROUNDS)
            query.processAllAvailable()
            wait_for_the_cleaner(cleaning, topic, ROUNDS * KEYS // 2)
    finally:
        query.stop()
    copied = rows_of(read_batch(cleaning, subscribe=target))
    # Compaction may have removed some before the query read them, but never the last ones.
    assert {int(value) for _, _, value in copied} <= set(committed)
    assert len(copied) <= len(committed) * KEYS
    assert last_values(copied) == {b"%d" % key: b"%d" % committed[-1] for key in range(KEYS)}
