"""Flushing: the promise of each policy, and what remains after a power failure."""

import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from storage.log_maker import SMALL_SEGMENTS, OneLog, values_of

from moldau.config.log import LogConfig
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.failures import DirectoryOfflineError
from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem
from moldau.storage.log.flushing import GroupFlusher
from moldau.storage.log.log import Log
from moldau.storage.log.state import LogState
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import Offset


def make(policy: str, config: LogConfig = SMALL_SEGMENTS) -> tuple[SimulatedDisk, OneLog]:
    disk = SimulatedDisk()
    flusher = GroupFlusher()
    return disk, OneLog(
        Path("/logs"), config, filesystem=disk, flush_policy=policy, flusher=flusher
    )


def survivors(disk: SimulatedDisk, promised: int) -> list[bytes | None]:
    """The values after a power failure that lost everything unsynced."""
    again = OneLog(Path("/logs"), SMALL_SEGMENTS, filesystem=disk.after_crash(lambda _: False))
    again.reopen(is_clean=False, recovery_point=promised)
    assert again.log.damage is None
    return values_of(again.log)


def syncs(disk: SimulatedDisk) -> int:
    return sum(effect.kind == "sync" for effect in disk.trace)


def test_strict_has_every_batch_on_the_disk_when_the_append_returns() -> None:
    disk, one = make("strict")
    for number in range(30):
        one.append(b"%d" % number * 100)
        assert one.log.flushed_offset == one.log.countable_end_offset == number + 1
        assert len(survivors(disk, number + 1)) == number + 1


def test_os_counts_written_records_and_does_not_sync_on_its_own() -> None:
    disk, one = make("os", LogConfig())
    one.append(b"epochs are synced")
    before = syncs(disk)
    one.fill(50)
    assert syncs(disk) == before
    assert one.log.countable_end_offset == 51
    assert one.log.flushed_offset == 0


def test_os_syncs_sealed_segments_in_the_background() -> None:
    disk, one = make("os")
    one.fill(60)
    assert one.flusher is not None
    assert one.flusher.has_work
    one.flusher.run_round()
    sealed_end = one.log.segments.active.base_offset
    assert one.log.flushed_offset == sealed_end > 0
    assert len(survivors(disk, sealed_end)) == sealed_end


def test_group_counts_flushed_records_and_one_round_covers_all_appends() -> None:
    disk, one = make("group")
    assert one.flusher is not None
    one.append(b"first")
    one.flusher.run_round()
    assert one.log.countable_end_offset == 1
    for number in range(10):
        one.append(b"%d" % number)
    assert one.log.countable_end_offset == 1
    before = syncs(disk)
    one.flusher.run_round()
    assert one.log.countable_end_offset == 11
    assert syncs(disk) - before == 1
    assert len(survivors(disk, 11)) == 11
    assert not one.flusher.has_work


def test_appends_during_a_round_belong_to_the_next() -> None:
    disk, one = make("group")
    assert one.flusher is not None
    one.append(b"a")
    tickets = one.flusher.begin()
    one.append(b"b")
    for ticket in tickets:
        ticket.run()
    one.flusher.finish(tickets)
    assert one.log.flushed_offset == 1
    assert one.flusher.has_work
    one.flusher.run_round()
    assert one.log.flushed_offset == 2
    assert survivors(disk, 2) == [b"a", b"b"]


ROUND_LOGS = 16


def dirty_logs(flusher: GroupFlusher, names: list[str]) -> dict[Log, str]:
    disk = SimulatedDisk()
    logs: dict[Log, str] = {}
    for name in names:
        one = OneLog(Path("/") / name, filesystem=disk, flush_policy="group", flusher=flusher)
        one.append(b"x")
        logs[one.log] = name
    flusher.run_round()
    return logs


def run(flusher: GroupFlusher) -> list[LogState]:
    tickets = flusher.begin()
    for ticket in tickets:
        ticket.run()
    flusher.finish(tickets)
    return [ticket.log for ticket in tickets]


