"""The streaming source against a real broker, called as Spark calls it, without a JVM."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from spark.rows import fresh_topic, read_parts, send, source, values

from moldau import Admin, Producer
from moldau.admin import Committed
from moldau.core.spark.errors import DataLossError
from moldau.core.spark.exactly_once import BatchMarker, write_marker
from moldau.spark.source.stream_reader import StreamReader
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition

EVERYTHING = ReadAllAvailable()


def stream(node: ThreadBroker, topic: str, **options: str) -> StreamReader:
    known = {"subscribe": topic, "startingOffsets": "earliest", "longPollMs": "0"}
    found = source(node, **(known | options))
    reader = found.streamReader(found.schema())
    assert isinstance(reader, StreamReader)
    return reader


def take(reader: StreamReader, start: dict[str, Any], limit: Any = EVERYTHING) -> tuple[Any, Any]:
    """One micro-batch: its end, and its values."""
    end = reader.latestOffset(start, limit)
    return end, values(read_parts(reader, reader.partitions(start, end)))


def after_first(reader: StreamReader) -> dict[str, Any]:
    """The end of the first batch, which is planned at once and is empty here."""
    return reader.latestOffset(reader.initialOffset(), EVERYTHING)


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def committed_by(admin: Admin, group_id: str) -> dict[TopicPartition, Committed]:
    found = admin.list_group_offsets([group_id])[group_id]
    assert isinstance(found, dict)
    return found


def offsets_of(node: ThreadBroker, group_id: str) -> dict[TopicPartition, int]:
    with Admin(node.bootstrap) as admin:
        found = committed_by(admin, group_id)
    return {one: row.offset for one, row in found.items()}


def test_batches_follow_each_other_without_gaps(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    reader = stream(node, topic)
    start = reader.initialOffset()
    send(node, topic, numbers(0, 10))
    middle, first = take(reader, start)
    send(node, topic, numbers(10, 15))
    end, second = take(reader, middle)
    assert first + second == numbers(0, 15)
    assert take(reader, end) == (end, [])


def test_the_initial_offset_is_resolved_once(node: ThreadBroker) -> None:
    """Spark requests it twice for the first batch."""
    topic = fresh_topic(node)
    reader = stream(node, topic, startingOffsets="latest")
    first = reader.initialOffset()
    send(node, topic, numbers(0, 5))
    assert reader.initialOffset() == first
    assert take(reader, first)[1] == numbers(0, 5)


def test_limits(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, numbers(0, 10))
    reader = stream(node, topic, maxOffsetsPerTrigger="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    end, first = take(reader, reader.initialOffset(), limit)
    end, second = take(reader, end, limit)
    assert (len(first), len(second)) == (4, 4)
    assert take(reader, end)[1] == numbers(8, 10)
    latest = reader.reportLatestOffset()
    assert latest is not None
    assert latest[topic] == {"0": 10}


def test_a_small_backlog_waits(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    reader = stream(node, topic, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    send(node, topic, numbers(0, 2))
    # The first batch does not wait.
    end, first = take(reader, reader.initialOffset(), limit)
    assert first == numbers(0, 2)
    send(node, topic, numbers(2, 5))
    assert reader.latestOffset(end, limit) == end
    send(node, topic, numbers(5, 7))
    assert take(reader, end, limit)[1] == numbers(2, 7)


def test_available_now_ends_where_the_topic_ended(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, numbers(0, 6))
    reader = stream(node, topic, maxOffsetsPerTrigger="4")
    reader.prepareForTriggerAvailableNow()
    send(node, topic, numbers(6, 9))
    limit = reader.getDefaultReadLimit()
    end, first = take(reader, reader.initialOffset(), limit)
    end, second = take(reader, end, limit)
    assert first + second == numbers(0, 6)
    assert take(reader, end, limit) == (end, [])


def test_an_idle_stream_waits_for_new_records(node: ThreadBroker) -> None:
    """Neither a busy loop nor a needless delay."""
    topic = fresh_topic(node)
    reader = stream(node, topic, longPollMs="30000")
    start = after_first(reader)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(reader.latestOffset, start, EVERYTHING)
        begun = time.monotonic()
        send(node, topic, numbers(0, 1))
        end = waiting.result(60)
        assert time.monotonic() - begun < 25
    assert end[topic] == {"0": 1}


def test_an_idle_stream_returns_after_its_timeout(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    reader = stream(node, topic, longPollMs="200")
    start = after_first(reader)
    begun = time.monotonic()
    assert reader.latestOffset(start, EVERYTHING) == start
    assert time.monotonic() - begun >= 0.2


def test_the_position_is_published_as_a_group(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, numbers(0, 5))
    reader = stream(node, topic, kafka__group__id=f"group-{topic}")
    end, _ = take(reader, reader.initialOffset())
    assert offsets_of(node, f"group-{topic}") == {TopicPartition(topic, 0): 0}
    # Spark passes the end of a batch again when it is finished.
    reader.latestOffset(end, EVERYTHING)
    assert offsets_of(node, f"group-{topic}") == {TopicPartition(topic, 0): 5}


def test_the_default_name_of_the_group_contains_the_topics(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    reader = stream(node, topic)
    reader.latestOffset(reader.initialOffset(), EVERYTHING)
    assert offsets_of(node, f"moldau.query.{topic}") == {TopicPartition(topic, 0): 0}


def test_a_query_can_start_at_its_groups_offsets(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    send(node, topic, numbers(0, 5), 0)
    send(node, topic, numbers(5, 10), 1)
    with Admin(node.bootstrap) as admin:
        admin.alter_group_offsets("started", {TopicPartition(topic, 0): 3})
    reader = stream(node, topic, startingOffsets="group", kafka__group__id="started")
    assert take(reader, reader.initialOffset())[1] == numbers(3, 10)


def test_the_progress_of_an_exactly_once_sink_is_left_alone(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    place = TopicPartition(topic, 0)
    marker = write_marker(BatchMarker("query", 3, "digest"))
    send(node, topic, numbers(0, 5))
    group = f"sink-{topic}"
    with Admin(node.bootstrap) as admin:
        admin.alter_group_offsets(group, {place: Committed(2, metadata=marker)})
        reader = stream(node, topic, startingOffsets="group", kafka__group__id=group)
        end, read = take(reader, reader.initialOffset())
        reader.latestOffset(end, EVERYTHING)
        assert read == numbers(2, 5)
        assert committed_by(admin, group)[place].metadata == marker


def test_a_sink_that_begins_later_is_left_alone_too(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    place = TopicPartition(topic, 0)
    marker = write_marker(BatchMarker("query", 0, "digest"))
    group = f"sink-{topic}"
    reader = stream(node, topic, kafka__group__id=group)
    start = reader.initialOffset()
    send(node, topic, numbers(0, 5))
    end, _ = take(reader, start)
    assert offsets_of(node, group) == {place: 0}
    with Admin(node.bootstrap) as admin:
        admin.alter_group_offsets(group, {place: Committed(5, metadata=marker)})
        reader.latestOffset(end, EVERYTHING)
        assert committed_by(admin, group)[place].metadata == marker


def test_partitions_are_added_under_a_running_query(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    reader = stream(node, topic)
    send(node, topic, numbers(0, 2))
    end, _ = take(reader, reader.initialOffset())
    with Admin(node.bootstrap) as admin:
        admin.create_partitions({topic: 3})
    send(node, topic, numbers(2, 4), 1)
    send(node, topic, numbers(4, 6), 2)
    end, read = take(reader, end)
    assert read == numbers(2, 6)
    assert end[topic] == {"0": 2, "1": 2, "2": 2}


def test_a_new_topic_of_a_pattern_is_read_from_its_beginning(node: ThreadBroker) -> None:
    first = fresh_topic(node)
    options = {"subscribePattern": f"{first}.*", "startingOffsets": "latest", "longPollMs": "0"}
    found = source(node, **options)
    reader = found.streamReader(found.schema())
    assert isinstance(reader, StreamReader)
    start = reader.initialOffset()
    node.create_topic(f"{first}-more", 1, {})
    send(node, f"{first}-more", numbers(0, 3))
    assert take(reader, start)[1] == numbers(0, 3)


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_is_deleted_and_recreated(node: ThreadBroker, fails: bool) -> None:
    topic = fresh_topic(node)
    send(node, topic, numbers(0, 5))
    reader = stream(node, topic, failOnDataLoss=str(fails).lower())
    end, _ = take(reader, reader.initialOffset())
    with Admin(node.bootstrap) as admin:
        admin.delete_topics([topic])
    node.create_topic(topic, 1, {})
    send(node, topic, numbers(100, 108))
    if fails:
        with pytest.raises(DataLossError, match="deleted and created again"):
            reader.latestOffset(end, EVERYTHING)
    else:
        # Offsets 0 to 4 of the new topic are other records than those that were read.
        assert take(reader, end)[1] == numbers(100, 108)


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_is_deleted(node: ThreadBroker, fails: bool) -> None:
    kept, gone = fresh_topic(node), fresh_topic(node)
    send(node, kept, numbers(0, 2))
    send(node, gone, numbers(2, 4))
    reader = stream(node, f"{kept},{gone}", failOnDataLoss=str(fails).lower())
    end, _ = take(reader, reader.initialOffset())
    with Admin(node.bootstrap) as admin:
        admin.delete_topics([gone])
    send(node, kept, numbers(4, 6))
    if fails:
        with pytest.raises(DataLossError, match=f"{gone}-0.*it is deleted"):
            reader.latestOffset(end, EVERYTHING)
    else:
        end, read = take(reader, end)
        assert read == numbers(4, 6)
        assert gone not in end


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_loses_its_oldest_records(node: ThreadBroker, fails: bool) -> None:
    topic = fresh_topic(node)
    reader = stream(node, topic, failOnDataLoss=str(fails).lower())
    start = reader.initialOffset()
    send(node, topic, numbers(0, 10))
    with Admin(node.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 6})
    if fails:
        with pytest.raises(DataLossError, match="the log begins at 6 now"):
            take(reader, start)
    else:
        assert take(reader, start)[1] == numbers(6, 10)


def test_a_first_batch_that_an_earlier_run_planned_elsewhere_is_refused(node: ThreadBroker) -> None:
    """The run that recorded the end had started at another latest offset."""
    topic = fresh_topic(node)
    send(node, topic, numbers(0, 9))
    reader = stream(node, topic, startingOffsets="latest")
    with pytest.raises(DataLossError, match="explicit startingOffsets"):
        reader.partitions(reader.initialOffset(), {topic: {"0": 4}})


def test_an_unfinished_first_batch_is_read_from_its_start(node: ThreadBroker) -> None:
    """Spark records the end of the batch, and requests the start from the next run, which would be
    another latest offset.
    """
    topic = fresh_topic(node)
    send(node, topic, numbers(0, 4))
    killed = stream(node, topic, startingOffsets="latest")
    start = killed.initialOffset()
    send(node, topic, numbers(4, 9))
    end = killed.latestOffset(start, EVERYTHING)
    send(node, topic, numbers(9, 12))
    again = stream(node, topic, startingOffsets="latest")
    parts = again.partitions(again.initialOffset(), json.loads(json.dumps(end)))
    assert values(read_parts(again, parts)) == numbers(4, 9)
    assert take(again, end)[1] == numbers(9, 12)


def test_the_start_of_a_query_is_recorded_before_the_first_record(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, numbers(0, 4))
    killed = stream(node, topic, startingOffsets="latest", longPollMs="600000")
    end = after_first(killed)
    send(node, topic, numbers(4, 6))
    again = stream(node, topic, startingOffsets="latest")
    assert again.partitions(again.initialOffset(), end) == []
    middle, read = take(again, end)
    assert read == numbers(4, 6)
    # To Spark a different text is a new position.
    assert again.latestOffset(middle, EVERYTHING) is middle


def test_a_checkpoint_of_sparks_own_source_is_resumed(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, numbers(0, 9))
    reader = stream(node, topic)
    assert take(reader, {topic: {"0": 4}})[1] == numbers(4, 9)


def test_a_running_query_lives_through_a_restart_of_the_broker(tmp_path: Any) -> None:
    from moldau.testing import broker

    with broker(directory=tmp_path) as node:
        assert isinstance(node, ThreadBroker)
        topic = fresh_topic(node)
        send(node, topic, numbers(0, 3))
        reader = stream(node, topic)
        end, _ = take(reader, reader.initialOffset())
        node.restart()
        send(node, topic, numbers(3, 5))
        assert take(reader, end)[1] == numbers(3, 5)


def test_aborted_transactions_are_neither_rows_nor_data_loss(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    reader = stream(node, topic)
    start = after_first(reader)
    with Producer(node.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        producer.flush()
        # Open transactions are beyond the end for readers of committed records.
        assert reader.latestOffset(start, EVERYTHING) == start
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"committed")
    end, read = take(reader, start)
    assert read == [b"committed"]
    assert json.dumps(end[topic]) == '{"0": 4}'
