"""Scenarios that the fault suites found, each reduced to its minimum."""

import errno
import os
from pathlib import Path

import pytest
from storage.faults import checks
from storage.faults.small_node import NAME, ROOT, START_MS, Node, Setup, small_log
from storage.faults.workload import TRANSACTIONAL, Step, Workload

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batches import RecordBatch
from moldau.storage.directory.checkpoints import LOG_START_FILE
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.log.read import Isolation
from moldau.testing.simulated_disk import SimulatedCrash, SimulatedDisk
from moldau.types import LeaderEpoch, Offset

SETUP = Setup("group", small_log())
LATER_MS = START_MS + 1_000_000


def worked(*operations: str, setup: Setup = SETUP, seed: int = 1) -> tuple[SimulatedDisk, Workload]:
    disk = SimulatedDisk()
    work = Workload(disk, setup, seed)
    work.run(operations)
    return disk, work


def file_of(disk: SimulatedDisk, ending: str) -> Path:
    return Path(next(path for path in sorted(disk.files()) if path.endswith(ending)))


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_a_flipped_bit_after_a_clean_stop_is_never_served() -> None:
    disk, work = worked("append", "append", "roll", "append", "flush")
    work.node.stop()
    path = file_of(disk, ".log")
    disk.plant(path, flipped(disk.files()[str(path)], 70))
    node = Node(disk, SETUP, LATER_MS)
    with pytest.raises(KafkaError) as raised:
        node.log.read(Offset(0), 1_000)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    ((_, damaged),) = node.log.damaged
    assert damaged.first_offset == 0
    assert node.log.read(damaged.next_offset, 1_000).records


def test_an_index_that_points_beyond_the_file_hides_no_record() -> None:
    disk, work = worked(*["append"] * 8, "roll", "append", "flush")
    work.node.stop()
    path = file_of(disk, ".index")
    content = disk.files()[str(path)]
    disk.plant(path, content[:-4] + b"\x7f" + content[-3:])
    node = Node(disk, SETUP, LATER_MS)
    checks.check_reads(node.log, list(work.state.batches))


def test_a_time_index_that_lost_its_end_hides_no_record() -> None:
    disk, work = worked(*["append"] * 8, "roll", "append", "flush")
    work.node.stop()
    disk.plant(file_of(disk, ".timeindex"), b"")
    node = Node(disk, SETUP, LATER_MS)
    checks.check_reads(node.log, list(work.state.batches))


def test_a_log_start_after_the_log_end_removes_nothing() -> None:
    disk, work = worked("append", "append", "flush")
    run_here(work.node.directory.writing_checkpoint(LOG_START_FILE, {NAME: Offset(1_000)}))
    work.node.release()
    held = disk.files()[str(file_of(disk, ".log"))]
    node = Node(disk, SETUP, LATER_MS)
    assert node.log.damage is not None
    log = node.logs.accept_damage(NAME, LATER_MS)
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (1_000, 1_000, None)
    assert held in disk.files().values(), "kept aside"


def test_a_crash_after_a_truncation_into_a_batch_is_not_damage() -> None:
    disk, work = worked("append", *["append idempotent"] * 3, "flush", "checkpoint")
    batch = next(b for b in work.state.batches if b.last_offset > b.base_offset)
    work.node.logs.truncate({NAME: Offset(batch.last_offset)}, LATER_MS)
    node = Node(disk.after_crash(lambda _: True), SETUP, LATER_MS)
    assert node.log.damage is None
    assert node.log.log_end_offset == batch.base_offset


def test_recovering_twice_from_an_interrupted_full_truncation_changes_nothing() -> None:
    disk, work = worked("append", "append", "flush")
    made = disk.effects
    boundaries: list[SimulatedDisk] = []
    disk.on_effect(lambda _: boundaries.append(disk.fork()))
    work.do("start over")
    assert disk.effects > made
    for boundary in boundaries:
        left = boundary.after_crash(lambda _: True)
        Node(left, SETUP, LATER_MS).release()
        first = left.files()
        Node(left, SETUP, LATER_MS).release()
        assert left.files() == first


def test_a_sealed_segment_keeps_its_time_index_after_a_power_failure() -> None:
    setup = Setup("strict", SETUP.config)
    disk, work = worked(*["append"] * 3, "roll", *["append"] * 3, "checkpoint", setup=setup)
    for _, left in disk.variants_after_crash():
        node = Node(left, setup, LATER_MS)
        checks.check_reads(node.log, checks.held_batches(node.log))
    assert len(work.node.log.segments) >= 2


