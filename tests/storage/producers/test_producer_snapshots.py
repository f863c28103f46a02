"""Producer snapshots equal Kafka's files to the byte, and a damaged one is never trusted."""

from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.samples import unpack

from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.producers.entry import BatchMetadata, DataBatch, ProducerEntry
from moldau.storage.producers.snapshots import (
    CorruptSnapshotError,
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
    snapshot_name,
    snapshot_offset,
)
from moldau.storage.producers.state import AppendOrigin, ProducerStateTable
from moldau.types import Offset, ProducerEpoch

NOW_MS = 1_700_000_000_000
FILES = DiskFileSystem()


def entry(producer_id: int, *, first_offset: int = -1, last_offset: int = 4) -> ProducerEntry:
    known = ProducerEntry(producer_id)
    known.add_batch(
        ProducerEpoch(3),
        BatchMetadata(10, 10 + last_offset, Offset(0), Offset(last_offset), NOW_MS),
    )
    known.coordinator_epoch = 2
    known.transaction_first_offset = Offset(first_offset)
    return known


def table_at(end_offset: int, *producer_ids: int) -> ProducerStateTable:
    table = ProducerStateTable()
    table.load([entry(p) for p in producer_ids], end_offset=Offset(end_offset), now_ms=NOW_MS)
    return table


def test_every_snapshot_of_apache_kafka_is_written_back_byte_for_byte(tmp_path: Path) -> None:
    found = sorted(unpack("clean", tmp_path).rglob("*.snapshot"))
    assert len(found) > 15
    producers = 0
    for path in found:
        entries = decode_snapshot(path.read_bytes())
        producers += len(entries)
        assert encode_snapshot(entries) == path.read_bytes(), path
    assert producers >= 7


def test_apache_kafkas_open_transactions_are_open_here_too(tmp_path: Path) -> None:
    directory = unpack("clean", tmp_path) / "txns-1"
    table = ProducerStateTable()
    snapshots = ProducerSnapshots(FILES, directory)
    snapshots.reload(
        table, log_start_offset=Offset(0), log_end_offset=Offset(38), now_ms=1_794_732_300_000
    )
    assert table.end_offset == 38
    assert table.first_unstable_offset == 36
    assert table.has_open_transaction(0, ProducerEpoch(0))
    assert table.has_open_transaction(2, ProducerEpoch(0))


def test_a_retry_is_recognised_after_a_restart() -> None:
    table = ProducerStateTable()
    append = table.begin_append(AppendOrigin.CLIENT)
    batch = DataBatch(5, ProducerEpoch(0), 7, Offset(0), Offset(3), NOW_MS, False)
    append.add_data(batch)
    table.apply(append)

    again = ProducerStateTable()
    again.load(decode_snapshot(encode_snapshot(table)), end_offset=Offset(4), now_ms=NOW_MS)
    retry = again.begin_append(AppendOrigin.CLIENT).add_data(batch)
    assert retry == BatchMetadata(7, 10, Offset(0), Offset(3), NOW_MS)


entries_strategy = st.lists(
    st.builds(
        lambda pid, epoch, last, delta, stamp, coordinator, first: _entry(
            pid, epoch, (last, delta), (stamp, coordinator, first)
        ),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.tuples(st.integers(0, 2**31 - 1), st.integers(2**20, 2**62)),
        st.integers(0, 2**20),
        st.integers(-1, 2**62),
        st.integers(-1, 2**31 - 1),
        st.integers(-1, 2**62),
    ),
    max_size=8,
)


def _entry(
    pid: int, epoch: int, last: tuple[tuple[int, int], int], rest: tuple[int, int, int]
) -> ProducerEntry:
    (sequence, offset), delta = last
    known = ProducerEntry(pid)
    first_sequence = (sequence - delta) % 2**31
    known.add_batch(
        ProducerEpoch(epoch),
        BatchMetadata(first_sequence, sequence, Offset(offset - delta), Offset(offset), rest[0]),
    )
    _, known.coordinator_epoch, first_offset = rest
    known.transaction_first_offset = Offset(first_offset)
    return known


