"""Records of every kind through Spark itself: the sinks write what the source reads, unchanged."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark.rows import fresh_topic, read_batch

from moldau import Producer
from moldau.spark import ExactlyOnceSink
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

PATIENCE_S = 600
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Headers = list[tuple[str, bytes | None]] | None
Record = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, milliseconds."""
RECORDS: list[Record] = [
    (None, b"no key", None, 0),
    (b"no value", None, None, -1),
    (None, None, None, 1),
    (b"", b"", None, -1),
    (b"\x00\xff", bytes(range(256)), [("", None), ("", b"")], 0),
    (b"one", b"huge header", [("h", bytes(range(250)) * 2000)], 1_763_200_000_123),
    (b"many", b"headers", [(f"h{n % 7}", b"%d" % n if n % 3 else None) for n in range(1000)], 0),
    (None, b"\xf0\x9f\x92\xa7 text", [("\u010de\u0161tina", b"x")], -1),
]


def send_records(node: ThreadBroker, topic: str) -> None:
    keys, values, headers, times = zip(*RECORDS, strict=True)
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    named = [
        pairs and [dict(zip(("key", "value"), one, strict=True)) for one in pairs]
        for pairs in headers
    ]
    table = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(named, pa.list_(pair)),
        "timestamp": pa.array(times, pa.int64()),
    }
    with Producer(node.bootstrap) as producer:
        producer.send_table(topic, pa.table(table))


def key_value_and_headers(row: dict[str, Any]) -> tuple[Any, ...]:
    headers = row["headers"]
    pairs = headers and [(one["key"], _bytes(one["value"])) for one in headers]
    return _bytes(row["key"]), _bytes(row["value"]), pairs


def _bytes(content: Any) -> bytes | None:
    return None if content is None else bytes(content)


def test_records_are_copied_unchanged(session: Any, node: ThreadBroker, tmp_path: Path) -> None:
    # Their timestamps are in 1970.
    topic = fresh_topic(node, retention_ms="-1")
    plain, exact = fresh_topic(node), fresh_topic(node)
    send_records(node, topic)
    servers = {"kafka.bootstrap.servers": node.bootstrap}
    known = servers | {"subscribe": topic, "includeHeaders": "true"}

    rows = session.read.format("moldau").options(**known).load()
    collected = [row.asDict(recursive=True) for row in rows.orderBy("offset").collect()]
    assert [key_value_and_headers(row) for row in collected] == [record[:3] for record in RECORDS]
    # Spark's Python represents timestamps as local time without a zone.
    found = [row["timestamp"].astimezone(UTC) for row in collected]
    assert found == [EPOCH + timedelta(milliseconds=record[3]) for record in RECORDS]

    rows.write.format("moldau").options(**servers, topic=plain).mode("append").save()
    checkpoint = str(tmp_path / "checkpoint")
    sink = ExactlyOnceSink(f"again-{exact}", checkpoint, servers | {"topic": exact})
    query = (
        session.readStream.format("moldau")
        .options(**known, startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    for target in (plain, exact):
        written = read_batch(node, subscribe=target, includeHeaders="true")
        assert [key_value_and_headers(row) for row in written] == [
            record[:3] for record in RECORDS
        ], target
