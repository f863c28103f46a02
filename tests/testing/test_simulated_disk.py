"""The simulated disk keeps the promises that tests of the log rely on."""

import errno
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.storage.disk.filesystem import FileSystem, write_atomically
from moldau.testing.simulated_disk import Effect, SimulatedCrash, SimulatedDisk, SimulatedFile
from moldau.testing.simulated_power import durable_content

ROOT = Path("/")
LOG = Path("/log")


def disk_with_log(content: bytes = b"") -> tuple[SimulatedDisk, SimulatedFile]:
    """A log whose name and content are durable."""
    disk = SimulatedDisk()
    disk.plant(LOG, content)
    return disk, disk.open(LOG)


def left_of(disk: SimulatedDisk) -> set[bytes | None]:
    """The contents of the log that a power failure could leave."""
    return {left.files().get("/log") for _, left in disk.variants_after_crash()}


def test_synced_content_survives_every_power_failure() -> None:
    disk, log = disk_with_log()
    log.append([b"synced"])
    log.sync()
    assert left_of(disk) == {b"synced"}


def test_unsynced_content_may_be_lost_kept_or_torn_but_synced_stays() -> None:
    disk, log = disk_with_log(b"synced")
    log.append([b"x" * 1200])
    left = {content for content in left_of(disk) if content is not None}
    assert all(content.startswith(b"synced") for content in left)
    assert b"synced" in left
    assert b"synced" + b"x" * 1200 in left
    assert b"synced" + b"x" * 506 in left, "cut at a sector of the file"
    assert b"synced" + b"x" * 506 + bytes(694) in left, "zeros after the cut"
    assert b"synced" + bytes(1200) in left, "the size is durable, the content is not"
    assert any(b"\xa0" in content for content in left), "garbage in the torn sector"


def test_a_synced_file_without_its_name_is_lost_unless_the_disk_syncs_names() -> None:
    for kind in (False, True):
        disk = SimulatedDisk(sync_keeps_name=kind)
        log = disk.open(LOG, create=True)
        log.append([b"content"])
        log.sync()
        assert left_of(disk) == ({b"content"} if kind else {b"content", None})
        disk.sync_directory(ROOT)
        assert left_of(disk) == {b"content"}


def test_a_name_may_survive_without_the_content() -> None:
    disk = SimulatedDisk()
    log = disk.open(LOG, create=True)
    log.append([b"content"])
    disk.sync_directory(ROOT)
    assert b"" in left_of(disk)
    assert None not in left_of(disk)


def test_a_rename_is_atomic_and_durable_after_the_directory_is_synced() -> None:
    disk, _ = disk_with_log(b"old")
    disk.plant(Path("/new"), b"new")
    disk.rename(Path("/new"), LOG)
    states = [left.files() for _, left in disk.variants_after_crash()]
    assert states == [{"/log": b"old", "/new": b"new"}, {"/log": b"new"}]
    disk.sync_directory(ROOT)
    assert left_of(disk) == {b"new"}


def test_a_removal_may_be_undone() -> None:
    disk, _ = disk_with_log(b"kept")
    disk.remove(LOG)
    assert not disk.exists(LOG)
    assert left_of(disk) == {b"kept", None}
    disk.sync_directory(ROOT)
    assert left_of(disk) == {None}


def test_a_truncation_may_be_undone() -> None:
    disk, log = disk_with_log(b"0123456789")
    log.truncate(4)
    assert left_of(disk) == {b"0123", b"0123456789"}
    log.sync()
    assert left_of(disk) == {b"0123"}


def test_a_tree_is_removed_step_by_step() -> None:
    disk = SimulatedDisk()
    for name in ("a", "b", "sub/c"):
        disk.plant(Path("/t-0") / name, b"x")
    disk.crash_at(disk.effects + 3)
    with pytest.raises(SimulatedCrash):
        disk.remove_tree(Path("/t-0"))
    assert disk.files() == {"/t-0/sub/c": b"x"}


def test_a_directory_keeps_its_files_when_it_is_renamed() -> None:
    disk = SimulatedDisk()
    disk.plant(Path("/t-0/log"), b"x")
    log = disk.open(Path("/t-0/log"))
    disk.rename(Path("/t-0"), Path("/t-0.1-delete"))
    log.append([b"y"])
    assert disk.files() == {"/t-0.1-delete/log": b"xy"}
    names = {name for _, left in disk.variants_after_crash() for name in left.files()}
    assert names == {"/t-0/log", "/t-0.1-delete/log"}


def test_the_power_fails_before_the_chosen_effect_and_stays_off() -> None:
    disk, log = disk_with_log()
    disk.crash_at(2)
    log.append([b"first"])
    with pytest.raises(SimulatedCrash, match="before effect 2: append /log"):
        log.append([b"second"])
    for call in (log.sync, lambda: log.truncate(0), lambda: disk.remove(LOG)):
        with pytest.raises(SimulatedCrash):
            call()
    assert disk.files() == {"/log": b"first"}