def test_a_producer_whose_batch_contains_the_start_is_remembered() -> None:
    _, work = worked("append", *["append idempotent"] * 4, "flush")
    batch = next(
        b for b in work.state.batches
        if b.last_offset > b.base_offset and RecordBatch(b.content).producer_id >= 0
    )  # fmt: skip
    work.node.commit()
    run_here(work.node.logs.deleting_records({work.node.log: Offset(batch.last_offset)}))
    later = batch.last_offset + 1
    work.node.logs.truncate({NAME: Offset(later)}, LATER_MS)
    entry = work.node.log.producers.entry(RecordBatch(batch.content).producer_id)
    assert entry is not None
    assert entry.last_data_offset == batch.last_offset


def test_a_full_disk_right_after_a_roll_leaves_no_segment_ahead_of_the_end() -> None:
    """A follower of a compacted log: the batch that needs a new segment does not follow the end."""
    setup = Setup("os", small_log(cleanup_policy=("compact",)))
    refused = 0
    for place in range(1, 30):
        disk, work = worked("append", "append", setup=setup)
        log, end = work.node.log, work.state.log_end
        batch = bytearray(work.state.batches[0].content)
        batch[:8] = (end + 5).to_bytes(8, "big")
        disk.fail_at(disk.effects + place, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        try:
            # Too small for any batch: the next one takes a new segment.
            log.config = small_log(cleanup_policy=("compact",), internal_segment_bytes=1)
            log.append_as_follower(bytes(batch), LeaderEpoch(0), LATER_MS)
        except KafkaError:
            refused += 1
            assert log.log_end_offset == end
            assert log.segments.active.base_offset <= end
    assert refused > 3


def test_a_crash_while_a_segment_is_deleted_shows_no_aborted_record() -> None:
    """Its transaction index must not be removed before the log itself."""
    setup = Setup("group", small_log(retention_bytes=0))
    names = ("append in transaction", "abort", "append", "roll", "append", "flush", "checkpoint")
    _, plain = worked(*names, setup=setup)
    aborted = plain.state.batches[0].base_offset
    crashes = 0
    for place in range(1, 40):
        disk, work = worked(*names, setup=setup)
        disk.crash_at(disk.effects + place)
        try:
            work.retain(Step("retention", work.state, work.state))
        except SimulatedCrash:
            crashes += 1
        node = Node(disk.after_crash(lambda _: True), setup, LATER_MS)
        log = node.log
        log.raise_high_watermark(log.log_end_offset)
        result = log.read(log.log_start_offset, 10_000, isolation=Isolation.COMMITTED)
        shown = [a.first_offset for a in result.aborted or ()]
        assert log.log_start_offset > aborted or aborted in shown
    assert crashes > 3
    assert RecordBatch(plain.state.batches[0].content).producer_id >= TRANSACTIONAL
    assert str(ROOT) in str(plain.node.log.path)


def test_compaction_leaves_segments_alone_that_lie_before_unflushed_ones() -> None:
    setup = Setup("os", small_log(cleanup_policy=("compact",)))
    disk, work = worked(*["append"] * 30, setup=setup)
    log = work.node.log
    assert sum(segment.is_rolled for segment in log.segments) > 1
    log.raise_high_watermark(log.log_end_offset)
    # The start offset is ahead of the flushed offset: no record before it is promised.
    run_here(work.node.logs.deleting_records({log: Offset(log.log_end_offset - 1)}))
    last = checks.held_batches(log)[-1]
    moments: list[SimulatedDisk] = []
    disk.on_effect(lambda _: moments.append(disk.after_crash(lambda _: True)))
    work.node.cleaner.compact(log, LATER_MS)
    assert moments
    for moment in moments:
        found = Node(moment, setup, LATER_MS).log
        assert found.damage is None
        assert checks.held_batches(found)[-1] == last


def test_epochs_begin_at_a_start_that_was_lowered_for_a_truncation() -> None:
    disk, work = worked("append", "append", "append", "flush")
    log = work.node.log
    log.raise_high_watermark(log.log_end_offset)
    run_here(work.node.logs.deleting_records({log: Offset(1)}))
    work.run(["append", "flush", "checkpoint"])
    # The power fails before the truncation has cut anything.
    run_here(work.node.directory.writing_checkpoint(LOG_START_FILE, {NAME: Offset(0)}))
    node = Node(disk.after_crash(lambda _: True), SETUP, LATER_MS)
    assert node.log.log_start_offset == 0
    checks.check_epochs(node.log, checks.held_batches(node.log))
