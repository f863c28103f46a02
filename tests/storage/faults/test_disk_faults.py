"""The n-th effect on the disk fails, for every n: no space, an I/O error, half a write. The error
is clear, memory and disk agree, a failed directory is never used again, and no acknowledged record
is lost after the next start.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from random import Random

import pytest
from storage.faults import checks
from storage.faults.crash_points import CrashPoint, Judge
from storage.faults.small_node import Setup, small_log
from storage.faults.workload import Step, Workload, operations

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.compaction.run import CompactionAbortedError
from moldau.storage.disk.disk_steps import run_here
from moldau.storage.disk.failures import DirectoryOfflineError
from moldau.testing.simulated_disk import Effect, SimulatedDisk

DELETING = small_log(retention_bytes=2_500)
COMPACTING = small_log(cleanup_policy=("compact",))
SYNCS = frozenset({"sync", "sync_directory"})


def error_of(number: int) -> OSError:
    return OSError(number, os.strerror(number), "simulated")


Plan = Callable[[SimulatedDisk, Effect], bool]


def no_space(disk: SimulatedDisk, effect: Effect) -> bool:
    disk.fail_at(effect.number, error_of(errno.ENOSPC))
    return effect.kind not in {*SYNCS, "remove"}


def input_output_error(disk: SimulatedDisk, effect: Effect) -> bool:
    disk.fail_at(effect.number, error_of(errno.EIO))
    return True


def half_a_write(number: int) -> Plan:
    def plan(disk: SimulatedDisk, effect: Effect) -> bool:
        disk.short_write_at(effect.number, effect.size_bytes // 2, error_of(number))
        return effect.kind in {"append", "write"} and effect.size_bytes > 1

    return plan


PLANS: dict[str, Plan] = {
    "no space": no_space,
    "i/o error": input_output_error,
    "half a write, then no space": half_a_write(errno.ENOSPC),
    "half a write, then an i/o error": half_a_write(errno.EIO),
}


@cache
def trace_of(setup: Setup, seed: int, names: tuple[str, ...]) -> tuple[int, tuple[Effect, ...]]:
    """The effects of the workload without failures, except those of creating the log."""
    disk = SimulatedDisk()
    work = Workload(disk, setup, seed)
    made = disk.effects
    work.run(names)
    return made, tuple(disk.trace[made:])


class Failed:
    """A workload in which one effect failed, continued as far as possible."""

    def __init__(self, setup: Setup, seed: int, names: tuple[str, ...]) -> None:
        self.disk = SimulatedDisk()
        self.work = Workload(self.disk, setup, seed)
        self.names = names
        self.error: Exception | None = None
        self.step = -1

    def run(self) -> None:
        for number, name in enumerate(self.names):
            try:
                self.work.do(name)
            except (KafkaError, CompactionAbortedError) as error:
                self.error, self.step = error, number
                return

    @property
    def is_offline(self) -> bool:
        return not self.work.node.directory.is_online

    @property
    def did_not_start(self) -> bool:
        """The old node stopped cleanly; the fault occurred while the new one opened."""
        return self.names[self.step] == "restart" and self.work.node.log.is_abandoned


def check_error(error: Exception) -> None:
    if isinstance(error, KafkaError):
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        text = str(error)
        assert "/disk/data" in text or "t-0" in text


def check_stays_offline(failed: Failed) -> None:
    """A failed disk is never used again."""
    work, before = failed.work, failed.disk.effects
    node = work.node
    for use in (
        lambda: node.log.read(node.log.log_start_offset, 1),
        lambda: work.append(Step("too late", work.state, work.state), -1),
        node.log.flush,
        lambda: run_here(node.logs.checkpoints.writing()),
        lambda: node.log.roll(work.now_ms),
        node.directory.mark_clean_stop,
    ):
        with pytest.raises(DirectoryOfflineError):
            use()
    node.flusher.run_round()
    assert failed.disk.effects == before


def check_recovers_with_space(failed: Failed) -> None:
    """A refusal for lack of space only: memory and disk agree, and with space again all works."""
    work = failed.work
    log = work.node.log
    found = checks.held_batches(log)
    checks.check_offsets(log, found)
    assert log.log_end_offset == work.state.log_end
    work.do("append idempotent")
    work.do("append")
    work.do("flush")
    checks.check_log(work.node.log)


def check_one(setup: Setup, seed: int, names: tuple[str, ...], plan: Plan, effect: Effect) -> str:
    failed = Failed(setup, seed, names)
    if not plan(failed.disk, effect):
        return "does not apply"
    failed.run()
    if failed.error is None:
        return "survived"
    check_error(failed.error)
    work = failed.work
    step = work.steps[-1]
    log = work.node.log
    if not failed.is_offline and not failed.did_not_start:
        check_recovers_with_space(failed)
        return "refused"
    point = CrashPoint(effect, failed.disk.fork(), step, log.flushed_offset, log.high_watermark)
    if failed.is_offline:
        check_stays_offline(failed)
    judge = Judge(setup, work, nested_every=1_000_000)
    judge.judge(point, only=("nothing unsynced is left", "everything is left"))
    return "offline"


def faults(
    setup: Setup, seed: int, names: tuple[str, ...], plan: Plan, every: int
) -> Iterator[tuple[Effect, str]]:
    _, trace = trace_of(setup, seed, names)
    for effect in trace[::every]:
        try:
            yield effect, check_one(setup, seed, names, plan, effect)
        except Exception as error:
            raise AssertionError(f"{effect} failed") from error


def run_faults(setup: Setup, seed: int, count: int, plan: Plan, every: int = 1) -> Counter[str]:
    names = tuple(operations(Random(seed), count, compacts=setup.config.compacts))
    return Counter(outcome for _, outcome in faults(setup, seed, names, plan, every))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("policy", ["os", "group", "strict"])
def test_a_failing_effect_is_refused_or_final(policy: str, plan: str) -> None:
    outcomes = run_faults(Setup(policy, DELETING), 11, 12, PLANS[plan])
    assert outcomes["offline"] + outcomes["refused"] > 0


@pytest.mark.parametrize("plan", PLANS)
def test_a_failing_effect_during_compaction_is_refused_or_final(plan: str) -> None:
    outcomes = run_faults(Setup("group", COMPACTING), 3, 14, PLANS[plan])
    assert outcomes["offline"] + outcomes["refused"] > 0


def test_a_full_disk_refuses_an_append_and_the_next_one_succeeds() -> None:
    outcomes = run_faults(Setup("group", DELETING), 11, 12, no_space)
    assert outcomes["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("policy", ["os", "group", "strict"])
@pytest.mark.parametrize("seed", range(200, 208))
@pytest.mark.parametrize("compacts", [False, True], ids=["deleting", "compacting"])
def test_failing_effects_in_long_workloads(
    policy: str, plan: str, seed: int, *, compacts: bool
) -> None:
    setup = Setup(policy, COMPACTING if compacts else DELETING)
    assert run_faults(setup, seed, 24, PLANS[plan])