def test_logs_of_a_client_that_has_thousands_take_turns_with_those_of_others() -> None:
    flusher = GroupFlusher(logs_max=ROUND_LOGS)
    logs = dirty_logs(flusher, [f"wide{number}" for number in range(100)] + ["other", "late"])
    *wide, other, late = logs
    place = 0

    def mark(log: Log, place: int) -> int:
        log.mark_dirty()
        return flusher.queue_after(place, log, is_first=True) if flusher.is_crowded else place

    for log in wide:
        place = mark(log, place)
    mark(other, 0)
    first = run(flusher)
    assert len(first) == ROUND_LOGS
    assert other in first
    assert flusher.has_more
    # Logs of other clients do not keep a log in the queue for ever, either.
    mark(late, 0)
    second = run(flusher)
    assert late in second
    rounds = [first, second]
    while flusher.has_work:
        for log in (other, late):
            if not log.awaits_flush:
                mark(log, 0)
        rounds.append(run(flusher))
        if all(any(log in each for each in rounds) for log in wide):
            break
    assert len(rounds) < len(logs)


def test_a_log_that_waits_behind_many_comes_forward_for_another_client() -> None:
    flusher = GroupFlusher(logs_max=ROUND_LOGS)
    *wide, shared = dirty_logs(flusher, [f"wide{number}" for number in range(100)])
    place = 0
    for log in (*wide, shared):
        log.mark_dirty()
        if flusher.is_crowded:
            place = flusher.queue_after(place, log, is_first=True)
    assert flusher.queue_after(0, shared, is_first=False) < place
    # The client that has it in the queue already does not lose its place.
    assert flusher.queue_after(place, shared, is_first=False) == place
    assert shared in run(flusher)


def test_a_truncation_during_a_round_is_not_counted_as_flushed() -> None:
    _, one = make("group")
    assert one.flusher is not None
    one.fill(10)
    tickets = one.flusher.begin()
    one.log.truncate_to(Offset(4), 0)
    one.fill(10)
    for ticket in tickets:
        ticket.run()
    one.flusher.finish(tickets)
    assert one.log.flushed_offset == 4


def test_files_stay_open_while_a_round_syncs_them() -> None:
    _, one = make("group")
    assert one.flusher is not None
    one.fill(60)
    one.commit_all()
    tickets = one.flusher.begin()
    run_here(one.log.starting_over(Offset(0), Offset(0), 0))
    assert one.log.remove_deleted(10**9) == 0
    one.log.abandon()
    for ticket in tickets:
        ticket.run()
        assert ticket.error is None
    one.flusher.finish(tickets)
    assert one.directory.is_online


def test_a_failed_sync_is_final() -> None:
    disk, one = make("group")
    assert one.flusher is not None
    one.fill(3)
    disk.fail_at(disk.effects + 1, OSError(errno.EIO, "Input/output error"))
    one.flusher.run_round()
    assert not one.directory.is_online
    assert one.log.flushed_offset == 0
    with pytest.raises(DirectoryOfflineError):
        one.append(b"x")
    with pytest.raises(DirectoryOfflineError):
        one.log.flush()
    assert one.log.flushed_offset == 0, "the failed disk is not used again"


def test_a_flush_without_a_descriptor_is_done_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flusher = GroupFlusher()
    one = OneLog(tmp_path / "logs", SMALL_SEGMENTS, flush_policy="group", flusher=flusher)
    one.fill(60)
    open_file, taken = os.open, True

    def opening(*arguments: Any, **options: Any) -> int:
        if taken:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(*arguments, **options)

    monkeypatch.setattr(os, "open", opening)
    tickets = flusher.begin()
    for ticket in tickets:
        ticket.run()
    flusher.finish(tickets)
    assert one.log.flushed_offset == 0
    assert one.log.directory.is_online
    assert flusher.has_work
    # While none is free, a round ends instead of retrying forever.
    flusher.run_round()
    assert flusher.has_work
    for refused in (True, True, False):
        taken = False
        tickets = flusher.begin()
        taken = refused
        for ticket in tickets:
            assert len(ticket.paths) == len(set(ticket.paths)), "once, not for each refusal"
            ticket.run()
        flusher.finish(tickets)
    assert one.log.flushed_offset == one.log.log_end_offset == 60
    assert all(segment.pins == 0 for segment in one.log.segments)
    assert not flusher.has_work


