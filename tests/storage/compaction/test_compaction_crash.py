"""A power failure or a failing disk at any point of a compaction costs work, never a record."""

import contextlib
import errno
from collections.abc import Callable, Iterator
from random import Random

import pytest
from storage.compaction_logs import ROOT, CompactedLog, compacting

from moldau.config.cleaner import CleanerConfig
from moldau.protocol.errors import KafkaError
from moldau.storage.compaction.run import CompactionAbortedError
from moldau.storage.log.recovery import Checkpointed
from moldau.testing.simulated_disk import SimulatedCrash, SimulatedDisk
from moldau.types import Offset

CONFIG = compacting(internal_segment_bytes=1300, delete_retention_ms=1000)
CLEANER = CleanerConfig(io_buffer_bytes=200)
TEMPORARY = (".cleaned", ".swap", ".deleted", ".tmp")


def written_disk() -> tuple[SimulatedDisk, int]:
    """A log with overwritten keys, tombstones and aborted data, all of it synced; its end."""
    disk = SimulatedDisk()
    log = CompactedLog(filesystem=disk, config=CONFIG)
    for number in range(3):
        log.put((b"a", b"%d" % number), (b"k%d" % number, b"x" * 60))
        log.put((b"b", b"%d" % number), producer_id=5, transactional=True)
        log.end(5, commit=number % 2 == 0)
        log.put((b"c", None if number % 2 else b"%d" % number), producer_id=6)
        log.roll()
    log.put((b"a", b"active"))
    log.log.close()
    log.directory.close()
    disk.sync_directory(ROOT)
    return disk, log.log.log_end_offset


WRITTEN, END = written_disk()
CHECKPOINTED = Checkpointed(recovery_point=END, high_watermark=Offset(END))


def opened(disk: SimulatedDisk) -> CompactedLog:
    return CompactedLog(
        filesystem=disk, config=CONFIG, cleaner_config=CLEANER, checkpointed=CHECKPOINTED
    )


EXPECTED = opened(WRITTEN.fork()).values()


def check_recovered(disk: SimulatedDisk, what: str) -> CompactedLog:
    log = opened(disk)
    assert log.log.damage is None, (what, log.log.damage)
    assert log.values() == EXPECTED, what
    assert log.log.log_end_offset == END, what
    assert log.log.high_watermark == END, what
    starts = [batch.base_offset for batch in log.batches()]
    assert starts == sorted(set(starts)), what
    assert not [name for name in log.file_names() if name.endswith(TEMPORARY)], what
    known = log.log.producers.entry(6)
    assert known is not None, what
    assert known.last_sequence == 2, what
    return log


def effects_of(act: Callable[[SimulatedDisk], object]) -> int:
    disk = WRITTEN.fork()
    before = disk.effects
    act(disk)
    return disk.effects - before


def crashes(act: Callable[[SimulatedDisk], object]) -> Iterator[tuple[int, SimulatedDisk]]:
    """The disk as it is when the power fails right before each effect of `act`."""
    for number in range(1, effects_of(act) + 2):
        disk = WRITTEN.fork()
        disk.crash_at(disk.effects + number)
        with contextlib.suppress(SimulatedCrash):
            act(disk)
        yield number, disk


def is_new(disk: SimulatedDisk, seen: set[int]) -> bool:
    """Many cuts leave the same state; each is tried once."""
    state = hash(tuple(sorted(disk.files().items())))
    is_known = state in seen
    seen.add(state)
    return not is_known


def compact(disk: SimulatedDisk) -> None:
    log = opened(disk)
    log.clean()
    log.clean(after_ms=2000)
    log.log.remove_deleted(log.now_ms + 60_000)


def test_a_pass_has_enough_effects_to_crash_at() -> None:
    log = opened(WRITTEN.fork())
    before = len(log.content())
    log.clean()
    assert len(log.content()) < before
    assert len(log.bases()) < 4
    assert log.values() == EXPECTED
    assert effects_of(compact) > 60


def test_a_power_failure_at_any_effect_loses_nothing_and_recovery_completes_it() -> None:
    states = 0
    seen: set[int] = set()
    for number, disk in crashes(compact):
        for name, survivor in disk.variants_after_crash():
            if not is_new(survivor, seen):
                continue
            what = f"effect {number}: {name}"
            log = check_recovered(survivor, what)
            # Recovering again finds nothing to do.
            log.log.abandon()
            log.directory.close()
            files = survivor.files()
            check_recovered(survivor, what).directory.close()
            assert survivor.files() == files, what
            states += 1
    assert states > 100


def test_compaction_can_resume_after_any_power_failure() -> None:
    for number, disk in crashes(compact):
        survivor = disk.after_crash(lambda change: change.effect % 2 == 0)
        what = f"effect {number}"
        log = check_recovered(survivor, what)
        log.clean()
        log.clean(after_ms=2000)
        assert log.values() == EXPECTED, what


def test_a_second_power_failure_during_recovery_loses_nothing() -> None:
    """Only where a swap is half done: there recovery itself renames and removes."""
    tried = 0
    seen: set[int] = set()
    for number, disk in crashes(compact):
        if not any(name.endswith(".swap") for name in disk.files()):
            continue
        survivor = disk.after_crash(lambda _: True)
        if not is_new(survivor, seen):
            continue
        trial = survivor.fork()
        start = trial.effects
        opened(trial)
        for second in range(1, trial.effects - start + 1):
            again = survivor.fork()
            again.crash_at(again.effects + second)
            with pytest.raises(SimulatedCrash):
                opened(again)
            # Renames and removals of one directory may even survive out of order.
            subsets = (again.crash(Random(seed), any_subset=True) for seed in range(4))
            for last in (*(disk for _, disk in again.variants_after_crash()), *subsets):
                if is_new(last, seen):
                    check_recovered(last, f"effects {number} and {second}")
                    tried += 1
    assert tried > 100


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failing_disk_is_an_error_and_loses_nothing(number: int) -> None:
    for effect in range(1, effects_of(compact) + 1):
        disk = WRITTEN.fork()
        disk.fail_at(disk.effects + effect, OSError(number, "simulated"))
        with pytest.raises((KafkaError, CompactionAbortedError, OSError)):
            compact(disk)
        check_recovered(disk.fork(), f"effect {effect}")


def test_a_full_disk_ends_the_pass_but_not_the_directory() -> None:
    """There is no room for the second copy; the log is unharmed."""
    disk = WRITTEN.fork()
    log = opened(disk)
    compaction = log.cleaner.begin([log.log], log.now_ms)
    assert compaction is not None
    disk.fail_at(disk.effects + 5, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(CompactionAbortedError, match="No space left"):
        compaction.step()
    log.cleaner.finish(compaction)
    assert log.directory.is_online
    assert not [name for name in log.file_names() if name.endswith(".cleaned")]
    log.clean()
    assert log.values() == EXPECTED
