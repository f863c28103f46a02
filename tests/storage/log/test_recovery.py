"""After a crash: a torn tail is truncated, derived state is rebuilt, and promised records are never
dropped silently.
"""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.log_maker import (
    PARTITION,
    SMALL_SEGMENTS,
    OneLog,
    read_all,
    records_batch,
    state_of,
    values_of,
)

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.disk.failures import DirectoryOfflineError
from moldau.storage.log.damage import quarantine, scrub
from moldau.storage.log.log import Log, LogOptions
from moldau.storage.log.names import DAMAGE_FILE_NAME
from moldau.storage.log.recovery import Checkpointed, LogLocation, open_log
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import LeaderEpoch, Offset


@pytest.fixture
def one(tmp_path: Path) -> OneLog:
    """Several segments, epochs, producers, aborted and open transactions."""
    made = OneLog(tmp_path, SMALL_SEGMENTS)
    for number in range(40):
        made.append(b"plain %d " % number * 8, epoch=number // 10, timestamp_ms=1_000 + number)
        made.append_transactional(number % 4, number // 4, b"t" * 40)
        made.end_transaction(number % 4, abort=number % 3 == 0)
    made.append_transactional(9, 0, b"open")
    assert len(made.log.segments) > 3
    return made


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def last_log(one: OneLog) -> Path:
    return one.log.segments.active.path()


# A crash without damage


def test_everything_is_rebuilt_from_the_batches_alone(one: OneLog) -> None:
    before = state_of(one.log)
    one.log.abandon()
    for path in one.log.path.iterdir():
        if path.suffix != ".log":
            path.unlink()
    after = state_of(one.reopen(is_clean=False))
    for name in ("records", "start", "end", "epochs", "producers", "segments", "aborted"):
        assert after[name] == before[name], name


@pytest.mark.parametrize("recovery_point", [0, 30, 70, 121])
def test_recovering_twice_changes_nothing(one: OneLog, recovery_point: int) -> None:
    one.commit_all()
    first = state_of(one.reopen(is_clean=False, recovery_point=recovery_point))
    files = {p.name: p.read_bytes() for p in one.log.path.iterdir() if p.is_file()}
    second = state_of(one.reopen(is_clean=False, recovery_point=recovery_point))
    assert second == first
    assert {p.name: p.read_bytes() for p in one.log.path.iterdir() if p.is_file()} == files


def test_recovered_records_do_not_count_as_flushed(one: OneLog) -> None:
    log = one.reopen(is_clean=False, recovery_point=30)
    assert log.flushed_offset == 30
    assert log.log_end_offset == 121


def test_an_open_transaction_is_open_again(one: OneLog) -> None:
    one.reopen(is_clean=False)
    one.commit_all()
    assert one.log.last_stable_offset == 120
    one.end_transaction(9, abort=False)
    one.commit_all()
    assert one.log.last_stable_offset == 122


# A torn tail


def test_a_torn_tail_is_cut_and_the_rest_is_kept(one: OneLog) -> None:
    before = values_of(one.log)
    whole = last_log(one).read_bytes()
    tail = one.log.segments.active.locate(Offset(one.log.log_end_offset - 1))
    assert tail is not None
    for size in range(tail.position + 1, tail.position + tail.size):
        one.log.abandon()
        last_log(one).write_bytes(whole[:size])
        one.reopen(is_clean=False, recovery_point=60, high_watermark=120)
        assert one.log.damage is None
        assert values_of(one.log) == before[:-1]
        assert last_log(one).stat().st_size == tail.position
    assert one.append(b"next") == 120


@pytest.mark.parametrize("garbage", [b"\0" * 4096, b"\xff" * 100, b"garbage" * 30])
def test_garbage_after_the_last_batch_is_cut(one: OneLog, garbage: bytes) -> None:
    before = state_of(one.log)
    one.log.abandon()
    with last_log(one).open("ab") as file:
        file.write(garbage)
    one.reopen(is_clean=False, recovery_point=121, high_watermark=121)
    assert state_of(one.log)["records"] == before["records"]
    assert one.log.damage is None


def test_a_clean_marker_does_not_hide_a_torn_tail(one: OneLog) -> None:
    before = values_of(one.log)
    one.log.close()
    with last_log(one).open("ab") as file:
        file.write(b"half a batch")
    log = one.open(is_clean=True)
    assert values_of(log) == before


def test_segments_after_a_torn_one_are_removed(one: OneLog) -> None:
    second = one.log.segments[1]
    base = second.base_offset
    one.log.abandon()
    flip(second.path(), 100)
    log = one.reopen(is_clean=False, recovery_point=base, high_watermark=base)
    assert log.damage is None
    assert log.log_end_offset == base
    assert [s.base_offset for s in log.segments] == [0, base]
    assert log.epochs.latest_epoch is not None
    assert one.append(b"continues") == base


# Damage below the promised offsets


def damaged(one: OneLog, position: int = 100, **promised: int) -> OneLog:
    second = one.log.segments[1]
    one.log.abandon()
    flip(second.path(), position)
    one.reopen(is_clean=False, **promised)
    return one


def test_a_damaged_batch_that_was_flushed_is_the_only_one_skipped(one: OneLog) -> None:
    """A start does not examine it; a scrub finds it, and the next start examines it again."""
    files = {p.name: p.stat().st_size for p in one.log.path.glob("*.log")}
    first = next(one.log.segments[1].walk())
    damaged(one, recovery_point=121, high_watermark=121)
    with pytest.raises(KafkaError):
        list(scrub(one.log))
    for is_clean in (False, True):
        log = one.reopen(is_clean=is_clean, recovery_point=121, high_watermark=121)
        ((_, lost),) = log.damaged
        assert (lost.first_offset, lost.next_offset) == (first.base_offset, first.last_offset + 1)
        with pytest.raises(KafkaError) as raised:
            log.read(first.base_offset, 10)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
        assert log.read(Offset(0), 1 << 20).next_offset == first.base_offset
        assert log.read(lost.next_offset, 10).records
    assert files == {p.name: p.stat().st_size for p in one.log.path.glob("*.log")}
    assert one.append(b"x") == 121


def test_promised_records_are_never_dropped_silently(one: OneLog) -> None:
    """After a power failure, under the policy os."""
    files = {p.name: p.read_bytes() for p in one.log.path.glob("*.log")}
    base = one.log.segments[1].base_offset
    damaged(one, high_watermark=121)
    damage = one.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.promised_end) == (base, 121)
    for refused in (lambda: one.log.read(Offset(0), 10), lambda: one.append(b"x"), one.log.flush):
        with pytest.raises(KafkaError) as raised:
            refused()
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [len(p.read_bytes()) for p in sorted(one.log.path.glob("*.log"))] == [
        len(content) for _, content in sorted(files.items())
    ]


def test_damage_is_found_again_at_every_start_until_the_operator_decides(one: OneLog) -> None:
    damaged(one, high_watermark=121)
    for is_clean in (True, False, True):
        one.reopen(is_clean=is_clean, high_watermark=121)
        assert one.log.damage is not None
    assert (one.log.path / DAMAGE_FILE_NAME).exists()


def test_quarantine_keeps_the_bad_files_and_the_sound_part(one: OneLog) -> None:
    before = values_of(one.log)
    second = one.log.segments[1]
    third_batch = list(second.walk())[2]
    logs = {s.path().name: s.path().read_bytes() for s in one.log.segments}
    damaged(one, position=third_batch.position + 80, high_watermark=121)
    damage = one.log.damage
    assert damage is not None
    assert damage.first_offset == third_batch.base_offset
    kept = quarantine(one.filesystem, one.log.path, damage)
    assert sorted(p.name for p in kept) == sorted(logs)[1:]
    assert all(
        path.read_bytes() == logs[path.name] for path in kept if path.name != second.path().name
    )
    log = one.open()
    assert log.damage is None
    assert log.log_end_offset == third_batch.base_offset
    assert values_of(log) == before[: third_batch.base_offset]
    assert not (log.path / DAMAGE_FILE_NAME).exists()
    # Filled again by the leader, like any follower.
    assert one.append(b"fetched again") == third_batch.base_offset


def test_missing_promised_segments_are_damage(one: OneLog) -> None:
    one.log.abandon()
    last_log(one).unlink()
    end = one.reopen(is_clean=False, recovery_point=121).log_end_offset
    assert one.log.damage is not None
    assert one.log.damage.first_offset == end < 121
    one.reopen(is_clean=True, recovery_point=121)
    assert one.log.damage is not None


def test_a_checkpoint_of_an_earlier_log_does_not_block_an_empty_one(tmp_path: Path) -> None:
    one = OneLog(tmp_path)
    log = one.reopen(is_clean=False, log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (10, 10, None)
    assert one.append(b"x") == 10


def test_a_scrub_of_a_sound_log_checks_every_byte(one: OneLog) -> None:
    assert sum(scrub(one.log)) == one.log.segments.size_in_bytes
    assert one.log.damage is None


def test_a_read_of_damage_is_refused_and_all_others_are_served(one: OneLog) -> None:
    one.commit_all()
    one.reopen(is_clean=True, recovery_point=121, high_watermark=121)
    second = one.log.segments[1]
    content = bytearray(second.path().read_bytes())
    content[:2000] = b"\xee" * 2000
    second.path().write_bytes(content)
    with pytest.raises(KafkaError) as raised:
        one.log.read(Offset(second.base_offset + 2), 100)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    ((segment, damaged),) = one.log.damaged
    assert (segment, damaged.first_offset) == (second, second.base_offset)
    assert one.log.read(damaged.next_offset, 100).records
    assert one.log.read(Offset(second.base_offset - 1), 100).next_offset == second.base_offset
    assert one.append(b"more") == 121


# Damaged caches


CACHES = [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"]


HURTS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "overwritten": lambda path: path.write_bytes(b"\xff" * len(path.read_bytes())),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\x01" * 5),
}
BROKEN_CACHES = [
    (kind, hurt, is_clean)
    for kind in CACHES
    for hurt in HURTS
    for is_clean in (True, False)
    # In Kafka's format a lost transaction index looks like an empty one: only a scan can tell.
    if not (kind == ".txnindex" and hurt in {"missing", "empty"} and is_clean)
]


@pytest.mark.parametrize(("kind", "hurt", "is_clean"), BROKEN_CACHES)
def test_a_broken_cache_is_rebuilt(one: OneLog, kind: str, hurt: str, *, is_clean: bool) -> None:
    one.commit_all()
    before = state_of(one.log)
    if is_clean:
        one.log.close()
    else:
        one.log.abandon()
    for path in sorted(one.log.path.iterdir()):
        if path.name.endswith(kind):
            HURTS[hurt](path)
    # After a crash only scanned segments are rebuilt at once; here those are all.
    recovery_point = 121 if is_clean else 0
    checkpointed = Checkpointed(recovery_point=recovery_point, high_watermark=Offset(121))
    one.open(checkpointed, is_clean=is_clean)
    after = state_of(one.log)
    for name in ("records", "start", "end", "stable", "epochs", "producers", "aborted"):
        assert after[name] == before[name], name


def test_an_index_that_points_elsewhere_is_rebuilt(one: OneLog) -> None:
    """Well formed, but of another log: only the batches can show it."""
    before = values_of(one.log)
    one.log.close()
    other = OneLog(one.path.parent / "other", SMALL_SEGMENTS)
    other.fill(200, value=b"w" * 33)
    other.log.close()
    for kind in ("index", "timeindex"):
        shutil.copy(other.file(f"{0:020d}.{kind}"), one.file(f"{0:020d}.{kind}"))
    log = one.open(is_clean=True)
    assert values_of(log) == before
    for timestamp_ms in range(1_000, 1_045, 5):
        found = log.offset_for_timestamp(timestamp_ms)
        assert found is not None
        assert found.offset == next(r.offset for r in read_all(log) if r.timestamp >= timestamp_ms)


# Interrupted changes


def swap_files(one: OneLog, suffix: str) -> None:
    """The files that a compaction leaves when it has merged the first two segments."""
    first, second = one.log.segments[0], one.log.segments[1]
    content = first.path().read_bytes() + second.path().read_bytes()
    (one.log.path / f"{0:020d}.log{suffix}").write_bytes(content)
    for kind in ("index", "timeindex"):
        (one.log.path / f"{0:020d}.{kind}{suffix}").write_bytes(b"")


def test_a_complete_swap_is_finished(one: OneLog) -> None:
    before = values_of(one.log)
    bases = one.log.segments.base_offsets
    swap_files(one, ".swap")
    one.log.abandon()
    log = one.reopen(is_clean=False, recovery_point=121)
    assert log.segments.base_offsets == [0, *bases[2:]]
    assert values_of(log) == before
    assert not any(name.endswith(".swap") for name in one.names())


def test_a_damaged_swap_does_not_cost_the_segments_it_replaces(one: OneLog) -> None:
    """A complete swap must be finished, but the segments that it was made from are kept aside."""
    originals = [segment.path() for segment in list(one.log.segments)[:2]]
    contents = {path.name: path.read_bytes() for path in originals}
    swap_files(one, ".swap")
    flip(one.log.path / f"{0:020d}.log.swap", 70)
    one.log.abandon()
    log = one.reopen(is_clean=False, recovery_point=121)
    with pytest.raises(KafkaError) as refused:
        values_of(log)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    aside = {path.name: path.read_bytes() for path in (log.path / "quarantine").iterdir()}
    assert aside == contents


def test_an_incomplete_swap_is_dropped(one: OneLog) -> None:
    before = state_of(one.log)
    swap_files(one, ".cleaned")
    (one.log.path / f"{20:020d}.log.swap").write_bytes(b"part of the same compaction")
    log = one.reopen(is_clean=False)
    assert state_of(log)["records"] == before["records"]
    assert not any(name.endswith((".swap", ".cleaned")) for name in one.names())


def test_deleted_files_and_orphans_are_removed(one: OneLog) -> None:
    before = state_of(one.log)
    for name in ("00000000000000000003.log.deleted", "00000000000000000099.index"):
        (one.log.path / name).write_bytes(b"x" * 8)
    (one.log.path / "00000000000000000009-0000000001.checkpoint.deleted").write_bytes(b"raft's")
    log = one.reopen(is_clean=False)
    assert state_of(log)["records"] == before["records"]
    assert [n for n in one.names() if "deleted" in n or "99.index" in n] == [
        "00000000000000000009-0000000001.checkpoint.deleted"
    ]


# Every crash point, every lost write


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.lists(st.integers(0, 9), min_size=3, max_size=12))
def test_no_flushed_record_is_lost_in_a_power_failure(seed: int, steps: list[int]) -> None:
    """At every effect boundary: flushed records are kept, none is invented, and a second recovery
    changes nothing.
    """
    disk = SimulatedDisk()
    one = OneLog(Path("/logs"), SMALL_SEGMENTS, filesystem=disk)
    appended: list[bytes | None] = []
    flushed = 0
    snapshots: list[tuple[SimulatedDisk, int, int]] = []
    disk.on_effect(lambda _: snapshots.append((disk.fork(), flushed, len(appended) + 1)))
    for step in steps:
        if step < 7:
            value = b"%d " % len(appended) * 60
            one.append(value)
            appended.append(value)
        elif step < 9:
            one.log.flush()
            flushed = one.log.log_end_offset
        else:
            one.log.roll(5_000)
    rng = Random(seed)
    for fork, promised, written in snapshots[:: max(len(snapshots) // 12, 1)]:
        crashed = fork.crash(rng)
        again = OneLog(Path("/logs"), SMALL_SEGMENTS, filesystem=crashed)
        again.reopen(is_clean=False, recovery_point=promised)
        assert again.log.damage is None
        found = values_of(again.log)
        # The append in progress may have succeeded.
        assert promised <= len(found) <= written
        assert found[: len(appended)] == appended[: len(found)]
        first = state_of(again.log)
        assert state_of(again.reopen(is_clean=False, recovery_point=promised)) == first


def test_a_failing_effect_is_reported_and_nothing_flushed_is_lost() -> None:
    """EIO at every effect of a run: the directory goes offline, the flushed part survives."""

    def run(disk: SimulatedDisk) -> int:
        flushed = 0
        try:
            one = OneLog(Path("/logs"), SMALL_SEGMENTS, filesystem=disk)
            for number in range(30):
                one.log.append_as_leader(
                    records_batch([b"%d" % number * 150]), LeaderEpoch(0), 5_000
                )
                if number % 7 == 0:
                    one.log.flush()
                    flushed = one.log.log_end_offset
        except (DirectoryOfflineError, OSError):
            pass
        return flushed

    effects = SimulatedDisk()
    run(effects)
    for number in range(1, effects.effects + 1):
        disk = SimulatedDisk()
        disk.fail_at(number, OSError(errno.EIO, "Input/output error"), for_ever=True)
        flushed = run(disk)
        if flushed:
            survivor = disk.after_crash(lambda _: False)
            again = OneLog(Path("/logs"), SMALL_SEGMENTS, filesystem=survivor)
            again.reopen(is_clean=False, recovery_point=flushed)
            assert again.log.damage is None
            assert again.log.log_end_offset >= flushed


def test_producers_idle_for_too_long_are_forgotten(one: OneLog) -> None:
    """By the node's setting, also if they come from a snapshot."""
    place = LogLocation(directory=one.directory, path=one.log.path, topic_partition=PARTITION)
    known = set(one.log.producers.active_producers)
    one.commit_all()
    one.log.close()
    for expiration_ms, wanted in ((10**9, known), (1, set[int]())):
        options = LogOptions(config=SMALL_SEGMENTS, producer_id_expiration_ms=expiration_ms)
        log = open_log(place, options, Checkpointed(), is_clean=True, now_ms=10**7)
        idle = {p for p in known if log.producers.entry(p) is None or not has_open(log, p)}
        assert idle
        assert set(log.producers.active_producers) & idle == wanted & idle
        log.close()


def has_open(log: Log, producer_id: int) -> bool:
    entry = log.producers.entry(producer_id)
    return entry is not None and entry.transaction_first_offset >= 0
