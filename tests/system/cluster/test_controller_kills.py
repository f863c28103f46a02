"""The active controller is killed again and again while clients create, change, read and delete
topics. Each answer is right, whatever has happened to the controllers.
"""

import itertools
import time
from pathlib import Path

import pytest
from support.waiting import wait_at_random
from system.cluster.admin_run import CONTROLLERS, AdminRun, admin_run

# Victims besides the active controller, by the last digit of a round's number.
_OTHER_VICTIMS = {3: 1, 7: 2}
_KILLED_WHILE_STARTING = 5


class Kills:
    def __init__(self, run: AdminRun) -> None:
        self._run = run
        self.count = 0
        self._successors_s: list[float] = []
        """Times from the end of an active controller until another one is active."""

    def kill(self, number: int) -> None:
        """Usually the active controller alone; sometimes with another one, or all of them, so that
        only their disks have what was acknowledged.
        """
        run, cluster = self._run, self._run.cluster
        wait_at_random(run.chance, 0.2)
        active = run.wait_active().leader_id
        others = [each for each in CONTROLLERS if each != active]
        victims = [active, *others[: _OTHER_VICTIMS.get(number % 10, 0)]]
        begun = time.monotonic()
        for victim in victims:
            cluster.kill(victim)
        if len(victims) == 1:
            successor = run.wait_active()
            self._successors_s.append(time.monotonic() - begun)
            assert successor.leader_id != active
        if number % 10 == _KILLED_WHILE_STARTING:
            cluster.nodes[active].process.launch()
            wait_at_random(run.chance, 1)
            cluster.kill(active)
        cluster.start(*victims)
        self.count += len(victims)

    def report(self) -> str:
        times = sorted(self._successors_s)
        return (
            f"{self.count} kills; of {len(times)} controllers that died alone, a successor after "
            f"{times[len(times) // 2]:.2f} s (median), {times[len(times) * 9 // 10]:.2f} s "
            f"(nine of ten), {times[-1]:.2f} s (longest); {self._run.report()}"
        )


def run_kills(folder: Path, count: int) -> None:
    with admin_run(folder) as run:
        kills = Kills(run)
        for number in itertools.count():
            run.wait_for_load()
            if kills.count >= count:
                break
            kills.kill(number)
            run.use_another_topic()
        run.finish_load()
        print(kills.report())  # noqa: T201 - the numbers of a long run
        run.check_no_broker_was_fenced()
        run.check()


def test_admin_calls_are_linearizable_while_controllers_are_killed(tmp_path: Path) -> None:
    run_kills(tmp_path, 5)


@pytest.mark.slow
def test_admin_calls_are_linearizable_across_a_hundred_kills(tmp_path: Path) -> None:
    run_kills(tmp_path, 100)
