"""The power fails after every single effect on the disk, in every way that the simulated disk
knows. Promised records are kept, nothing else appears, and the log can be used.
"""

from random import Random

import pytest
from storage.faults.crash_points import Judge, record
from storage.faults.small_node import Setup, small_log
from storage.faults.workload import operations

DELETING = small_log(retention_bytes=2_500)
COMPACTING = small_log(cleanup_policy=("compact",))
POLICIES = ("os", "group", "strict")


def crash_everywhere(setup: Setup, seed: int, count: int, *, nested_every: int) -> Judge:
    chosen = operations(Random(seed), count, compacts=setup.config.compacts)
    work, points = record(setup, seed, chosen)
    judge = Judge(setup, work, nested_every=nested_every)
    for point in points:
        judge.judge(point)
    assert judge.verdicts.recovered > 0
    return judge


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", POLICIES)
def test_a_power_failure_anywhere_keeps_flushed_records(policy: str, seed: int) -> None:
    crash_everywhere(Setup(policy, DELETING), seed, 13, nested_every=50)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_power_failure_anywhere_keeps_the_last_values_of_a_compacted_log(policy: str) -> None:
    crash_everywhere(Setup(policy, COMPACTING), 1, 13, nested_every=50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 108))
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("config", [DELETING, COMPACTING], ids=["deleting", "compacting"])
def test_power_failures_in_long_workloads(policy: str, config: object, seed: int) -> None:
    setup = Setup(policy, DELETING if config is DELETING else COMPACTING)
    crash_everywhere(setup, seed, 22, nested_every=80)
