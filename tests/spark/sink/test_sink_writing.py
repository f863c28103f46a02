"""The sink against a real broker, called as Spark calls it, without a JVM."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from spark.rows import fresh_topic, read_batch, schema, source, values

from moldau import Producer
from moldau.core.spark.errors import OptionError
from moldau.spark.source.schema import HEADERS, source_schema
from moldau.testing import ThreadBroker

KEY_VALUE = schema("key string, value string")


def write(node: ThreadBroker, kind: StructType, *batches: dict[str, Any], **options: str) -> Any:
    found = source(node, **options).writer(kind, False)

    def rows() -> Iterator[Any]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict(batch)

    return found.write(rows())


def test_rows_go_to_the_topic_of_the_option(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 3)
    keys = [f"k{number}" for number in range(100)]
    done = write(node, KEY_VALUE, {"key": keys, "value": keys}, topic=topic)
    rows = read_batch(node, subscribe=topic)
    assert done.rows == 100
    assert sorted(values(rows)) == sorted(key.encode() for key in keys)
    # Where every other client puts these keys, too.
    with Producer(node.bootstrap) as producer:
        mirror = fresh_topic(node, 3)
        for key in keys:
            producer.send(mirror, key.encode(), key=key.encode())
    placed = {row["value"]: row["partition"] for row in read_batch(node, subscribe=mirror)}
    assert {row["value"]: row["partition"] for row in rows} == placed


def test_rows_go_to_the_topics_and_partitions_of_their_columns(node: ThreadBroker) -> None:
    first, second = fresh_topic(node, 2), fresh_topic(node, 2)
    kind = schema("topic string, partition int, value binary")
    rows = {
        "topic": [first, second, first],
        "partition": pa.array([1, 0, 1], pa.int32()),
        "value": [b"a", b"b", b"c"],
    }
    write(node, kind, rows)
    found = read_batch(node, subscribe=f"{first},{second}")
    places = {(row["topic"], row["partition"], row["value"]) for row in found}
    assert places == {(first, 1, b"a"), (first, 1, b"c"), (second, 0, b"b")}


def test_a_row_without_a_partition_goes_where_its_key_says(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 4)
    kind = schema("partition int, key binary, value binary")
    empty = pa.array([None] * 20, pa.int32())
    keys = [b"same"] * 20
    write(node, kind, {"partition": empty, "key": keys, "value": keys}, topic=topic)
    assert len({row["partition"] for row in read_batch(node, subscribe=topic)}) == 1


def test_headers_nulls_and_columns_of_the_source_that_are_left_out(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    kind = source_schema(has_headers=True)
    headers = [[{"key": "h", "value": b"x"}, {"key": "h", "value": None}], None]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([None, b"k"], pa.binary()),
            pa.array([b"v", None], pa.binary()),
            pa.array([77, 78], pa.int64()),
            pa.array(headers, HEADERS_IN_ARROW),
        ],
        names=["key", "value", "offset", "headers"],
    )
    found = source(node, topic=topic).writer(kind, False)
    found.write(iter([batch]))
    rows = read_batch(node, subscribe=topic, includeHeaders="true")
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [
        (None, b"v", headers[0]),
        (b"k", None, None),
    ]
    assert HEADERS.simpleString() == "array<struct<key:string,value:binary>>"


HEADERS_IN_ARROW = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_no_rows(node: ThreadBroker) -> None:
    assert write(node, KEY_VALUE, topic=fresh_topic(node)).rows == 0


@pytest.mark.parametrize(
    ("ddl", "options", "message"),
    [
        ("key string", {"topic": "t"}, "no column named value"),
        ("value string", {}, "no topic; set the option topic"),
        ("value int", {"topic": "t"}, "column value is int; cast it to string or binary"),
        ("value string, partition bigint", {"topic": "t"}, "cast it to int"),
        ("value string", {"topic": "t", "kafka__ack": "1"}, "did you mean acks"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_before_the_job(
    node: ThreadBroker, ddl: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError) as caught:
        source(node, **options).writer(schema(ddl), False)
    assert message in str(caught.value)


def test_a_topic_is_not_overwritten(node: ThreadBroker) -> None:
    with pytest.raises(OptionError, match="append"):
        source(node, topic="t").writer(KEY_VALUE, True)


def test_a_row_without_a_topic_is_refused(node: ThreadBroker) -> None:
    kind = schema("topic string, value string")
    with pytest.raises(OptionError, match="a row has no topic"):
        write(node, kind, {"topic": pa.array([None], pa.string()), "value": ["v"]})


def test_errors_of_the_broker_fail_the_task(node: ThreadBroker) -> None:
    topic = fresh_topic(node, max_message_bytes="1000")
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        write(node, KEY_VALUE, {"key": ["k"], "value": ["x" * 5000]}, topic=topic)


def test_a_second_task_uses_the_same_connections(node: ThreadBroker) -> None:
    from moldau.spark.sink.writer import producer_for

    settings = {"bootstrap.servers": node.bootstrap}
    assert producer_for(settings) is producer_for(settings)
