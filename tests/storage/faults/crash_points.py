"""Every state of a simulated disk that a power failure during a workload can leave, and the
promises of the log at that moment.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from storage.faults import checks
from storage.faults.small_node import NAME, Node, Setup
from storage.faults.workload import Step, Stored, Workload

from moldau.testing.simulated_disk import Effect, SimulatedDisk

EVERYTHING = "everything is left"


@dataclass
class CrashPoint:
    """The disk right after one effect."""

    effect: Effect
    disk: SimulatedDisk
    step: Step
    flushed: int
    high_watermark: int


def record(setup: Setup, seed: int, operations: list[str]) -> tuple[Workload, list[CrashPoint]]:
    """Runs the operations and keeps a copy of the disk after each effect."""
    disk = SimulatedDisk()
    work = Workload(disk, setup, seed)
    points: list[CrashPoint] = []

    def keep(effect: Effect) -> None:
        if work.steps:
            log = work.node.log
            points.append(
                CrashPoint(
                    effect, disk.fork(), work.steps[-1], log.flushed_offset, log.high_watermark
                )
            )

    disk.on_effect(keep)
    work.run(operations)
    return work, points


@dataclass
class Verdicts:
    """Counts of each outcome: a suite without any repair has tested nothing."""

    recovered: int = 0
    refused: int = 0
    nested: int = 0


class Judge:
    """Opens each state and checks it. The same state with the same promises is checked once."""

    def __init__(self, setup: Setup, work: Workload, *, nested_every: int) -> None:
        self.setup = setup
        self.now_ms = work.now_ms + 1_000
        self.verdicts = Verdicts()
        self._nested_every = nested_every
        self._seen: set[tuple[int, int, int, bool]] = set()
        names = {step.name for step in work.steps}
        self._compacts = "compact" in names
        self._is_whole = not names & {"compact", "retention", "delete records", "start over"}

    def judge(self, point: CrashPoint, only: tuple[str, ...] = ()) -> None:
        """Checks all states that a power failure can leave at this point, or the given ones."""
        for name, disk in self._variants(point.disk):
            if only and name not in only:
                break
            keeps_all = name == EVERYTHING
            state = hash(tuple(disk.files().items()))
            key = (state, id(point.step), point.flushed, keeps_all)
            if key in self._seen:
                continue
            self._seen.add(key)
            try:
                self._judge_one(disk, point, keeps_all=keeps_all)
                if len(self._seen) % self._nested_every == 0:
                    self._judge_nested(disk, point)
            except Exception as error:
                where = f"{point.step.name}, after {point.effect}: {name}"
                raise AssertionError(where) from error

    @staticmethod
    def _variants(disk: SimulatedDisk) -> Iterator[tuple[str, SimulatedDisk]]:
        return disk.variants_after_crash()

    def _judge_nested(self, disk: SimulatedDisk, point: CrashPoint) -> None:
        """The power fails again, during recovery."""
        boundaries: list[SimulatedDisk] = []
        again = disk.fork()
        again.on_effect(lambda _: boundaries.append(again.fork()))
        Node(again, self.setup, self.now_ms).release()
        for boundary in boundaries:
            for keeps in (True, False):
                self.verdicts.nested += 1
                left = boundary.after_crash(lambda _, keeps=keeps: keeps)  # type: ignore[misc]
                self._judge_one(left, point, keeps_all=False)

    def _judge_one(self, disk: SimulatedDisk, point: CrashPoint, *, keeps_all: bool) -> None:
        disk = disk.fork()
        node = Node(disk, self.setup, self.now_ms)
        was_clean = node.directory.clean_stop_epoch is not None
        step = point.step
        assert not node.logs.unreadable, node.logs.unreadable
        if node.log.damage is not None:
            # Only batches that were committed without being flushed may be missing.
            assert self.setup.policy == "os", node.log.damage
            first = node.log.damage.first_offset
            assert all(b.last_offset < first for b in self._owed(point, point.flushed))
            self.verdicts.refused += 1
            assert node.logs.accept_damage(NAME, self.now_ms).damage is None
        if node.log.damaged:
            self._judge_damaged(node, point)
            return
        found = checks.check_log(node.log, is_whole=self._is_whole)
        if self._compacts:
            self._check_compacted(found, step)
        else:
            checks.check_is_piece_of(found, step.candidates())
        start = max(step.before.log_start, step.after.log_start)
        low = min(step.before.durable_start, step.after.durable_start)
        assert low <= node.log.log_start_offset
        if not step.name.startswith(("truncate", "start over")):
            assert node.log.log_start_offset <= start
        self._check_promises(found, point, keeps_all=keeps_all)
        node.release()
        if was_clean:
            Node(disk, self.setup, self.now_ms).release()
        checks.check_recovering_again_changes_nothing(disk, self.setup, self.now_ms, found)
        again = Node(disk, self.setup, self.now_ms)
        checks.check_accepts_appends(again, self.now_ms, found)
        again.release()
        self.verdicts.recovered += 1

    def _judge_damaged(self, node: Node, point: CrashPoint) -> None:
        """Batches in the middle are missing that were committed without being flushed."""
        assert self.setup.policy == "os", node.log.damaged
        owed = self._owed(point, point.flushed)
        for _, damaged in node.log.damaged:
            first, end = damaged.first_offset, damaged.next_offset
            assert all(b.last_offset < first or b.base_offset >= end for b in owed)
        self.verdicts.refused += 1
        self._check_compacted(checks.held_batches(node.log), point.step)
        node.release()

    def _owed(self, point: CrashPoint, end: int) -> list[Stored]:
        """Batches before `end` that exist both before and after the step."""
        in_both, start = set(point.step.after.batches), point.step.after.log_start
        owed = checks.promised_by(point.step.before, end)
        return [b for b in owed if b in in_both and b.last_offset >= start]

    def _check_promises(self, found: list[Stored], point: CrashPoint, *, keeps_all: bool) -> None:
        step = point.step
        if step.name == "start over":
            return
        end = step.before.log_end if keeps_all else point.flushed
        if self._compacts:
            if "truncate" not in step.name and step.name != "delete records":
                self._check_values(found, step, end)
            return
        checks.check_holds(found, self._owed(point, end))

    def _check_compacted(self, found: list[Stored], step: Step) -> None:
        known = {batch for history in step.candidates() for batch in history}
        assert not [b[:2] for b in found if b not in known]

    def _check_values(self, found: list[Stored], step: Step, end: int) -> None:
        """Compaction may drop records, but never the last value of a key."""
        start = max(step.before.log_start, step.after.log_start)
        below = [b for b in step.before.batches if start <= b.last_offset < end]
        kept = [b for b in found if start <= b.last_offset < end]
        assert checks.table_of(kept) == checks.table_of(below)
