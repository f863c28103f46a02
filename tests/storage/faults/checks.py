"""Invariants of a reopened log, after any history: it serves sound batches that were appended, its
derived state matches its `.log` files, reopening it changes nothing, and it accepts appends.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from storage.faults.small_node import Node, Setup
from storage.faults.workload import State, Stored, stored

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import CONTROL_FLAG, Record, RecordBatch, iterate_batches
from moldau.protocol.records.control_records import committed_batches, marker_of
from moldau.protocol.records.record_loops import scan_batches
from moldau.protocol.records.scanned_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    POSITION,
    PRODUCER_ID,
    SIZE,
    ScannedBatch,
)
from moldau.storage.log.log import Log
from moldau.storage.log.read import Isolation
from moldau.storage.producers.entry import ProducerEntry
from moldau.storage.producers.replay import data_batch, end_marker
from moldau.storage.producers.state import AppendOrigin, ProducerStateTable
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import LeaderEpoch, Offset, ProducerId

READ_BYTES = 1 << 20


def held_batches(log: Log) -> list[Stored]:
    """Read straight from the files; every byte must belong to a sound batch or be known as damaged.
    Segments before the log's start are ignored: they only await their deletion.
    """
    found: list[Stored] = []
    for place, segment in enumerate(log.segments):
        end_offset = log.segments.end_of(place, log.log_end_offset)
        if segment is not log.segments.active and end_offset <= log.log_start_offset:
            continue
        content = segment.file.read(0, segment.size)
        for start, stop in _sound_ranges(segment, log.log_start_offset):
            headers, end, problem = scan_batches(content, start, stop, True)
            assert problem is None, (segment, problem)
            assert end == stop
            found += [stored(content[h[POSITION] : h[POSITION] + h[SIZE]]) for h in headers]
    for earlier, later in pairwise(found):
        assert earlier.last_offset < later.base_offset
    return found


def _sound_ranges(segment: Segment, log_start_offset: int) -> Iterator[tuple[int, int]]:
    """Damage before the log's start is harmless; the bytes before that damage are left out too, so
    that no hole remains.
    """
    start = 0
    for damaged in segment.damaged:
        if damaged.next_offset > log_start_offset:
            yield start, damaged.position
        start = damaged.end
    yield start, segment.size


def check_is_piece_of(found: Sequence[Stored], candidates: Iterable[Sequence[Stored]]) -> None:
    """No phantom, no hole, nothing out of order: a contiguous part of one of the allowed
    histories.
    """
    if not found:
        return
    tried = []
    for history in candidates:
        if found[0] in history:
            first = history.index(found[0])
            if list(history[first : first + len(found)]) == list(found):
                return
        tried.append([(b.base_offset, b.last_offset) for b in history])
    raise AssertionError(
        (
            "the log contains a sequence that was never appended",
            [(b.base_offset, b.last_offset) for b in found],
            tried,
        )
    )


def check_holds(found: Sequence[Stored], promised: Iterable[Stored]) -> None:
    missing = [(b.base_offset, b.last_offset) for b in promised if b not in found]
    assert not missing, ("promised batches are gone", missing)


def table_of(batches: Iterable[Stored]) -> dict[bytes, bytes]:
    """Key -> last committed value, by the markers in the log alone."""
    views = [RecordBatch(b.content) for b in batches]
    table: dict[bytes, bytes] = {}
    waiting: dict[int, list[RecordBatch]] = {}

    def take(batch: RecordBatch) -> Iterator[tuple[int, bytes, bytes | None]]:
        for record in batch.records():
            if record.key is not None:
                yield record.offset, record.key, record.value

    visible: list[tuple[int, bytes, bytes | None]] = []
    for batch in views:
        if batch.is_control:
            marker = marker_of(batch) if batch.record_count else None
            pending = waiting.pop(batch.producer_id, [])
            if marker is not None and marker.control_type.name == "COMMIT":
                visible += [seen for earlier in pending for seen in take(earlier)]
        elif batch.is_transactional:
            waiting.setdefault(batch.producer_id, []).append(batch)
        else:
            visible += take(batch)
    for _, key, value in sorted(visible):
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


# State that is derived from the batches


class Scratch:
    """Producers and aborted transactions of these batches, computed from scratch."""

    def __init__(self, batches: Sequence[Stored]) -> None:
        self.table = ProducerStateTable()
        self.aborted: list[AbortedTransaction] = []
        for kept in batches:
            headers, _, problem = scan_batches(kept.content, 0, len(kept.content), True)
            assert problem is None
            self._replay(headers[0], kept)

    def _replay(self, header: ScannedBatch, kept: Stored) -> None:
        if header[PRODUCER_ID] < 0:
            return
        append = self.table.begin_append(AppendOrigin.REPLICATION)
        if header[ATTRIBUTES] & CONTROL_FLAG:
            batch = RecordBatch(kept.content)
            marker = end_marker(batch, header[BASE_OFFSET]) if batch.record_count else None
            if marker is not None:
                append.add_marker(marker)
        else:
            append.add_data(data_batch(header))
        self.table.apply(append)
        for transaction in append.completed:
            if transaction.is_aborted:
                stable = self.table.last_stable_offset_after(transaction)
                self.aborted.append(
                    AbortedTransaction(
                        ProducerId(transaction.producer_id),
                        Offset(transaction.first_offset),
                        Offset(transaction.last_offset),
                        Offset(stable),
                    )
                )
            self.table.complete_transaction(transaction)


def check_producers(log: Log, found: Sequence[Stored], *, is_whole: bool) -> None:
    """`is_whole`: nothing was deleted or compacted, so the batches are the complete history."""
    kept = found if is_whole else [b for b in found if b.last_offset >= log.log_start_offset]
    scratch = Scratch(kept).table
    for expected in scratch:
        actual = log.producers.entry(expected.producer_id)
        assert actual is not None, expected
        _check_entry(actual, expected, is_whole=is_whole)
    if is_whole:
        assert set(log.producers.active_producers) == set(scratch.active_producers)
        undecided = scratch.first_undecided_offset
        assert log.producers.first_undecided_offset == undecided
        stable = log.high_watermark if undecided is None else min(undecided, log.high_watermark)
        assert log.last_stable_offset <= max(stable, log.log_start_offset)


def _check_entry(actual: ProducerEntry, expected: ProducerEntry, *, is_whole: bool) -> None:
    """Kafka's snapshots contain only the last batch of a producer, and not its own timestamp."""
    assert actual.epoch == expected.epoch
    remembered = [batch[:4] for batch in actual.batches]
    known = [batch[:4] for batch in expected.batches]
    # If all records of a producer are deleted, only a marker may be left.
    assert remembered[-1:] == known[-1:] or (not known and not is_whole)
    if is_whole:
        assert remembered == known[len(known) - len(remembered) :]
        assert actual.last_timestamp_ms == expected.last_timestamp_ms
        assert actual.coordinator_epoch == expected.coordinator_epoch
        assert actual.transaction_first_offset == expected.transaction_first_offset


