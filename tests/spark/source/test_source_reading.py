"""The batch source against a real broker, called as Spark calls it, without a JVM."""

import json
import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThanOrEqual, In, LessThan
from pyspark.sql.pandas.types import to_arrow_schema
from spark.rows import (
    fresh_topic,
    read_batch,
    read_parts,
    schema,
    send,
    send_numbers,
    source,
    values,
)

from moldau import Admin, Producer
from moldau.client.errors import UnknownTopicError
from moldau.core.spark.errors import DataLossError, OptionError
from moldau.protocol.errors import MoldauError
from moldau.spark.source.range_reader import ROWS_PER_BATCH
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition
from pyspark_moldau import DefaultSource


def test_all_records_with_sparks_columns(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 3)
    send_numbers(node, topic, 500)
    rows = read_batch(node, subscribe=topic)
    assert sorted(int(value) for value in values(rows)) == list(range(500))
    assert list(rows[0]) == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    assert {row["partition"] for row in rows} == {0, 1, 2}


@pytest.mark.parametrize("has_headers", ["true", "false"])
def test_the_arrow_schema_is_the_one_that_spark_demands(
    node: ThreadBroker, has_headers: str
) -> None:
    topic = fresh_topic(node)
    with Producer(node.bootstrap) as producer:
        producer.send(topic, b"v", headers=[("h", b"x"), ("h", None)])
        producer.send(topic, None, key=None)
    found = source(node, subscribe=topic, includeHeaders=has_headers)
    reader = found.reader(found.schema())
    (partition,) = reader.partitions()
    (batch,) = reader.read(partition)
    assert batch.schema.equals(to_arrow_schema(found.schema(), timezone="UTC"))
    if has_headers == "true":
        both = [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
        assert batch.column("headers").to_pylist() == [both, None]


def test_only_the_columns_of_a_users_schema_are_read(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"a", b"b"])
    rows = read_batch(node, "offset bigint, value binary", subscribe=topic)
    assert rows == [{"offset": 0, "value": b"a"}, {"offset": 1, "value": b"b"}]


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("vlaue binary", "did you mean value"),
        ("value string", "column value is binary, not string; cast it later"),
        ("offset int", "column offset is bigint, not int"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(node: ThreadBroker, ddl: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        source(node, subscribe="any").reader(schema(ddl))
    assert message in str(caught.value)


def test_ranges_by_offset(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    send(node, topic, [b"%d" % number for number in range(10)], partition=0)
    send(node, topic, [b"x"], partition=1)
    rows = read_batch(
        node,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": 7, "1": -1}}),
    )
    assert values(rows) == [b"3", b"4", b"5", b"6", b"x"]


def test_ranges_by_time(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with Producer(node.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp=1000 + number)
    rows = read_batch(node, subscribe=topic, startingTimestamp="1003", endingTimestamp="1006")
    assert values(rows) == [b"3", b"4", b"5"]
    times = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 1008}})}
    assert values(read_batch(node, subscribe=topic, **times)) == [b"8", b"9"]
    with pytest.raises(OptionError, match="has no record at 2000 or later"):
        read_batch(node, subscribe=topic, startingTimestamp="2000")
    lenient = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": "2000"}
    assert read_batch(node, subscribe=topic, **lenient) == []


def test_patterns_and_assignments(node: ThreadBroker) -> None:
    first, second = fresh_topic(node), fresh_topic(node, 2)
    send(node, first, [b"a"])
    send(node, second, [b"b"], partition=0)
    send(node, second, [b"c"], partition=1)
    both = read_batch(node, subscribePattern=f"{first}|{second}")
    assert sorted(values(both)) == [b"a", b"b", b"c"]
    assert values(read_batch(node, assign=json.dumps({second: [1]}))) == [b"c"]
    with pytest.raises(MoldauError, match=f"{second}-7, which does not exist"):
        read_batch(node, assign=json.dumps({second: [7]}))


def test_a_missing_topic_is_named(node: ThreadBroker) -> None:
    with pytest.raises(UnknownTopicError, match="'no-such-topic' does not exist"):
        read_batch(node, subscribe="no-such-topic")


