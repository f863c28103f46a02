"""Micro-batches of a hundred megabytes through Spark: nothing is lost, and readers and writers hold
only a piece of them at a time.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark.process_memory import peaks_of_python, reset_peaks
from spark.rows import fresh_topic, source

from moldau import Producer
from moldau.spark import ExactlyOnceSink
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

PATIENCE_S = 600
LARGE, LARGE_BYTES = 80, 1_000_000
SMALL, SMALL_BYTES = 500_000, 120
MIB = 1 << 20
BATCH_BYTES_MIN = 120 * MIB
PIECES = "spark.sql.execution.arrow.maxBytesPerBatch"


@pytest.fixture(scope="module")
def backlog(running_broker: ThreadBroker) -> str:
    """Few large records and many small ones in one partition, so that one task reads them all."""
    topic = fresh_topic(running_broker)
    with Producer(running_broker.bootstrap) as producer:
        for number in range(LARGE):
            producer.send(topic, large_value(number), key=b"large")
        numbers = [b"%0120d" % number for number in range(SMALL)]
        producer.send_table(topic, pa.table({"value": numbers}))
    return topic


def large_value(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest() * (LARGE_BYTES // 32)


def digest_of(node: ThreadBroker, topic: str) -> tuple[int, int, str]:
    """Rows, bytes, and a digest of all values in any order."""
    found = source(node, subscribe=topic)
    reader: Any = found.reader(found.schema())
    digests = []
    size_bytes = 0
    for part in reader.partitions():
        for batch in reader.read(part):
            for value in batch["value"]:
                content = value.as_py()
                size_bytes += len(content)
                digests.append(hashlib.md5(content).digest())
    return len(digests), size_bytes, hashlib.md5(b"".join(sorted(digests))).hexdigest()


def stream(session: Any, node: ThreadBroker, topic: str) -> Any:
    return (
        session.readStream.format("moldau")
        .option("kafka.bootstrap.servers", node.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
    )


@pytest.fixture
def small_pieces(session: Any) -> Iterator[None]:
    """Reduces the size of Spark's batches for Python, 64 MiB by default, of which a task holds a
    few.
    """
    session.conf.set(PIECES, str(8 << 20))
    yield
    session.conf.unset(PIECES)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("sink", ["plain", "exactly_once"])
def test_a_large_batch_arrives_in_bounded_memory(
    session: Any, node: ThreadBroker, backlog: str, tmp_path: Path, sink: str
) -> None:
    target = fresh_topic(node, 2)
    options = {"kafka.bootstrap.servers": node.bootstrap, "topic": target}
    checkpoint = str(tmp_path / "checkpoint")
    writer = stream(session, node, backlog).writeStream
    if sink == "plain":
        writer = writer.format("moldau").options(**options)
    else:
        writer = writer.foreachBatch(ExactlyOnceSink(f"large-{target}", checkpoint, options))
    reset_peaks(session)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    peaks = peaks_of_python(session)
    assert [one.numInputRows for one in query.recentProgress if one.numInputRows] == [LARGE + SMALL]
    wanted = digest_of(node, backlog)
    assert wanted[1] > BATCH_BYTES_MIN
    assert digest_of(node, target) == wanted
    # Some 250 MiB for any size of the batch; all of it and a copy would be more.
    assert max(peaks) < 80 * MIB + 2 * BATCH_BYTES_MIN, [one >> 20 for one in peaks]


def test_a_row_at_the_limit_and_one_beyond_it(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    """The broker's limit is reported in one line, which names the topic."""
    from pyspark.errors import PySparkException

    limit = 3_000_000
    source, target = fresh_topic(node), fresh_topic(node, max_message_bytes=str(limit))
    servers = {"kafka.bootstrap.servers": node.bootstrap}
    options = servers | {"topic": target, "kafka.max.request.size": str(2 * limit)}
    # A batch and its record have a few dozen bytes besides the value.
    fits = session.range(1).selectExpr(f"repeat('x', {limit - 100}) value")
    fits.write.format("moldau").options(**options).mode("append").save()
    read = session.read.format("moldau").options(**servers, subscribe=target).load()
    assert read.selectExpr("octet_length(value) n").first()["n"] == limit - 100
    too_large = session.range(1).selectExpr(f"repeat('x', {limit}) value")
    with pytest.raises(PySparkException, match="MESSAGE_TOO_LARGE") as caught:
        too_large.write.format("moldau").options(**options).mode("append").save()
    lines = [line for line in str(caught.value).splitlines() if "MESSAGE_TOO_LARGE" in line]
    assert any(target in line for line in lines), lines
    with pytest.raises(PySparkException, match=r"max\.request\.size"):
        too_large.write.format("moldau").options(**servers, topic=target).mode("append").save()
    with Producer(node.bootstrap) as producer:
        producer.send(source, b"x")
    checkpoint = str(tmp_path / "checkpoint")
    query = (
        stream(session, node, source)
        .selectExpr(f"repeat(cast(value as string), {limit}) value")
        .writeStream.foreachBatch(ExactlyOnceSink(f"large-{target}", checkpoint, options))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="MESSAGE_TOO_LARGE"):
        query.awaitTermination(PATIENCE_S)
    assert read.count() == 1