def test_a_failed_sync_inside_a_strict_append_is_not_acknowledged() -> None:
    disk, one = make("strict")
    one.append(b"safe")
    disk.fail_at(disk.effects + 2, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(KafkaError):
        one.append(b"lost")
    assert one.log.flushed_offset == 1
    assert survivors(disk, 1) == [b"safe"]


def test_flush_messages_forces_a_flush() -> None:
    _, one = make("os", LogConfig(flush_messages=3))
    one.append(b"a")
    one.append(b"b")
    assert one.log.flushed_offset == 0
    one.append(b"c")
    assert one.log.flushed_offset == 3


@pytest.mark.parametrize("seed", range(8))
def test_transactions_that_were_flushed_survive_a_power_failure(seed: int) -> None:
    disk, one = make("strict")
    for number in range(20):
        one.append_transactional(number % 3, number // 3, b"x" * 120)
        one.end_transaction(number % 3, abort=number % 2 == 0)
    wanted = [s.transaction_index.entries for s in one.log.segments]
    end = one.log.log_end_offset
    crashed = disk.crash(Random(seed))
    again = OneLog(Path("/logs"), SMALL_SEGMENTS, filesystem=crashed)
    again.reopen(is_clean=False, recovery_point=end, high_watermark=end)
    assert again.log.damage is None
    assert [s.transaction_index.entries for s in again.log.segments] == wanted


def test_a_clean_close_leaves_nothing_to_lose() -> None:
    disk, one = make("os")
    one.fill(60)
    one.append_transactional(7, 0, b"open")
    one.commit_all()
    wanted = values_of(one.log)
    end = one.log.log_end_offset
    one.log.close()
    again = OneLog(Path("/logs"), SMALL_SEGMENTS, filesystem=disk.after_crash(lambda _: False))
    log = again.open(is_clean=True)
    assert values_of(log) == wanted
    assert log.producers.first_undecided_offset == end - 1
    assert log.flushed_offset == end


class RudeDisk(DiskFileSystem):
    """Fails in a way that a disk never should."""

    is_broken = False

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if self.is_broken:
            raise RuntimeError("a bug")
        return super().open(path, create=create)


def rude(tmp_path: Path, flusher: GroupFlusher) -> tuple[RudeDisk, OneLog]:
    disk = RudeDisk()
    one = OneLog(tmp_path, SMALL_SEGMENTS, filesystem=disk, flush_policy="group", flusher=flusher)
    return disk, one


def test_an_unforeseen_error_of_one_log_is_reported_and_it_stays_dirty(tmp_path: Path) -> None:
    failed: list[str] = []
    started: list[bool] = []
    flusher = GroupFlusher(
        on_work=lambda: started.append(True),
        on_failed=lambda _log, error: failed.append(str(error)),
    )
    disk, one = rude(tmp_path, flusher)
    one.fill(3)
    assert started == [True], "once, and not for every append"
    for segment in one.log.segments:
        segment.release()
    disk.is_broken = True
    tickets = flusher.begin()
    assert tickets == []
    flusher.finish(tickets)
    assert failed == ["a bug"]
    assert flusher.has_work
    disk.is_broken = False
    flusher.run_round()
    assert one.log.flushed_offset == 3
    assert one.directory.is_online


def test_without_a_listener_an_unforeseen_error_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flusher = GroupFlusher()
    disk, one = rude(tmp_path, flusher)
    one.fill(3)
    for segment in one.log.segments:
        segment.release()
    disk.is_broken = True
    flusher.run_round()
    assert "a flush" in caplog.text
    assert flusher.has_work