def test_more_tasks_than_partitions_read_the_same(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    send_numbers(node, topic, 1000)
    found = source(node, subscribe=topic, minPartitions="9")
    reader = found.reader(found.schema())
    parts = reader.partitions()
    assert len(parts) >= 9
    read = values(read_parts(reader, parts))
    assert sorted(map(int, read)) == list(range(1000))


def test_an_empty_topic_has_one_empty_task(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    found = source(node, subscribe=topic)
    reader = found.reader(found.schema())
    (partition,) = reader.partitions()
    assert list(reader.read(partition)) == []


def test_partitions_can_be_pickled(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"a"])
    found = source(node, subscribe=topic)
    reader = pickle.loads(pickle.dumps(found.reader(found.schema())))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    assert values(read_parts(reader, parts)) == [b"a"]


def test_batches_have_the_size_that_spark_processes_fastest(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send_numbers(node, topic, 2 * ROWS_PER_BATCH + 5)
    found = source(node, subscribe=topic)
    reader = found.reader(found.schema())
    (partition,) = reader.partitions()
    sizes = [batch.num_rows for batch in reader.read(partition)]
    assert sum(sizes) == 2 * ROWS_PER_BATCH + 5
    assert max(sizes) <= ROWS_PER_BATCH


def test_only_committed_records_are_read_by_default(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with Producer(node.bootstrap, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"committed")
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        producer.flush()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"open")
        producer.flush()
        assert values(read_batch(node, subscribe=topic)) == [b"committed"]
        loose = {"kafka__isolation__level": "read_uncommitted"}
        everything = values(read_batch(node, subscribe=topic, **loose))
        assert everything == [b"committed", b"aborted", b"open"]


def test_compacted_records_are_not_data_loss(node: ThreadBroker) -> None:
    """Also if the range ends in a gap: a marker is not a row."""
    topic = fresh_topic(node)
    with Producer(node.bootstrap, transactional_id=topic) as producer:
        for number in range(3):
            with producer.transaction():
                producer.send(topic, b"%d" % number)
    # Offsets 1, 3 and 5 are markers.
    ending = json.dumps({topic: {"0": 4}})
    assert values(read_batch(node, subscribe=topic, endingOffsets=ending)) == [b"0", b"1"]


@pytest.mark.parametrize("fails", [True, False])
def test_records_deleted_at_the_start_of_the_log(node: ThreadBroker, fails: bool) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"%d" % number for number in range(10)])
    found = source(
        node,
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 0}}),
        failOnDataLoss=str(fails).lower(),
    )
    reader = found.reader(found.schema())
    parts = reader.partitions()
    with Admin(node.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 4})
    if fails:
        with pytest.raises(DataLossError, match="the log begins at 4 now"):
            read_parts(reader, parts)
    else:
        assert values(read_parts(reader, parts)) == [b"%d" % number for number in range(4, 10)]


@pytest.mark.parametrize("fails", [True, False])
def test_an_end_offset_that_does_not_exist_is_an_error_after_a_timeout(
    node: ThreadBroker, fails: bool
) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"a", b"b"])
    options = {
        "endingOffsets": json.dumps({topic: {"0": 9}}),
        "failOnDataLoss": str(fails).lower(),
        # Also the time for a response, on a busy machine.
        "kafka__default__api__timeout__ms": "4000",
        "kafka__fetch__max__wait__ms": "50",
    }
    if fails:
        with pytest.raises(DataLossError, match="only records before 2 are committed"):
            read_batch(node, subscribe=topic, **options)
    else:
        assert values(read_batch(node, subscribe=topic, **options)) == [b"a", b"b"]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_recreated_between_planning_and_reading(node: ThreadBroker, fails: bool) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"old"] * 5)
    found = source(node, subscribe=topic, failOnDataLoss=str(fails).lower())
    reader = found.reader(found.schema())
    parts = reader.partitions()
    with Admin(node.bootstrap) as admin:
        admin.delete_topics([topic])
    node.create_topic(topic, 1, {})
    send(node, topic, [b"new"] * 9)
    if fails:
        with pytest.raises(DataLossError, match="created again"):
            read_parts(reader, parts)
    else:
        assert read_parts(reader, parts) == []


def test_filters_skip_partitions_and_offsets(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 3)
    for partition in range(3):
        send(node, topic, [b"%d" % number for number in range(50)], partition)
    found = source(node, subscribe=topic, pushFilters="true")
    reader = found.reader(found.schema())
    filters = [
        In(("partition",), (1, 2)),
        EqualTo(("partition",), 1),
        GreaterThanOrEqual(("offset",), 10),
        LessThan(("offset",), 13),
    ]
    # Spark applies the filter to all rows again.
    assert list(reader.pushFilters(filters)) == filters
    (part,) = reader.partitions()
    assert values(read_parts(reader, [part])) == [b"10", b"11", b"12"]


def test_a_filter_on_time_moves_the_start(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with Producer(node.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp=1_000_000 + number)
    found = source(node, subscribe=topic, pushFilters="true")
    reader = found.reader(found.schema())
    moment = datetime.fromtimestamp(1000.007, tz=UTC)
    list(reader.pushFilters([GreaterThanOrEqual(("timestamp",), moment)]))
    assert values(read_parts(reader, reader.partitions())) == [b"7", b"8", b"9"]


def test_without_the_option_filters_are_not_pushed_down(node: ThreadBroker) -> None:
    found = source(node, subscribe="any")
    reader = found.reader(found.schema())
    assert type(reader).pushFilters is DataSourceReader.pushFilters


def test_a_wrong_client_setting_is_refused_before_any_request(node: ThreadBroker) -> None:
    wrong = source(node, subscribe="any", kafka__fetch__max__byte="1")
    with pytest.raises(OptionError, match=r"kafka\.fetch\.max\.byte: unknown setting; did you"):
        wrong.reader(wrong.schema())


def test_an_unreachable_broker_is_an_error_of_one_line() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    found = DefaultSource(given)
    with pytest.raises(MoldauError, match=r"cannot reach 127\.0\.0\.1:1") as caught:
        found.reader(found.schema()).partitions()
    assert "\n" not in str(caught.value)


def test_large_and_missing_values(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    large = b"x" * 800_000
    table = pa.table({"value": pa.array([None, large, b""] * 20, pa.binary())})
    with Producer(node.bootstrap) as producer:
        producer.send_table(topic, table)
    assert values(read_batch(node, subscribe=topic)) == [None, large, b""] * 20
