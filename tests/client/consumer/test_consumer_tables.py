"""Records as Arrow tables, and their use in pandas, Polars and DuckDB."""

import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest
from client.consumed import consumer_of, fresh_name, fresh_topic, produce, read, values
from confluent_kafka import Producer as ConfluentProducer
from crc32c import crc32c

from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.records.batch_builder import build_batch
from moldau.protocol.records.batches import Record
from moldau.protocol.records.compression import Compression
from moldau.testing import ThreadBroker, broker
from moldau.types import TopicPartition

NUMBERS = [b"%d" % number for number in range(300)]


def test_pandas_polars_and_duckdb_take_tables_as_they_are(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, NUMBERS)
    with consumer_of(node) as consumer:
        consumer.subscribe(topic)
        table = consumer.fetch_arrow(30)
    assert table.num_rows == 300

    frame = table.to_pandas()
    assert list(frame["value"]) == NUMBERS
    assert frame["offset"].tolist() == list(range(300))

    polars = pl.from_arrow(table)
    assert isinstance(polars, pl.DataFrame)
    assert polars["key"].to_list() == NUMBERS
    assert polars.group_by("topic").len().rows() == [(topic, 300)]

    found = duckdb.from_arrow(table).aggregate('count(*), max("offset"), min(decode(value))')
    assert found.fetchall() == [(300, 299, "0")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_tables_of_every_codec(node: ThreadBroker, codec: str) -> None:
    topic = fresh_topic(node)
    producer = ConfluentProducer(
        {"bootstrap.servers": node.bootstrap, "compression.type": codec, "linger.ms": 50}
    )
    producer.produce(topic, b"v", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp=12345)
    producer.produce(topic, None)
    producer.flush(30)
    with consumer_of(node) as consumer:
        consumer.assign([(topic, 0)])
        rows = []
        for table in consumer.arrow():
            rows += table.to_pylist()
            if len(rows) == 2:
                break
    first, second = rows
    assert (first["key"], first["value"], first["offset"]) == (b"k", b"v", 0)
    assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert first["timestamp"].timestamp() == 12.345
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


def test_tables_omit_aborted_records(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    settings = {"bootstrap.servers": node.bootstrap, "transactional.id": fresh_name("tx")}
    producer = ConfluentProducer(settings)
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(30)
        producer.commit_transaction(30) if number % 2 else producer.abort_transaction(30)
    with consumer_of(node, isolation_level="read_committed") as consumer:
        consumer.assign([(topic, 0)])
        found: list[bytes] = []
        while consumer.position((topic, 0)) < 8:
            found += consumer.fetch_arrow(30)["value"].to_pylist()
    assert found == [b"1", b"3"]


def test_a_table_continues_where_a_loop_stopped(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, NUMBERS, 0)
    with consumer_of(node) as consumer:
        consumer.subscribe(topic)
        for record in consumer:
            if record.offset == 4:
                break
        assert consumer.fetch_arrow(30)["offset"].to_pylist() == list(range(5, 300))
        assert consumer.position((topic, 0)) == 300
        consumer.seek((topic, 0), 298)
        assert values(read(consumer, 2)) == NUMBERS[298:]


def test_a_table_may_be_bounded(node: ThreadBroker) -> None:
    topic = fresh_topic(node, 2)
    for number in (0, 1):
        produce(node.bootstrap, topic, NUMBERS, number)
    with consumer_of(node) as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        offsets: dict[int, list[int]] = {0: [], 1: []}
        while sum(map(len, offsets.values())) < 600:
            table = consumer.fetch_arrow(30, columns=["partition", "offset"], max_bytes=1)
            (number,) = set(table["partition"].to_pylist())  # One batch is the least that is given.
            offsets[number] += table["offset"].to_pylist()
        assert offsets == {0: list(range(300)), 1: list(range(300))}


def test_highly_compressed_records_come_in_tables_of_bounded_size(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    sent = [bytes([number]) * 500_000 for number in range(40)]
    settings = {"bootstrap.servers": node.bootstrap, "compression.type": "zstd"}
    producer = ConfluentProducer({**settings, "linger.ms": 0, "batch.num.messages": 1})
    for value in sent:
        producer.produce(topic, value)
    producer.flush(30)
    with consumer_of(node) as consumer:
        consumer.assign([(topic, 0)])
        found: list[bytes] = []
        while len(found) < 40:
            before = len(found)
            table = consumer.fetch_arrow(30, columns=["value"], max_bytes=2_000_000)
            found += table["value"].to_pylist()
            assert table.num_rows <= 4
            assert consumer.position((topic, 0)) == len(found)
            if before < 12 < len(found) < 40:
                # Records continue where a table ended in the middle of a fetch.
                found += values(read(consumer, 3))
        assert found == sent


def test_a_batch_that_cannot_be_decoded_raises_until_a_seek_past_it(tmp_path: Path) -> None:
    with broker(directory=tmp_path) as node:
        node.create_topic("t")
        produce(node.bootstrap, "t", [b"before"], 0)
    # No broker accepts such a batch: its checksum is right, but its content is not zstd.
    broken = bytearray(build_batch([Record(0, 0, None, b"lost")]))
    broken[:8] = (1).to_bytes(8, "big")
    broken[22] |= Compression.ZSTD
    broken[17:21] = crc32c(bytes(broken[21:])).to_bytes(4, "big")
    (segment,) = tmp_path.glob("**/t-0/*.log")
    with segment.open("ab") as file:
        file.write(broken)
    with broker(directory=tmp_path) as node:
        assert isinstance(node, ThreadBroker)
        produce(node.bootstrap, "t", [b"after"], 0)
        with consumer_of(node) as consumer:
            consumer.assign([("t", 0)])
            assert consumer.fetch_arrow(30)["value"].to_pylist() == [b"before"]
            for _ in range(2):
                with pytest.raises(KafkaError, match="not zstd"):
                    consumer.fetch_arrow(30)
                assert consumer.position(("t", 0)) == 1
            consumer.seek(("t", 0), 2)
            assert consumer.fetch_arrow(30)["value"].to_pylist() == [b"after"]


def test_tables_are_counted(node: ThreadBroker) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, NUMBERS, 0)
    with consumer_of(node) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.fetch_arrow(30).num_rows == 300
        assert consumer.metrics()["records_consumed"] == 300


def test_without_pyarrow_the_error_says_how_to_install_it(
    node: ThreadBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_topic(node)
    produce(node.bootstrap, topic, [b"a"], 0)
    with consumer_of(node) as consumer:
        consumer.assign([(topic, 0)])
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "pyarrow", None)
            with pytest.raises(MoldauError, match=r"pip install 'moldau\[arrow\]'"):
                consumer.fetch_arrow(30)
        assert consumer.fetch_arrow(30).num_rows == 1