def check_aborted(log: Log, found: Sequence[Stored], *, is_whole: bool) -> None:
    indexed = [entry for segment in log.segments for entry in segment.transaction_index.entries]
    kept = found if is_whole else [b for b in found if b.last_offset >= log.log_start_offset]
    expected = Scratch(kept).aborted
    if is_whole:
        assert indexed == expected
    else:
        # The index may know earlier records of the transaction that were deleted since.
        known = {(a.producer_id, a.last_offset): a.first_offset for a in indexed}
        for aborted in expected:
            first = known.get((aborted.producer_id, aborted.last_offset))
            assert first is not None, aborted
            assert first <= aborted.first_offset


def check_epochs(log: Log, found: Sequence[Stored]) -> None:
    for kept in found:
        epoch = RecordBatch(kept.content).partition_leader_epoch
        if kept.base_offset >= log.log_start_offset:
            assert log.epochs.epoch_for_offset(Offset(kept.base_offset)) == epoch
    for entry in log.epochs.entries:
        assert log.log_start_offset <= entry.start_offset <= log.log_end_offset


def check_offsets(log: Log, found: Sequence[Stored]) -> None:
    active = log.segments.active
    ends = [active.base_offset, *(b.last_offset + 1 for b in found[-1:])]
    # The offsets of damaged batches are never given to other records.
    ends += [damaged.next_offset for damaged in active.damaged]
    assert log.log_end_offset == max(ends)
    assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark
    assert log.high_watermark <= log.log_end_offset
    assert log.log_start_offset <= log.flushed_offset <= log.log_end_offset


# Through the public API


def served(log: Log) -> list[Stored]:
    """Everything that a reader gets; every byte of it must be sound."""
    found: list[Stored] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 500, isolation=Isolation.LOG_END)
        for batch in iterate_batches(result.records):
            assert batch.crc_is_valid(), f"a broken batch was served at {batch.base_offset}"
            found.append(Stored(batch.base_offset, batch.last_offset, bytes(batch.view)))
        if not result.records:
            # Compaction left no batch between here and the end.
            return found
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def served_around(log: Log) -> list[Stored]:
    """As `served`, for a reader that skips damaged batches."""
    found: list[Stored] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            result = log.read(offset, 500, isolation=Isolation.LOG_END)
        except KafkaError as error:
            assert error.code is ErrorCode.CORRUPT_MESSAGE, error  # noqa: PT017 - others are served
            offset = next(d.next_offset for _, d in log.damaged if d.next_offset > offset)
            continue
        for batch in iterate_batches(result.records):
            assert batch.crc_is_valid(), f"a broken batch was served at {batch.base_offset}"
            found.append(Stored(batch.base_offset, batch.last_offset, bytes(batch.view)))
        assert result.next_offset > offset
        offset = result.next_offset
    return found


