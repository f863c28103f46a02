"""Unusual records and brokers, read and written without a JVM."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from spark.rows import fresh_topic, read_batch, schema, send, source, values

from moldau import Admin, Producer
from moldau.core.spark.errors import DataLossError, OptionError
from moldau.protocol.errors import MoldauError
from moldau.spark.source.range_reader import FETCH_BYTES, PIECE_BYTES
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition

LARGE_BYTES = 24 << 20
EVERYTHING = ReadAllAvailable()


def write(node: ThreadBroker, values: list[bytes], **options: str) -> None:
    writer = source(node, **options).writer(schema("value binary"), False)
    writer.write(iter([pa.RecordBatch.from_pydict({"value": values})]))


def read_stream(node: ThreadBroker, topic: str, **options: str) -> list[bytes]:
    """The first batch of a query."""
    known = {"subscribe": topic, "startingOffsets": "earliest"}
    found = source(node, **(known | options))
    reader: Any = found.streamReader(found.schema())
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, EVERYTHING))
    return [value for part in parts for batch in reader.read(part) for value in batch["value"]]


def test_a_record_larger_than_a_fetch_is_written_and_read(node: ThreadBroker) -> None:
    topic = fresh_topic(node, max_message_bytes=str(2 * LARGE_BYTES))
    large = bytes(range(256)) * (LARGE_BYTES // 256)
    assert len(large) > FETCH_BYTES
    settings = {"kafka__max__request__size": str(2 * LARGE_BYTES)}
    write(node, [b"before", large, b"after"], topic=topic, **settings)
    assert values(read_batch(node, subscribe=topic)) == [b"before", large, b"after"]


def test_highly_compressed_records_are_read_in_bounded_pieces(node: ThreadBroker) -> None:
    """A single response of the broker may decompress to gigabytes."""
    topic = fresh_topic(node)
    count, size_bytes = 150, 900_000
    write(node, [bytes(size_bytes)] * count, topic=topic, kafka__compression__type="zstd")
    found = source(node, subscribe=topic)
    reader = found.reader(schema("value binary"))
    (part,) = reader.partitions()
    sizes = [batch.nbytes for batch in reader.read(part)]
    assert sum(sizes) > count * size_bytes > 3 * PIECE_BYTES
    assert max(sizes) <= 2 * PIECE_BYTES


def test_headers_of_every_kind(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    many = [(f"h{number % 10}", b"%d" % number) for number in range(3000)]
    huge = [("large", b"x" * 700_000), ("", b""), ("none", None), ("none", None)]
    with Producer(node.bootstrap) as producer:
        for headers in (many, huge, []):
            producer.send(topic, b"v", headers=headers)
    rows = read_batch(node, subscribe=topic, includeHeaders="true")
    found = [
        row["headers"] and [(one["key"], one["value"]) for one in row["headers"]] for row in rows
    ]
    assert found == [many, huge, None]


def test_empty_is_not_null(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    pairs = [(None, None), (b"", b""), (None, b""), (b"", None)]
    writer = source(node, topic=topic).writer(schema("key binary, value binary"), False)
    keys, contents = zip(*pairs, strict=True)
    table = {"key": pa.array(keys, pa.binary()), "value": pa.array(contents, pa.binary())}
    writer.write(iter([pa.RecordBatch.from_pydict(table)]))
    assert [(row["key"], row["value"]) for row in read_batch(node, subscribe=topic)] == pairs


def test_a_log_that_ends_with_markers_is_read_to_its_end(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    with Producer(node.bootstrap, transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"committed")
        for _ in range(3):
            producer.begin_transaction()
            producer.send(topic, b"aborted")
            producer.flush()
            producer.abort_transaction()
    assert values(read_batch(node, subscribe=topic)) == [b"committed"]
    assert [one.as_py() for one in read_stream(node, topic)] == [b"committed"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("fails", [True, False])
def test_a_group_whose_offset_is_beyond_a_recreated_topic(node: ThreadBroker, fails: bool) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"new"] * 3)
    with Admin(node.bootstrap) as admin:
        admin.alter_group_offsets(f"g-{topic}", {TopicPartition(topic, 0): 100})
    options = {"startingOffsets": "group", "kafka__group__id": f"g-{topic}"}
    if fails:
        with pytest.raises(DataLossError, match="the log ends at 3 now"):
            read_stream(node, topic, **options)
    else:
        assert read_stream(node, topic, failOnDataLoss="false", **options) == []


def test_a_group_whose_offset_was_deleted(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"%d" % number for number in range(9)])
    with Admin(node.bootstrap) as admin:
        admin.alter_group_offsets(f"g-{topic}", {TopicPartition(topic, 0): 2})
        admin.delete_records({TopicPartition(topic, 0): 5})
    options = {"startingOffsets": "group", "kafka__group__id": f"g-{topic}"}
    with pytest.raises(DataLossError, match="the log begins at 5 now"):
        read_stream(node, topic, **options)
    assert len(read_stream(node, topic, failOnDataLoss="false", **options)) == 4


def test_the_command_line_shows_the_position_of_a_query(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"a", b"b", b"c"])
    found = source(node, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    reader: Any = found.streamReader(found.schema())
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    reader.latestOffset(end, reader.getDefaultReadLimit())
    words = ["groups", "describe", f"moldau.query.{topic}", "--bootstrap", node.bootstrap]
    moldau = Path(sys.executable).with_name("moldau")
    shown = subprocess.run(
        [moldau, *words, "--json"], capture_output=True, text=True, check=False, timeout=300
    )
    assert shown.returncode == 0, shown.stderr
    assert topic in shown.stdout
    assert '"lag": 1' in shown.stdout or '"lag":1' in shown.stdout, shown.stdout


def test_a_missing_permission_is_an_error_of_one_line(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"a"])
    node.fail_next("ListOffsets", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(MoldauError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        read_batch(node, subscribe=topic)
    assert "\n" not in str(caught.value)
    node.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(MoldauError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        write(node, [b"a"], topic=topic)
    assert "\n" not in str(caught.value)


def test_a_query_continues_where_it_may_not_publish_its_position(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    send(node, topic, [b"a"])
    node.fail_next("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", times=100)
    assert len(read_stream(node, topic)) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"security__protocol": "SSL", "ssl__truststore__location": "/no/such.pem"},
            "/no/such.pem",
        ),
        ({"security__protocol": "SASL_PLAINTEXT", "sasl__mechanism": "PLAIN"}, "sasl.username"),
        ({"security__protocol": "TLS"}, "security.protocol"),
    ],
)
def test_wrong_security_settings_are_an_error_of_one_line(
    node: ThreadBroker, settings: dict[str, str], message: str
) -> None:
    given = {f"kafka__{name}": value for name, value in settings.items()}
    with pytest.raises(MoldauError) as caught:
        read_batch(node, subscribe="any", **given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tls_to_a_plaintext_broker_is_an_error_of_one_line_within_a_timeout(
    node: ThreadBroker,
) -> None:
    given = {"kafka__security__protocol": "SSL", "kafka__default__api__timeout__ms": "1500"}
    with pytest.raises(MoldauError) as caught:
        read_batch(node, subscribe="any", **given)
    assert node.bootstrap in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_spark_the_error_names_the_package_to_install() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "try:\n    from moldau.spark import ExactlyOnceSink\n"
        "except ImportError as error:\n    print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "Spark jobs need pyspark; install it with pip install 'moldau[spark]'\n"


def test_the_error_explains_why_a_table_has_no_options(node: ThreadBroker) -> None:
    found = type(source(node))({})
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW"):
        found.reader(found.schema())
