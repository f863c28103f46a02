"""Record batches: Apache Kafka reads ours, and we read Apache's, field by field."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interop.apache import ApacheOracle
from interop.dump import content_faults, dump

from moldau.protocol.log_records.kraft_version_record import KRaftVersionRecord
from moldau.protocol.log_records.leader_change_message import LeaderChangeMessage, Voter
from moldau.protocol.log_records.snapshot_footer_record import SnapshotFooterRecord
from moldau.protocol.log_records.snapshot_header_record import SnapshotHeaderRecord
from moldau.protocol.log_records.voters_record import VotersRecord
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch, TimestampType
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    OffsetAndEpoch,
    control_batch,
    end_transaction_marker,
)
from moldau.protocol.wire.codec import encode
from moldau.types import LeaderEpoch, Offset, ProducerEpoch

pytestmark = pytest.mark.interop
NOW_MS = 1_700_000_000_000
INT64_MAX = 2**63 - 1
EXAMPLES = 60
each_codec = pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: str(codec.name))

SHORT = st.binary(max_size=40)
LONG = st.binary(min_size=1, max_size=3).map(lambda part: part * 400)
VALUES = st.none() | SHORT | LONG
TIMESTAMPS = st.just(-1) | st.integers(0, INT64_MAX)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
HEADERS = st.lists(st.tuples(TEXT, st.none() | SHORT), max_size=2).map(tuple)
PLAIN_RECORDS = st.lists(
    st.tuples(
        st.integers(1, 1000), TIMESTAMPS, st.none() | SHORT, st.none() | SHORT | LONG, HEADERS
    ),
    min_size=1,
    max_size=8,
)
PRODUCERS = st.just((-1, -1, -1)) | st.tuples(
    st.integers(0, INT64_MAX), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Record], BatchOptions]:
    """Records with growing offsets, including gaps, and the possible options of a header."""
    base_offset = draw(st.integers(0, 2**40))
    records = []
    offset = base_offset
    for gap, timestamp, key, value, headers in draw(PLAIN_RECORDS):
        records.append(Record(offset, timestamp, key, value, headers))
        offset += gap
    producer_id, producer_epoch, base_sequence = draw(PRODUCERS)
    options = BatchOptions(
        partition_leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        compression=draw(st.sampled_from(list(Compression))),
        append_time_ms=draw(st.none() | st.integers(0, INT64_MAX)),
        producer_id=producer_id,
        producer_epoch=ProducerEpoch(producer_epoch),
        base_sequence=base_sequence,
        is_transactional=producer_id >= 0 and draw(st.booleans()),
    )
    return records, options


def encoded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def view_of(content: bytes) -> dict[str, Any]:
    """One of our batches in the oracle's JSON form."""
    batch = RecordBatch(content)
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "leader_epoch": batch.partition_leader_epoch,
        "codec": batch.compression.name.lower(),
        "append_time": batch.timestamp_type is TimestampType.LOG_APPEND_TIME,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "size_bytes": batch.size_in_bytes,
        "delete_horizon_ms": batch.delete_horizon_ms if batch.has_delete_horizon else None,
        "records": [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": encoded(record.key),
                "value": encoded(record.value),
                "headers": [[name, encoded(value)] for name, value in record.headers],
            }
            for record in batch.records()
        ],
    }


@settings(
    max_examples=EXAMPLES * 5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(wish=batches())
def test_batches_read_the_same_both_ways(
    apache: ApacheOracle, wish: tuple[list[Record], BatchOptions]
) -> None:
    records, options = wish
    ours = build_batch(records, options)
    view = view_of(ours)
    assert json.loads(apache.read_batches(ours)) == [view]

    theirs = apache.build_batch(json.dumps(view).encode())
    RecordBatch(theirs).check_crc()
    assert view_of(theirs) == view | {"size_bytes": len(theirs)}
    if options.compression is Compression.NONE and options.append_time_ms is None:
        assert ours == theirs


@each_codec
def test_large_batches_of_each_codec_are_exchanged(
    apache: ApacheOracle, codec: Compression
) -> None:
    """Several blocks of each format: lz4 frames and xerial snappy split at 32 and 64 KiB."""
    records = [
        Record(n, NOW_MS + n, b"key-%d" % n, bytes([n % 251, n % 7]) * (n * 3), (("n", b"%d" % n),))
        for n in range(600)
    ]
    ours = build_batch(records, BatchOptions(compression=codec))
    view = view_of(ours)
    assert len(view["records"]) == len(records)
    assert json.loads(apache.read_batches(ours)) == [view]
    theirs = apache.build_batch(json.dumps(view).encode())
    assert RecordBatch(theirs).records() == records


def test_control_records_of_every_type_are_read_by_apache(
    apache: ApacheOracle, tmp_path: Path
) -> None:
    marker = EndTransactionMarker(control_type=ControlType.ABORT, coordinator_epoch=7)
    origin = MarkerOrigin(producer_id=4, producer_epoch=ProducerEpoch(2), partition_leader_epoch=1)
    leader_change = LeaderChangeMessage(leader_id=3, voters=[Voter(voter_id=3)])
    quorum = [
        (ControlType.LEADER_CHANGE, encode(leader_change, 0)),
        (ControlType.SNAPSHOT_HEADER, encode(SnapshotHeaderRecord(), 0)),
        (ControlType.KRAFT_VERSION, encode(KRaftVersionRecord(kraft_version=1), 0)),
        (ControlType.KRAFT_VOTERS, encode(VotersRecord(), 0)),
        (ControlType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(), 0)),
    ]
    place = OffsetAndEpoch(Offset(1), LeaderEpoch(1))
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(
        end_transaction_marker(marker, origin, NOW_MS) + control_batch(quorum, place, NOW_MS)
    )

    printed = dump(apache, segment)

    assert content_faults(apache, [segment]) == []
    assert [batch["isControl"] for batch in printed.batches] == ["true", "true"]
    words = ["endTxnMarker: ABORT coordinatorEpoch: 7", "LeaderChange: ", "SnapshotHeader "]
    words += ["KRaftVersion ", "KRaftVoters ", "SnapshotFooter "]
    shown = [line for line in printed.lines if line.startswith("| offset: ")]
    assert len(shown) == len(words)
    assert all(word in line for word, line in zip(words, shown, strict=True))


def test_the_judge_notices_damage(apache: ApacheOracle, tmp_path: Path) -> None:
    """Otherwise the absence of faults would prove nothing."""
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")])
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(batch[:-1] + b"w")
    assert any("isvalid: false" in fault for fault in content_faults(apache, [segment]))
    segment.write_bytes(batch + batch[:30])
    assert any("invalid bytes at the end" in fault for fault in content_faults(apache, [segment]))
    later = build_batch([Record(5, NOW_MS, b"k", b"v")])
    segment.write_bytes(batch + later)
    assert "  0 is followed by 5" in content_faults(apache, [segment])
    assert content_faults(apache, [segment], gaps_allowed=True) == []
