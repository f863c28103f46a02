"""One file of a log directory is damaged, in every way that `damages` knows, after a clean stop and
after a crash. The log is either repaired or rebuilt (all flushed records are served unchanged), or
refused with an error that names the damage, with every byte kept. Never acceptable: other records
are served, promised records are silently missing, or an unforeseen error is raised.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from storage.faults import checks
from storage.faults.damages import OUTSIDE_THE_CHECKSUM, Damage, damages
from storage.faults.small_node import NAME, ROOT, Node, Setup, small_log
from storage.faults.workload import State, Stored, Workload

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, iterate_batches
from moldau.protocol.records.control_records import committed_batches
from moldau.storage.disk.failures import DirectoryOfflineError
from moldau.storage.log.log import Log
from moldau.storage.log.read import Isolation
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import LeaderEpoch

SETUP = Setup("group", small_log(internal_segment_bytes=1_200))
PARTITION = f"{ROOT}/t-0"
# Committed and aborted transactions, three epochs, five segments, a log start in the middle.
HISTORY = (
    "append in transaction", "append idempotent", "abort", "append", "append in transaction",
    "epoch", "append idempotent", "append", "abort", "roll", "append idempotent", "checkpoint",
    "append in transaction", "append", "commit", "append in transaction", "append", "abort",
    "roll", "append", "epoch", "append idempotent", "flush", "delete records",
    "append in transaction", "append", "append in transaction", "append in transaction", "abort",
    "append", "abort",
    "append idempotent", "append", "flush", "checkpoint", "append", "append in transaction",
    "append", "abort", "append idempotent",
)  # fmt: skip
UNFLUSHED = ("append", "append idempotent", "append")


class Start(NamedTuple):
    """A directory at rest, with the records that it must serve."""

    disk: SimulatedDisk
    state: State
    flushed: int
    committed: tuple[int, ...]
    older: dict[str, bytes]
    now_ms: int


@cache
def start_of(stop: str) -> Start:
    disk = SimulatedDisk()
    work = Workload(disk, SETUP, seed=5)
    work.run(HISTORY)
    older = disk.files()
    if stop == "clean":
        work.do("flush")
        flushed = work.state.log_end
        committed = tuple(committed_offsets(work.node.log))
        work.node.stop()
    else:
        work.run(("flush", "checkpoint"))
        flushed = work.state.log_end
        committed = tuple(committed_offsets(work.node.log))
        work.run(UNFLUSHED)
        work.node.release()
    assert len(work.node.log.segments) >= 4
    return Start(disk, work.state, flushed, committed, older, work.now_ms + 1)


def committed_offsets(log: Log) -> Iterator[int]:
    """Base offsets of the batches that read_committed sees."""
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        result = log.read(offset, 1, isolation=Isolation.COMMITTED)
        aborted = [(a.producer_id, a.first_offset) for a in result.aborted or ()]
        batches = iterate_batches(result.records)
        yield from (b.base_offset for b in committed_batches(batches, aborted))
        assert result.next_offset > offset
        offset = result.next_offset


def outcome(start: Start, damage: Damage) -> str:
    """Returns the outcome. Raises AssertionError if it is not an acceptable one."""
    disk = start.disk.fork()
    path = Path(damage.path)
    if damage.content is None:
        disk.remove(path)
    else:
        disk.plant(path, damage.content)
    before = disk.files()
    try:
        node = Node(disk, SETUP, start.now_ms)
    except MoldauError as error:
        return check_clear(error, str(path.parent), "refused: directory")
    try:
        return judged(node, start, damage, before)
    finally:
        node.release()


def check_clear(error: Exception, path: str, outcome: str) -> str:
    """The error names the damaged path."""
    assert isinstance(error, MoldauError)
    assert path in str(error)
    return outcome


def judged(node: Node, start: Start, damage: Damage, before: dict[str, bytes]) -> str:
    if node.logs.unreadable:
        (error,) = node.logs.unreadable.values()
        return check_clear(error, damage.path, "refused: partition")
    if node.log.damage is not None:
        check_refused(node, start, before, damage)
        return "refused: log"
    try:
        check_serves(node, start, damage)
    except DirectoryOfflineError:
        raise
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE  # noqa: PT017 - the rest is checked
        check_serves_the_rest(node, start, damage)
        return "served around it"
    return "right"


def check_serves_the_rest(node: Node, start: Start, damage: Damage) -> None:
    """All batches that are whole in their files are served; and the log accepts appends
    at its end.
    """
    log = node.log
    found = checks.served_around(log)
    known = set(start.state.batches)
    assert not [b for b in found if b not in known and not is_excused(b, known, damage)]
    lost = [range(each.first_offset, each.next_offset) for _, each in log.damaged]
    owed = checks.promised_by(start.state, start.flushed)
    missing = [b for b in owed if b not in set(found) and not is_excused(b, set(found), damage)]
    assert all(any(b.base_offset in each for each in lost) for b in missing)
    if "bit flipped" in damage.name:
        assert len(missing) == 1, "one bit costs one batch"
    end = log.log_end_offset
    assert end >= start.flushed
    batch = build_batch([Record(0, start.now_ms, None, b"more")], BatchOptions(base_offset=0))
    appended = log.append_as_leader(batch, LeaderEpoch(log.epochs.latest_epoch or 0), start.now_ms)
    assert appended.first_offset == end


def check_refused(node: Node, start: Start, before: dict[str, bytes], damage: Damage) -> None:
    """A clear error, repeatedly; nothing lost; and the owner can continue with the sound part."""
    for _ in range(2):
        with pytest.raises(KafkaError) as raised:
            node.log.read(node.log.log_start_offset, 1)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    there = b"".join(c for p, c in before.items() if p.endswith(".log"))
    owed = [b for b in checks.promised_by(start.state, start.flushed) if b.content in there]
    log = node.logs.accept_damage(NAME, start.now_ms)
    assert log.damage is None
    after = node.filesystem.files()  # type: ignore[attr-defined]
    kept = b"".join(c for p, c in after.items() if ".log" in p)
    assert all(batch.content in kept for batch in owed), "promised bytes were thrown away"
    found = checks.served(log)
    known = set(start.state.batches)
    assert not [b for b in found if b not in known and not is_excused(b, known, damage)]


def is_excused(batch: Stored, known: set[Stored], damage: Damage) -> bool:
    """Only offset or epoch differ, which no checksum covers and nothing else could reveal."""
    return damage.is_hidden and batch.content[16:] in {other.content[16:] for other in known}


def check_serves(node: Node, start: Start, damage: Damage) -> None:
    log = node.log
    found = checks.served(log)
    owed = checks.promised_by(start.state, start.flushed)
    if damage.is_hidden:
        # Kafka's format cannot show the damage: only the content of the batches can be checked.
        known = {b.content[16:] for b in start.state.batches}
        assert {b.content[16:] for b in found} <= known
        return
    # Without its checkpoint the log start falls back; it never moves forward.
    assert log.log_start_offset <= start.state.log_start
    checks.check_is_piece_of(found, [start.state.batches])
    checks.check_holds(found, owed)
    log.raise_high_watermark(log.log_end_offset)
    seen = [o for o in committed_offsets(log) if start.state.log_start <= o < start.flushed]
    wanted = [o for o in start.committed if o >= start.state.log_start]
    assert seen[: len(wanted)] == wanted
    # Epochs before the start are gone; a start that fell back does not restore them.
    checks.check_epochs(log, [b for b in found if b.base_offset >= start.state.log_start])
    checks.check_producers(log, found, is_whole=False)
    checks.check_reads(log, found)


def sweep(stop: str, kind: str, every: int) -> Counter[str]:
    start = start_of(stop)
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    last_log = max(path for path in start.disk.files() if path.endswith(".log"))
    for path, content in sorted(start.disk.files().items()):
        if kind_of(path) != kind:
            continue
        found = list(damages(path, content))
        if start.older.get(path, content) != content:
            found.append(Damage(path, "older version", start.older[path]))
        if path != last_log:
            found = [detected_by_the_next_segment(damage) for damage in found]
        if stop == "clean":
            found = [detected_by_the_manifest(damage) for damage in found]
        for damage in found[::every]:
            try:
                outcomes[outcome(start, damage)] += 1
            except Exception as error:  # noqa: BLE001 - all of them are reported together
                wrong.append(f"{path}, {damage.name}: {type(error).__name__}: {error}"[:300])
    assert not wrong, f"{len(wrong)} of {sum(outcomes.values()) + len(wrong)}:\n" + "\n".join(
        wrong[:40]
    )
    return outcomes


def detected_by_the_next_segment(damage: Damage) -> Damage:
    """No batch reaches the offset at which the next segment begins."""
    return damage._replace(is_hidden=False) if "base offset" in damage.name else damage


def detected_by_the_manifest(damage: Damage) -> Damage:
    """After a clean stop the manifest also vouches for segments, beyond Kafka's formats. Checksums
    cover neither offsets nor epochs in batch headers.
    """
    outside = any(field in damage.name for field in OUTSIDE_THE_CHECKSUM)
    if damage.path.endswith((".log", ".txnindex")) and not outside:
        return damage._replace(is_hidden=False)
    return damage


def kind_of(path: str) -> str:
    name = Path(path).name
    return name[20:] if name[:20].isdecimal() else name


SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
SMALL_FILES = (
    "leader-epoch-checkpoint", "partition.metadata", "meta.properties",
    "recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
    "replication-offset-checkpoint", ".kafka_cleanshutdown", ".lock", "moldau-inventory",
)  # fmt: skip


LEFT_BY_A_CLEAN_STOP = frozenset({".kafka_cleanshutdown", "moldau-inventory"})


@pytest.mark.parametrize("stop", ["clean", "crash"])
@pytest.mark.parametrize("kind", [*SEGMENT_FILES, *SMALL_FILES])
def test_single_damage_makes_no_log_serve_other_records(kind: str, stop: str) -> None:
    """Every seventh damage; the slow suite runs all."""
    outcomes = sweep(stop, kind, every=7)
    assert outcomes or (kind in LEFT_BY_A_CLEAN_STOP and stop == "crash")


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["clean", "crash"])
@pytest.mark.parametrize("kind", [*SEGMENT_FILES, *SMALL_FILES])
def test_no_single_damage_makes_a_log_serve_other_records(kind: str, stop: str) -> None:
    outcomes = sweep(stop, kind, every=1)
    assert outcomes or (kind in LEFT_BY_A_CLEAN_STOP and stop == "crash")


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_every_kind_of_file_is_swept(stop: str) -> None:
    kinds = {kind_of(path) for path in start_of(stop).disk.files()}
    assert kinds <= {*SEGMENT_FILES, *SMALL_FILES}