@settings(max_examples=100, deadline=None)
@given(entries_strategy)
def test_entries_round_trip(entries: list[ProducerEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == entries


@pytest.mark.parametrize("length", range(56))
def test_a_torn_snapshot_is_refused(length: int) -> None:
    whole = encode_snapshot([entry(1)])
    assert len(whole) == 56
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(whole[:length])


@pytest.mark.parametrize("position", range(102))
def test_a_flipped_bit_anywhere_is_refused(position: int) -> None:
    damaged = bytearray(encode_snapshot([entry(1), entry(2)]))
    damaged[position] ^= 0x10
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(damaged)


def test_bytes_after_the_last_entry_are_refused() -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(encode_snapshot([entry(1)]) + b"\0")


def test_names_are_twenty_digits() -> None:
    assert snapshot_name(Offset(200)) == "00000000000000000200.snapshot"
    assert snapshot_offset("00000000000000000200.snapshot") == 200
    for name in (
        "200.snapshot",
        "00000000000000000200.log",
        "00000000000000000200.snapshot.deleted",
    ):
        assert snapshot_offset(name) is None


# Files


def test_a_snapshot_is_taken_once_per_offset_and_never_of_an_empty_start(
    tmp_path: Path,
) -> None:
    snapshots = ProducerSnapshots(FILES, tmp_path)
    assert snapshots.take(ProducerStateTable(), sync=True) is None
    table = table_at(10, 1)
    path = snapshots.take(table, sync=True)
    assert path == tmp_path / "00000000000000000010.snapshot"
    assert snapshots.take(table, sync=True) is None
    assert list(snapshots.offsets) == [10]


def test_reload_takes_the_newest_sound_snapshot_and_removes_the_rest(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(FILES, tmp_path)
    for offset, ids in ((5, (1,)), (10, (1, 2)), (20, (1, 2, 3)), (30, (1, 2, 3, 4))):
        snapshots.take(table_at(offset, *ids), sync=False)
    snapshots.path(Offset(20)).write_bytes(b"\0" * 30)

    table = table_at(40, 9)
    snapshots = ProducerSnapshots(FILES, tmp_path)
    snapshots.reload(table, log_start_offset=Offset(5), log_end_offset=Offset(25), now_ms=NOW_MS)

    assert set(table.active_producers) == {1, 2}
    assert table.end_offset == 10
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000010.snapshot"]


def test_without_any_snapshot_the_table_begins_empty_at_the_log_start(tmp_path: Path) -> None:
    table = table_at(40, 9)
    ProducerSnapshots(FILES, tmp_path).reload(
        table, log_start_offset=Offset(5), log_end_offset=Offset(25), now_ms=NOW_MS
    )
    assert not table.active_producers
    assert table.end_offset == 5


def test_a_table_that_already_ends_there_is_kept(tmp_path: Path) -> None:
    table = table_at(25, 9)
    ProducerSnapshots(FILES, tmp_path).reload(
        table, log_start_offset=Offset(5), log_end_offset=Offset(25), now_ms=NOW_MS
    )
    assert set(table.active_producers) == {9}


def test_expired_producers_are_not_loaded(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(FILES, tmp_path)
    snapshots.take(table_at(10, 1), sync=False)
    table = ProducerStateTable()
    snapshots.reload(
        table, log_start_offset=Offset(0), log_end_offset=Offset(11), now_ms=NOW_MS + 86_400_000
    )
    assert not table.active_producers
    assert table.end_offset == 10


def test_strays_are_removed_except_the_newest_above_all_segments(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(FILES, tmp_path)
    for offset in (5, 10, 20, 30, 40):
        snapshots.take(table_at(offset, 1), sync=False)
    snapshots.remove_stray([0, 10, 20])
    assert list(snapshots.offsets) == [10, 20, 40]
    snapshots.remove_stray([0, 10, 50])
    assert list(snapshots.offsets) == [10]


def test_deletion_takes_two_steps_and_can_be_undone(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(FILES, tmp_path)
    for offset in (5, 10):
        snapshots.take(table_at(offset, 1), sync=False)
    marked = snapshots.mark_deleted(Offset(5))
    assert marked == tmp_path / "00000000000000000005.snapshot.deleted"
    assert marked.exists()
    assert list(snapshots.offsets) == [10]
    assert snapshots.mark_deleted(Offset(5)) is None
    snapshots.unmark_deleted(Offset(5))
    snapshots.unmark_deleted(Offset(7))
    assert list(snapshots.offsets) == [5, 10]
    assert decode_snapshot(snapshots.path(Offset(5)).read_bytes()) == [entry(1)]


def test_a_wrong_number_of_producers_is_found_although_the_checksum_matches() -> None:
    whole = encode_snapshot([entry(1), entry(2)])
    for body in (whole[6:-1], b"\xff" * 4 + whole[10:], b"\0\0\0\x03" + whole[10:]):
        content = whole[:2] + crc32c(body).to_bytes(4, "big") + body
        with pytest.raises(CorruptSnapshotError, match="producers"):
            decode_snapshot(content)


def test_a_producer_without_batches_survives_a_round_trip() -> None:
    """As after a marker for a producer whose batches are gone."""
    bare = ProducerEntry(5)
    bare.epoch = ProducerEpoch(2)
    bare.last_timestamp_ms = NOW_MS
    (read,) = decode_snapshot(encode_snapshot([bare]))
    assert read == bare
    assert read.batches == ()
    assert read != (5, 2)
    assert "producer_id=5" in repr(read)


def test_a_snapshot_that_is_deleted_meanwhile_is_not_marked(tmp_path: Path) -> None:
    snapshots = ProducerSnapshots(FILES, tmp_path)
    for end_offset in (5, 9):
        snapshots.take(table_at(end_offset, 1), sync=True)
    (tmp_path / snapshot_name(Offset(5))).unlink()
    assert snapshots.mark_deleted(Offset(5)) is None
    assert snapshots.mark_deleted(Offset(7)) is None
    marked = snapshots.mark_deleted(Offset(9))
    assert marked is not None
    assert marked.exists()
    assert snapshots.offsets == ()
