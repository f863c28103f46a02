"""Every record in segments that Apache Kafka 4.3.1 wrote equals the one that clients read
from it.
"""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from protocol.batch_strategies import compiled

from moldau.protocol.records import _records_twin
from moldau.protocol.records.batch_builder import BatchOptions, build_batch, recompress
from moldau.protocol.records.batches import Record, RecordBatch, TimestampType, iterate_batches
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import ControlType, marker_of

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
EXPECTED: dict[str, Any] = json.loads((SAMPLES / "expected.json").read_text("utf-8"))["topics"]


def segments(archive: str) -> dict[str, list[bytes]]:
    """Partition directory to the content of its segments, in order."""
    found: dict[str, list[bytes]] = {}
    with tarfile.open(SAMPLES / archive) as tar:
        for member in sorted(tar.getmembers(), key=lambda member: member.name):
            path = Path(member.name)
            if path.suffix == ".log" and not path.parent.name.endswith("-delete"):
                stream = tar.extractfile(member)
                assert stream is not None
                found.setdefault(path.parent.name, []).append(stream.read())
    return found


CLEAN = segments("apache-4.3.1-clean.tar.gz")
DIRTY = segments("apache-4.3.1-dirty.tar.gz")
PARTITIONS = [
    (topic, partition) for topic, facts in EXPECTED.items() for partition in facts["partitions"]
]


def as_expected(record: Record) -> list[Any]:
    value = record.value
    return [
        record.offset,
        record.timestamp,
        None if record.key is None else record.key.decode(),
        None if value is None else hashlib.sha256(value).hexdigest()[:16],
        None if value is None else len(value),
        [[name, None if content is None else content.decode()] for name, content in record.headers],
    ]


def batches_of(content: list[bytes]) -> list[RecordBatch]:
    return [batch for segment in content for batch in iterate_batches(segment)]


@pytest.mark.parametrize(("topic", "partition"), PARTITIONS)
def test_every_record_equals_the_one_that_apaches_clients_read(topic: str, partition: str) -> None:
    facts = EXPECTED[topic]["partitions"][partition]
    batches = batches_of(CLEAN[f"{topic}-{partition}"])
    for batch in batches:
        batch.check_crc()
    found = [
        as_expected(record)
        for batch in batches
        if not batch.is_control
        for record in batch.records()
        if facts["log_start"] <= record.offset < facts["high_watermark"]
    ]
    assert found == facts["read_uncommitted"]


def test_the_samples_contain_all_codecs_and_kinds_of_batches() -> None:
    batches = [batch for content in CLEAN.values() for batch in batches_of(content)]
    assert {batch.compression for batch in batches} == set(Compression)
    assert {batch.timestamp_type for batch in batches} == set(TimestampType)
    markers = {marker.control_type for batch in batches if (marker := marker_of(batch))}
    assert markers == {ControlType.ABORT, ControlType.COMMIT}


def test_a_scan_accepts_every_segment_and_both_loops_agree() -> None:
    for content in [*CLEAN.values(), *DIRTY.values()]:
        for segment in content:
            found = compiled.scan_batches(segment, 0, len(segment), True)
            assert found == _records_twin.scan_batches(segment, 0, len(segment), True)
            headers, end, problem = found
            assert (end, problem) == (len(segment), None)
            assert len(headers) == len(list(iterate_batches(segment)))


def _options(batch: RecordBatch) -> BatchOptions:
    stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    return BatchOptions(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        partition_leader_epoch=batch.partition_leader_epoch,
        append_time_ms=batch.max_timestamp if stamped else None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=batch.delete_horizon_ms,
    )


def test_building_apaches_uncompressed_batches_again_gives_the_same_bytes() -> None:
    rebuilt = 0
    for content in CLEAN.values():
        for batch in batches_of(content):
            stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
            # Append time hides the records' own deltas, so such batches cannot be rebuilt.
            if batch.is_compressed or stamped or not batch.record_count:
                continue
            assert build_batch(batch.records(), _options(batch)) == bytes(batch.view)
            rebuilt += 1
    assert rebuilt > 100


def test_recompressed_apache_batches_hold_the_same_records() -> None:
    for batch in batches_of(CLEAN["codecs-0"]):
        for codec in Compression:
            assert RecordBatch(recompress(batch, codec)).records() == batch.records()
