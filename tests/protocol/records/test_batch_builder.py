"""Other clients read the batches that we build, and we read theirs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.batch_peers import AioBuilder, AioRecords, KafkaPythonBatch, KafkaPythonBuilder
from protocol.batch_strategies import record_lists, simple_records

from moldau.protocol.records.batch_builder import (
    BatchBuilder,
    BatchOptions,
    build_batch,
    empty_batch,
    recompress,
)
from moldau.protocol.records.batches import Record, RecordBatch, patch_append_time
from moldau.protocol.records.compression import Compression
from moldau.types import ProducerEpoch

# kafka-python reads the others only with libraries that this project does not need.
KAFKA_PYTHON_CODECS = [Compression.NONE, Compression.GZIP]


@given(records=record_lists(), codec=st.sampled_from(Compression))
@settings(deadline=None, max_examples=100)
def test_aiokafka_reads_what_we_build(records: list[Record], codec: Compression) -> None:
    raw = build_batch(records, BatchOptions(compression=codec, producer_id=5))
    batch = AioRecords(raw).next_batch()
    assert batch.validate_crc()
    assert (batch.base_offset, batch.producer_id) == (records[0].offset, 5)
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert found == records


@given(records=record_lists(), codec=st.sampled_from(KAFKA_PYTHON_CODECS))
@settings(deadline=None, max_examples=60)
def test_kafka_python_reads_what_we_build(records: list[Record], codec: Compression) -> None:
    batch = KafkaPythonBatch(build_batch(records, BatchOptions(compression=codec)))
    assert batch.validate_crc()
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert found == records


@pytest.mark.parametrize("codec", Compression)
def test_we_read_what_aiokafka_builds(codec: Compression) -> None:
    builder = AioBuilder(
        magic=2, compression_type=int(codec), is_transactional=1, producer_id=3, producer_epoch=2,
        base_sequence=10, batch_size=1 << 20,
    )  # fmt: skip
    records = [
        Record(i, 1000 - i, b"k" * i if i % 3 else None, b"v" * i * 7, (("h", b"x"), ("n", None)))
        for i in range(50)
    ]
    for record in records:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    batch = RecordBatch(bytes(builder.build()))
    batch.check_crc()
    assert batch.compression is codec
    assert (batch.is_transactional, batch.base_sequence, batch.last_offset) == (True, 10, 49)
    assert batch.records() == records


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_we_read_what_kafka_python_builds(codec: Compression) -> None:
    builder = KafkaPythonBuilder(
        magic=2, compression_type=int(codec), is_transactional=False, producer_id=-1,
        producer_epoch=-1, base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    records = [Record(i, 1000 + i, b"k", b"v" * i * 7, (("h", b"x"),)) for i in range(50)]
    for record in records:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    assert RecordBatch(bytes(builder.build())).records() == records


def test_uncompressed_batches_are_the_same_bytes_as_kafka_pythons() -> None:
    builder = KafkaPythonBuilder(
        magic=2, compression_type=0, is_transactional=False, producer_id=7, producer_epoch=1,
        base_sequence=4, batch_size=1 << 20,
    )  # fmt: skip
    records = simple_records(30)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, [])
    # kafka-python leaves the leader epoch at zero.
    options = BatchOptions(
        producer_id=7, producer_epoch=ProducerEpoch(1), base_sequence=4, partition_leader_epoch=0
    )
    assert build_batch(records, options) == bytes(builder.build())


def test_a_builder_numbers_records_itself() -> None:
    builder = BatchBuilder(BatchOptions(base_offset=100))
    builder.append(5, b"a", b"1")
    builder.append(6, None, b"2", [("h", None)])
    builder.append(7, b"c", None, offset=110)
    raw = builder.build()
    assert len(builder) == 3
    assert len(raw) <= builder.size_bytes_max
    assert RecordBatch(raw).records() == [
        Record(100, 5, b"a", b"1"),
        Record(101, 6, None, b"2", (("h", None),)),
        Record(110, 7, b"c", None),
    ]


@given(records=record_lists(max_size=8))
@settings(deadline=None, max_examples=60)
def test_the_size_bound_holds(records: list[Record]) -> None:
    builder = BatchBuilder()
    for record in records:
        builder.append_record(record)
    assert len(builder.build()) <= builder.size_bytes_max


@pytest.mark.parametrize("source", Compression)
@pytest.mark.parametrize("target", Compression)
def test_recompressing_changes_the_codec_and_nothing_else(
    source: Compression, target: Compression
) -> None:
    options = BatchOptions(
        compression=source,
        producer_id=4,
        producer_epoch=ProducerEpoch(1),
        base_sequence=8,
        is_transactional=True,
    )
    original = bytearray(build_batch(simple_records(40), options))
    patch_append_time(original, 0, 42)
    before, after = RecordBatch(original), RecordBatch(recompress(RecordBatch(original), target))
    after.check_crc()
    assert after.compression is target
    assert after.records() == before.records()
    for field in ("base_offset", "last_offset", "producer_id", "base_sequence", "max_timestamp"):
        assert getattr(after, field) == getattr(before, field)
    assert (after.is_transactional, after.timestamp_type) == (True, before.timestamp_type)


def test_an_empty_batch_keeps_the_fields_of_the_producers_state() -> None:
    options = BatchOptions(
        producer_id=4, producer_epoch=ProducerEpoch(1), base_sequence=8, partition_leader_epoch=6,
        compression=Compression.LZ4, is_transactional=True,
    )  # fmt: skip
    original = RecordBatch(build_batch(simple_records(9), options))
    kept = RecordBatch(empty_batch(original))
    kept.check_crc()
    assert kept.size_in_bytes == 61
    assert kept.records() == []
    for field in (
        "base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence",
        "last_sequence", "partition_leader_epoch", "max_timestamp", "is_transactional",
    ):  # fmt: skip
        assert getattr(kept, field) == getattr(original, field)


def test_the_original_last_offset_can_be_kept() -> None:
    raw = build_batch([Record(12, 1, b"k", b"v")], BatchOptions(base_offset=10, last_offset=19))
    batch = RecordBatch(raw)
    assert (batch.base_offset, batch.last_offset) == (10, 19)
    assert [record.offset for record in batch.records()] == [12]


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        build_batch([])
