"""Random faults of controllers and of the network between them under a load of admin calls: frozen
processes, partitions in both directions and in one, and kills. No acknowledged change is lost, done
twice, or undone. Needs network namespaces.
"""

import signal
from pathlib import Path

import pytest
from support.namespaces import Network, network, skip_without_namespaces
from support.running_node import freeze
from support.waiting import wait_at_random
from system.cluster.admin_run import BROKERS, CONTROLLERS, AdminRun, admin_run

_FAULT_S_MAX = 5.0
# A broker that is fenced for a while refuses new topics, which is right and no part of this.
SETTINGS = {"broker.session.timeout.ms": "60000"}


class Faults:
    def __init__(self, run: AdminRun, net: Network) -> None:
        self._run = run
        self._net = net
        self.done: list[str] = []

    def random(self) -> None:
        """A fault, from which all nodes recover."""
        run = self._run
        kinds = (self._freeze, self._kill, self._cut_off, self._cut_one_way, self._cut_from_broker)
        fault = run.chance.choice(kinds)
        victim = run.wait_active().leader_id
        if run.chance.random() < 0.3:
            victim = run.chance.choice(CONTROLLERS)
        self.done.append(fault.__name__.strip("_"))
        fault(victim)
        self._net.heal()

    def _freeze(self, victim: int) -> None:
        process = self._run.cluster.nodes[victim].process.process
        assert process is not None
        freeze(process.pid)
        try:
            self._last()
        finally:
            process.send_signal(signal.SIGCONT)

    def _kill(self, victim: int) -> None:
        self._run.cluster.kill(victim)
        self._last()
        self._run.cluster.start(victim)

    def _cut_off(self, victim: int) -> None:
        self._net.isolate([victim], CONTROLLERS)
        self._last()

    def _cut_one_way(self, victim: int) -> None:
        others = [each for each in CONTROLLERS if each != victim]
        some = self._run.chance.sample(others, self._run.chance.randint(1, 2))
        if self._run.chance.random() < 0.5:
            self._net.drop([victim], some)
        else:
            self._net.drop(some, [victim])
        self._last()

    def _cut_from_broker(self, victim: int) -> None:
        self._net.isolate([victim], [self._run.chance.choice(BROKERS)])
        self._last()

    def _last(self) -> None:
        wait_at_random(self._run.chance, _FAULT_S_MAX)


@pytest.mark.slow
def test_no_acknowledged_change_is_lost_whatever_the_faults(tmp_path: Path) -> None:
    skip_without_namespaces()
    with (
        network([*CONTROLLERS, *BROKERS]) as net,
        admin_run(tmp_path, SETTINGS, net) as run,
    ):
        faults = Faults(run, net)
        for _ in range(25):
            run.wait_for_load()
            faults.random()
            run.use_another_topic()
        run.wait_for_load()
        run.finish_load()
        print(f"{', '.join(faults.done)}; {run.report()}")  # noqa: T201 - the numbers of a long run
        run.check(may_refuse_wrongly=True)