def check_reads(log: Log, found: Sequence[Stored]) -> None:
    """Every offset leads to its batch through the indexes; so does every timestamp."""
    visible = [b for b in found if b.last_offset >= log.log_start_offset]
    for place, kept in enumerate(visible):
        for offset in {max(kept.base_offset, log.log_start_offset), kept.last_offset}:
            result = log.read(Offset(offset), 1, isolation=Isolation.LOG_END)
            assert bytes(result.records) == kept.content
        many = log.read(Offset(kept.last_offset), READ_BYTES, isolation=Isolation.LOG_END)
        contents = b"".join(b.content for b in visible[place:])
        assert many.records
        assert contents.startswith(bytes(many.records))
    stamps = [
        (record.timestamp, record.offset)
        for kept in visible
        for record in RecordBatch(kept.content).records()
        if record.offset >= log.log_start_offset
    ]
    for timestamp in {stamp for stamp, _ in stamps}:
        answer = log.offset_for_timestamp(timestamp)
        first = min(offset for stamp, offset in stamps if stamp >= timestamp)
        assert answer is not None
        assert answer.offset == first


def check_committed_reads(log: Log, found: Sequence[Stored]) -> None:
    """read_committed never shows an aborted record: the index is as complete as the markers."""
    stable = log.last_stable_offset
    scratch = Scratch(found)
    aborted = [(a.producer_id, a.first_offset) for a in scratch.aborted]
    wanted = [RecordBatch(b.content) for b in found if b.last_offset >= log.log_start_offset]
    expected = [
        batch.base_offset for batch in committed_batches(iter(wanted), aborted)
        if batch.last_offset < stable
    ]  # fmt: skip
    seen: list[int] = []
    offset = log.log_start_offset
    while offset < stable:
        result = log.read(offset, READ_BYTES, isolation=Isolation.COMMITTED)
        aborted = [(a.producer_id, a.first_offset) for a in result.aborted or ()]
        batches = iterate_batches(result.records)
        seen += [batch.base_offset for batch in committed_batches(batches, aborted)]
        if result.next_offset == offset:
            break
        offset = result.next_offset
    assert seen == expected


def check_log(log: Log, *, is_whole: bool = False) -> list[Stored]:
    """Runs all checks above and returns the batches in the log."""
    assert not log.damaged
    found = held_batches(log)
    check_offsets(log, found)
    check_producers(log, found, is_whole=is_whole)
    check_aborted(log, found, is_whole=is_whole)
    check_epochs(log, found)
    check_reads(log, found)
    if is_whole:
        check_committed_reads(log, found)
    return found


# After reopening


def check_recovering_again_changes_nothing(
    disk: SimulatedDisk, setup: Setup, now_ms: int, found: Sequence[Stored]
) -> None:
    """Compares the second opening with the third: the first may have trusted a clean stop."""
    first = disk.files()
    node = Node(disk, setup, now_ms)
    assert node.log.damage is None
    assert held_batches(node.log) == list(found)
    node.release()
    second = disk.files()
    assert first == second, _difference(first, second)


def _difference(first: dict[str, bytes], second: dict[str, bytes]) -> dict[str, str]:
    return {
        path: f"{first.get(path, b'')!r} -> {second.get(path, b'')!r}"
        for path in sorted({*first, *second})
        if first.get(path) != second.get(path)
    }


def check_accepts_appends(node: Node, now_ms: int, found: Sequence[Stored]) -> None:
    """A retry of a producer's last batch is a duplicate; a new batch is appended at the end."""
    log = node.log
    for kept in reversed(found):
        batch = RecordBatch(kept.content)
        entry = log.producers.entry(batch.producer_id)
        if batch.is_control or entry is None or entry.last_data_offset != kept.last_offset:
            continue
        whole = batch.record_count == batch.last_offset_delta + 1
        if entry.epoch != batch.producer_epoch or not whole:
            # Compaction removed some of its records: its producer would send all of them.
            continue
        retry = bytearray(kept.content)
        retry[:8] = bytes(8)
        answer = log.append_as_leader(retry, LeaderEpoch(1_000), now_ms)
        assert answer.is_duplicate
        assert (answer.first_offset, answer.last_offset) == kept[:2]
        break
    end = log.log_end_offset
    batch_bytes = build_batch([Record(0, now_ms, b"key", b"after the crash")], BatchOptions())
    assert (
        log.append_as_leader(bytearray(batch_bytes), LeaderEpoch(1_000), now_ms).first_offset == end
    )
    node.flush()
    node.commit()
    result = log.read(end, READ_BYTES, isolation=Isolation.LOG_END)
    (written,) = iterate_batches(result.records)
    assert written.records()[0].value == b"after the crash"
    assert log.flushed_offset == end + 1


def promised_by(state: State, end_offset: int) -> list[Stored]:
    """Batches below `end_offset` that were not deleted."""
    return [
        batch
        for batch in state.batches
        if batch.last_offset < end_offset and batch.last_offset >= state.log_start
    ]
