import pytest
from protocol.batch_peers import AioRecords
from protocol.batch_strategies import simple_records

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch, patch_base_offset
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    OffsetAndEpoch,
    committed_batches,
    control_batch,
    control_key,
    control_type_of,
    end_transaction_marker,
    marker_of,
    read_end_transaction_marker,
)
from moldau.types import LeaderEpoch, Offset, ProducerEpoch


def marker(control_type: ControlType, producer_id: int, offset: int) -> bytes:
    return end_transaction_marker(
        EndTransactionMarker(control_type=control_type, coordinator_epoch=7),
        MarkerOrigin(producer_id=producer_id, producer_epoch=ProducerEpoch(3), base_offset=offset),
        now_ms=1000,
    )


def data(producer_id: int, offset: int, *, is_transactional: bool = True) -> bytes:
    raw = bytearray(
        build_batch(
            simple_records(2),
            BatchOptions(producer_id=producer_id, is_transactional=is_transactional),
        )
    )
    patch_base_offset(raw, 0, offset)
    return bytes(raw)


@pytest.mark.parametrize("control_type", [ControlType.ABORT, ControlType.COMMIT])
def test_a_marker_is_read_back(control_type: ControlType) -> None:
    raw = end_transaction_marker(
        EndTransactionMarker(control_type=control_type, coordinator_epoch=7),
        MarkerOrigin(
            producer_id=5, producer_epoch=ProducerEpoch(3), base_offset=90, partition_leader_epoch=2
        ),
        now_ms=1000,
    )
    batch = RecordBatch(raw)
    batch.check_crc()
    assert (batch.is_control, batch.is_transactional, batch.base_sequence) == (True, True, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_offset) == (5, 3, 90)
    assert (batch.partition_leader_epoch, batch.max_timestamp) == (2, 1000)
    found = marker_of(batch)
    assert found == EndTransactionMarker(control_type=control_type, coordinator_epoch=7)
    (record,) = batch.records()
    assert record.key == bytes([0, 0, 0, control_type])
    assert record.value == bytes([0, 0, 0, 0, 0, 7])


def test_aiokafka_reads_our_markers() -> None:
    batch = AioRecords(marker(ControlType.ABORT, 5, 0)).next_batch()
    assert batch.is_control_batch
    assert next(batch).key == control_key(ControlType.ABORT)


def test_control_types_have_kafkas_numbers_and_later_ones_are_unknown() -> None:
    assert [control_type_of(bytes([0, 0, 0, n])) for n in range(8)] == [
        ControlType.ABORT, ControlType.COMMIT, ControlType.LEADER_CHANGE,
        ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER, ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS, ControlType.UNKNOWN,
    ]  # fmt: skip
    # A later version of the key keeps the type in its place.
    assert control_type_of(b"\0\5\0\1more") is ControlType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_an_invalid_control_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(KafkaError) as caught:
        control_type_of(key)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 0, b"\0\0\0\2", b"\0\0\0\0\0\0"),
        Record(0, 0, b"\0\0\0\1", None),
        Record(0, 0, b"\0\0\0\1", b"\0\0\0"),
        Record(0, 0, b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    ],
)
def test_an_invalid_marker_is_refused(record: Record) -> None:
    with pytest.raises(KafkaError) as caught:
        read_end_transaction_marker(record)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_data_and_quorum_batches_have_no_marker() -> None:
    assert marker_of(RecordBatch(build_batch(simple_records(1)))) is None
    raw = control_batch(
        [(ControlType.SNAPSHOT_HEADER, b"header"), (ControlType.KRAFT_VERSION, b"version")],
        OffsetAndEpoch(Offset(10), LeaderEpoch(4)),
        now_ms=55,
    )
    batch = RecordBatch(raw)
    assert marker_of(batch) is None
    assert (batch.is_control, batch.is_transactional, batch.last_offset) == (True, False, 11)
    assert [control_type_of(record.key) for record in batch.records()] == [3, 5]


def test_read_committed_sees_neither_markers_nor_aborted_transactions() -> None:
    """Producer 1 aborts, commits, aborts again; producer 2's batches in between are kept."""
    log = [
        data(1, 0), data(2, 2), marker(ControlType.ABORT, 1, 4), data(1, 5),
        data(2, 7, is_transactional=False), marker(ControlType.COMMIT, 1, 9), data(1, 10),
        data(1, 12), marker(ControlType.COMMIT, 2, 14), marker(ControlType.ABORT, 1, 15),
        data(1, 16),
    ]  # fmt: skip
    batches = [RecordBatch(raw) for raw in log]
    seen = [batch.base_offset for batch in committed_batches(batches, [(1, 10), (1, 0)])]
    assert seen == [2, 5, 7, 16]
    assert [batch.base_offset for batch in committed_batches(batches, [])] == [
        0, 2, 5, 7, 10, 12, 16,
    ]  # fmt: skip


def test_an_aborted_transaction_that_began_before_the_fetch_is_hidden() -> None:
    batches = [RecordBatch(data(1, 50)), RecordBatch(marker(ControlType.ABORT, 1, 52))]
    assert list(committed_batches(batches, [(1, 10)])) == []