def test_a_crash_is_not_caught_accidentally() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_an_effect_fails_once_or_forever() -> None:
    disk, log = disk_with_log()
    disk.fail_at(1, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        log.append([b"lost"])
    log.append([b"kept"])
    disk.fail_at(4, OSError(errno.EIO, "Input/output error"), for_ever=True)
    log.sync()
    for call in (
        log.sync,
        lambda: log.append([b"x"]),
        lambda: log.truncate(0),
        lambda: disk.open(Path("/new"), create=True),
        lambda: disk.remove(LOG),
        lambda: disk.sync_directory(ROOT),
    ):
        with pytest.raises(OSError, match="Input/output"):
            call()
    assert disk.files() == {"/log": b"kept"}


def test_a_short_write_leaves_its_first_bytes() -> None:
    disk, log = disk_with_log(b"old")
    disk.short_write_at(1, 2, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        log.append([b"new"])
    assert log.read(0, log.size()) == b"oldne"
    log.truncate(3)
    assert log.size() == 3


def test_after_a_failed_sync_a_later_one_does_not_save_the_content() -> None:
    """Linux marks the pages clean: the second fsync succeeds over lost content."""
    disk, log = disk_with_log(b"old")
    log.append([b"AAAA"])
    disk.fail_at(2, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    assert log.read(0, 99) == b"oldAAAA", "a running program still sees it"
    assert {b"old", b"oldAAAA"} <= left_of(disk), "either is possible"
    log.append([b"BB"])
    log.sync()
    assert left_of(disk) == {b"old\0\0\0\0BB"}


def test_a_lying_disk_keeps_nothing() -> None:
    disk = SimulatedDisk(lying_sync=True)
    log = disk.open(LOG, create=True)
    log.append([b"content"])
    log.sync()
    disk.sync_directory(ROOT)
    assert None in left_of(disk)


def test_reads_can_fail() -> None:
    disk, log = disk_with_log(b"content")
    disk.fail_reads(LOG, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        log.read(0, 1)
    with pytest.raises(OSError, match="Input/output"):
        log.read_into(memoryview(bytearray(1)), 0)


def test_reads_can_be_cold() -> None:
    disk, log = disk_with_log(b"content")
    asked: list[Path] = []
    disk.wait_for_disk = asked.append
    target = memoryview(bytearray(7))
    assert log.read_into(target, 0, wait=False) == 7
    disk.is_cold = lambda path: path == LOG
    with pytest.raises(BlockingIOError):
        log.read_into(target, 0, wait=False)
    assert not asked
    assert log.read_into(target, 0) == 7
    assert asked == [LOG]


def test_the_trace_lists_the_effects() -> None:
    disk, log = disk_with_log()
    heard: list[Effect] = []
    disk.on_effect(heard.append)
    log.append([b"abc"])
    log.sync()
    disk.sync_directory(ROOT)
    assert disk.trace == heard
    assert [(effect.number, effect.kind, effect.size_bytes) for effect in heard] == [
        (1, "append", 3),
        (2, "sync", 0),
        (3, "sync_directory", 0),
    ]


def test_forks_are_independent() -> None:
    disk, log = disk_with_log(b"base")
    log.append([b"+1"])
    copy = disk.fork()
    log.append([b"+2"])
    copy.open(LOG).append([b"+x"])
    assert disk.files() == {"/log": b"base+1+2"}
    assert copy.files() == {"/log": b"base+1+x"}
    assert (disk.effects, copy.effects) == (2, 2)
    assert copy.after_crash(lambda _: False).files() == {"/log": b"base"}
    assert len(copy.unsynced()) == 2


def test_a_fork_at_each_effect_equals_a_crash_at_that_effect() -> None:
    def run(disk: SimulatedDisk) -> None:
        write_atomically(disk, LOG, b"one" * 300)
        log = disk.open(LOG)
        log.append([b"tail" * 300])
        log.truncate(1000)
        log.sync()
        disk.rename(LOG, Path("/other"))

    disk = SimulatedDisk()
    forks = [disk.fork()]
    disk.on_effect(lambda _: forks.append(disk.fork()))
    run(disk)
    assert len(forks) == disk.effects + 1
    for number, fork in enumerate(forks[:-1], start=1):
        crashed = SimulatedDisk()
        crashed.crash_at(number)
        with pytest.raises(SimulatedCrash):
            run(crashed)
        ours = [left.files() for _, left in fork.variants_after_crash()]
        theirs = [left.files() for _, left in crashed.variants_after_crash()]
        assert ours == theirs


def test_a_crashed_disk_starts_without_faults() -> None:
    disk, log = disk_with_log()
    disk.fail_at(1, OSError(errno.EIO, "Input/output error"), for_ever=True)
    with disk.lock(LOG), pytest.raises(OSError, match="Input/output"):
        log.append([b"x"])
    left = disk.after_crash(lambda _: True)
    with left.lock(LOG):
        left.open(LOG).append([b"works"])
    assert left.unsynced()[0].effect == left.effects == 1


def test_a_closed_file_is_closed() -> None:
    _, log = disk_with_log(b"x")
    log.close()
    for call in (log.size, log.sync, lambda: log.read(0, 1), lambda: log.append([b"x"])):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()


def test_times_and_space_are_set_by_the_test() -> None:
    disk, log = disk_with_log()
    disk.now_ms = 1234
    log.append([b"x"])
    disk.free_space_bytes = 99
    assert disk.modified_ms(LOG) == 1234
    assert disk.free_bytes(ROOT) == 99
    assert disk.after_crash(lambda _: True).modified_ms(LOG) == 1234


@pytest.mark.parametrize(
    ("call", "number"),
    [
        (lambda disk: disk.open(Path("/d")), errno.EISDIR),
        (lambda disk: disk.open(Path("/f/x"), create=True), errno.ENOTDIR),
        (lambda disk: disk.remove(Path("/d")), errno.EISDIR),
        (lambda disk: disk.make_directory(Path("/f")), errno.EEXIST),
        (lambda disk: disk.rename(Path("/f"), Path("/d")), errno.ENOTEMPTY),
        (lambda disk: disk.list_directory(Path("/f")), errno.ENOTDIR),
    ],
)
def test_misuse_is_an_os_error(call: object, number: int) -> None:
    disk = SimulatedDisk()
    disk.plant(Path("/f"), b"")
    disk.plant(Path("/d/x"), b"")
    assert callable(call)
    with pytest.raises(OSError) as raised:  # noqa: PT011 - the number identifies it
        call(disk)
    assert raised.value.errno == number
    assert disk.effects == 0


STEPS = st.lists(
    st.sampled_from(["append", "truncate", "sync", "create", "rename", "remove", "sync_directory"]),
    max_size=25,
)


def perform(disk: SimulatedDisk, steps: list[str]) -> None:
    for number, step in enumerate(steps):
        log = disk.open(LOG, create=True)
        match step:
            case "append":
                log.append([bytes([number + 1]) * (100 * number)])
            case "truncate":
                log.truncate(log.size() // 2)
            case "sync":
                log.sync()
            case "create":
                disk.open(Path(f"/new-{number}"), create=True).append([b"x"])
            case "rename":
                disk.rename(LOG, Path("/renamed"))
            case "remove":
                disk.remove(LOG)
            case _:
                disk.sync_directory(ROOT)


@settings(deadline=None, max_examples=100)
@given(STEPS, st.integers(0, 2**32), st.booleans())
def test_randomness_is_repeatable_and_full_sync_leaves_one_outcome(
    steps: list[str], seed: int, any_subset: bool
) -> None:
    disk = SimulatedDisk()
    perform(disk, steps)
    first = disk.crash(Random(seed), any_subset=any_subset)
    assert first.files() == disk.crash(Random(seed), any_subset=any_subset).files()
    assert first.unsynced() == []
    assert disk.fork().files() == disk.files()

    for name in disk.list_directory(ROOT):
        disk.open(ROOT / name).sync()
    disk.sync_directory(ROOT)
    assert disk.unsynced() == []
    assert [left.files() for _, left in disk.variants_after_crash()] == [disk.files()]
    assert disk.crash(Random(seed)).files() == disk.files()


def test_the_disk_implements_the_file_system_protocol() -> None:
    filesystem: FileSystem = SimulatedDisk()
    assert filesystem.list_directory(ROOT) == []


def test_a_file_that_moves_between_directories_is_never_lost() -> None:
    for synced in (None, "/", "/d"):
        disk = SimulatedDisk()
        disk.plant(Path("/f"), b"content")
        disk.plant(Path("/d/other"), b"")
        disk.rename(Path("/f"), Path("/d/f"))
        assert disk.files() == {"/d/f": b"content", "/d/other": b""}
        if synced is not None:
            disk.sync_directory(Path(synced))
        for _, left in disk.variants_after_crash():
            places = {path for path, content in left.files().items() if content == b"content"}
            assert places == {"/d/f"} or (synced is None and places == {"/f"})


def test_the_durable_content_is_what_every_power_failure_leaves() -> None:
    disk, log = disk_with_log(b"old")
    assert durable_content(disk.root, LOG) == b"old"
    log.append([b" and new"])
    assert durable_content(disk.root, LOG) == b"old"
    log.sync()
    assert durable_content(disk.root, LOG) == b"old and new"
    disk.rename(LOG, ROOT / "other")
    assert durable_content(disk.root, ROOT / "other") is None
    disk.sync_directory(ROOT)
    assert durable_content(disk.root, ROOT / "other") == b"old and new"
    assert durable_content(disk.root, LOG) is None
