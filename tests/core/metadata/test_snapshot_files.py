"""A snapshot file is complete, or it is refused as damaged."""

import pytest
from core.metadata.metadata_records import LATEST, histories
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.levels import encode_records
from moldau.core.metadata.snapshot_file import (
    RECORDS_IN_BATCH_MAX,
    DamagedSnapshotError,
    Snapshot,
    SnapshotHead,
    decode_snapshot,
    encode_snapshot,
    metadata_batch,
    snapshot_timestamp_ms,
)
from moldau.core.metadata.snapshot_records import snapshot_records
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import ConfigRecord
from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.control_records import ControlType, OffsetAndEpoch
from moldau.protocol.wire.schema import Message
from moldau.types import LeaderEpoch, Offset

HEAD = SnapshotHead(
    epoch=LeaderEpoch(4),
    timestamp_ms=1_700_000_000_000,
    control_values=((ControlType.KRAFT_VERSION, b"version"), (ControlType.KRAFT_VOTERS, b"voters")),
)
FEW: list[Message] = [
    LATEST,
    *(ConfigRecord(resource_type=2, resource_name="t", name=f"n{n}", value="v") for n in range(3)),
]


def content_of(records: list[Message]) -> bytes:
    return b"".join(encode_snapshot(HEAD, records, now_ms=5))


@given(histories())
def test_snapshots_survive_a_round_trip(history: list[Message]) -> None:
    delta = MetadataDelta()
    for record in history:
        delta.replay(record)
    records = list(snapshot_records(delta.finish(Offset(9), LeaderEpoch(1), 0)))

    assert decode_snapshot(content_of(records)) == Snapshot(HEAD, records)
    assert snapshot_timestamp_ms(content_of(records)[:400]) == HEAD.timestamp_ms


def test_batches_stay_small() -> None:
    many: list[Message] = FEW * RECORDS_IN_BATCH_MAX
    batches = list(iterate_batches(content_of(many)))

    assert [batch.is_control for batch in batches] == [True, False, False, False, False, True]
    assert {batch.record_count for batch in batches[1:-1]} == {RECORDS_IN_BATCH_MAX}
    assert {batch.partition_leader_epoch for batch in batches} == {HEAD.epoch}
    assert decode_snapshot(content_of(many)).records == many


@given(st.integers(0, len(content_of(FEW)) - 1))
def test_a_snapshot_that_was_cut_is_damaged(length: int) -> None:
    with pytest.raises(DamagedSnapshotError):
        decode_snapshot(content_of(FEW)[:length])


@settings(max_examples=300)
@given(st.integers(0, len(content_of(FEW)) - 1), st.integers(1, 255))
def test_a_changed_byte_is_damage_or_outside_the_checksums(place: int, change: int) -> None:
    content = bytearray(content_of(FEW))
    content[place] ^= change
    try:
        read = decode_snapshot(content)
    except (DamagedSnapshotError, KafkaError):
        return
    # Only the epoch of a batch is neither covered by the checksum nor known otherwise.
    assert read.records == FEW
    assert read.head.control_values == HEAD.control_values


def test_missing_and_extra_batches_are_refused() -> None:
    batches = list(encode_snapshot(HEAD, FEW, now_ms=5))
    for wrong in (
        batches[1:],
        batches[:-1],
        [batches[0], batches[2]],
        [*batches, batches[-1]],
        [batches[1], batches[0], batches[2]],
        [],
    ):
        with pytest.raises(DamagedSnapshotError):
            decode_snapshot(b"".join(wrong))


def test_records_of_a_later_release_are_not_damage() -> None:
    header, _, _ = encode_snapshot(HEAD, FEW, now_ms=5)
    unknown = encode_records(FEW[:1], None)[0].replace(b"\x01\x0c", b"\x01\x7f", 1)
    batch = metadata_batch([unknown], OffsetAndEpoch(Offset(3), HEAD.epoch), 5)
    with pytest.raises(KafkaError) as caught:
        decode_snapshot(header + batch)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_the_time_of_a_snapshot_is_in_its_header() -> None:
    batches = list(encode_snapshot(HEAD, FEW, now_ms=5))
    assert snapshot_timestamp_ms(batches[0]) == HEAD.timestamp_ms
    for without_header in (b"", batches[1], batches[2]):
        with pytest.raises(DamagedSnapshotError, match="it has no header"):
            snapshot_timestamp_ms(without_header)
    damaged = bytearray(batches[0])
    damaged[-1] ^= 1
    with pytest.raises(DamagedSnapshotError):
        snapshot_timestamp_ms(damaged)
