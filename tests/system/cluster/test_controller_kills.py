"""The active controller is killed again and again while clients create, change, read and delete
topics. Each answer is right, whatever has happened to the controllers: the history of all calls is
linearizable, and all nodes end with the same metadata.

A deposed controller that does not know it yet could refuse a call because of what it remembers, as
in Kafka. It would have to stand still until the others elect another one; here they only die.
"""

import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.linearizability import UNKNOWN, violations
from support.running_cluster import RunningCluster, running_cluster
from support.waiting import wait_at_random, wait_for
from support.wire_client import WireClient
from system.cluster.admin_load import (
    BrokerCaller,
    Caller,
    ControllerCaller,
    History,
    Quorum,
    Watcher,
    active_controller,
)
from system.cluster.admin_model import ABSENT, ReadSetting, step
from system.cluster.final_views import check_equal_logs, check_equal_views

CONTROLLERS, BROKERS = (1, 2, 3), (4, 5)
TOPICS = 4
_CALLS_BETWEEN_KILLS = 30
_NEW_CONTROLLER_MAX_S = 30.0
SETTINGS = {
    # A broker must not be fenced because its controller dies.
    "broker.session.timeout.ms": "9000",
    "metadata.log.max.record.bytes.between.snapshots": "50000",
    "metadata.max.idle.interval.ms": "500",
}


@dataclass
class KillRun:
    cluster: RunningCluster
    seed: str
    history: History = field(default_factory=History)
    elections_s: list[float] = field(default_factory=list)
    """Times from a kill until another controller is active."""
    epochs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.callers: list[Caller] = []
        self._named = 0
        self.history.use([self._new_name() for _ in range(TOPICS)])

    def _new_name(self) -> str:
        self._named += 1
        return f"topic-{self._named}"

    def controller_addresses(self) -> list[str]:
        return [node.controller_address for node in self.cluster.controllers]

    def start_load(self) -> None:
        addresses = [node.address for node in self.cluster.brokers]
        for number, address in enumerate(addresses * 2):
            chance = random.Random(f"{self.seed} broker {number}")
            self.callers.append(BrokerCaller(f"client-{number}", self.history, chance, address))
        for number in range(2):
            chance = random.Random(f"{self.seed} controller {number}")
            self.callers.append(
                ControllerCaller(
                    f"direct-{number}", self.history, chance, self.controller_addresses
                )
            )
        self.callers += [Watcher(self.history, address) for address in addresses]
        for caller in self.callers:
            caller.start()

    def wait_for_load(self) -> None:
        wanted = self.history.answered + _CALLS_BETWEEN_KILLS
        wait_for(
            lambda: self.history.answered >= wanted or bool(self.history.problems),
            "answered calls",
        )
        assert not self.history.problems, self.history.problems[:3]

    def wait_active(self) -> Quorum:
        found: list[Quorum] = []

        def is_active() -> bool:
            quorum = active_controller(self.cluster)
            found.extend([quorum] if quorum is not None else [])
            return bool(found)

        wait_for(is_active, "an active controller", _NEW_CONTROLLER_MAX_S)
        return found[-1]

    def kill_active(self) -> None:
        wait_at_random(self.chance, 0.2)
        victim = self.wait_active().leader_id
        begun = time.monotonic()
        self.cluster.kill(victim)
        successor = self.wait_active()
        self.elections_s.append(time.monotonic() - begun)
        self.epochs.append(successor.epoch)
        assert successor.leader_id != victim
        self.cluster.start(victim)
        # Other topics from time to time: a call without a response may happen at any later time.
        self.history.use([*self.history.names[1:], self._new_name()])

    def all_names(self) -> list[str]:
        return [f"topic-{number}" for number in range(1, self._named + 1)]

    def finish_load(self) -> None:
        for caller in self.callers:
            caller.finish()
        assert not self.history.problems, self.history.problems[:3]
        for caller in self.callers:
            if isinstance(caller, Watcher):
                assert caller.reads > 0

    def read_everything(self) -> dict[str, tuple[str, str]]:
        """Number of partitions and setting of all topics, by the active controller. It is part of
        the history.
        """
        reader = ControllerCaller("reader", self.history, self.chance, self.controller_addresses)
        leader = self.cluster.nodes[self.wait_active().leader_id]
        with WireClient(leader.controller_address) as wire:
            for name in self.all_names():
                assert reader.read(wire, name)
        last = [each for each in self.history.operations if each.process == "reader"]
        return {
            count.key: (count.outcome, setting.outcome)
            for count, setting in zip(last[::2], last[1::2], strict=True)
        }

    def check_history(self) -> None:
        found = violations(self.history.operations, ABSENT, step)
        assert not found, "\n".join(map(str, found[:3]))

    def report(self) -> str:
        operations = self.history.operations
        unknown = sum(each.outcome is UNKNOWN for each in operations)
        outcomes = ", ".join(f"{k}: {n}" for k, n in sorted(self.history.outcomes().items()))
        times = sorted(self.elections_s)
        return (
            f"{len(times)} kills, {len(operations)} calls, {unknown} of them without an outcome, "
            f"last epoch {self.epochs[-1]}; a new controller after {times[len(times) // 2]:.2f} s "
            f"(median), {times[len(times) * 9 // 10]:.2f} s (nine of ten), "
            f"{times[-1]:.2f} s (longest); {outcomes}"
        )

    def reads(self) -> int:
        return sum(isinstance(each.call, ReadSetting) for each in self.history.operations)


@contextmanager
def kill_run(folder: Path) -> Iterator[KillRun]:
    seed = secrets.token_hex(4)
    roles = ["controller"] * len(CONTROLLERS) + ["broker"] * len(BROKERS)
    with running_cluster(folder, roles, SETTINGS) as cluster:
        cluster.start()
        run = KillRun(cluster, seed)
        try:
            yield run
        except AssertionError as error:
            error.add_note(f"seed {seed}, after {len(run.elections_s)} kills")
            error.add_note(
                "\n".join(each.process.errors[-1500:] for each in cluster.nodes.values())
            )
            raise
        finally:
            for caller in run.callers:
                caller.stop()


def run_kills(folder: Path, kills: int) -> None:
    with kill_run(folder) as run:
        run.start_load()
        for _ in range(kills):
            run.wait_for_load()
            run.kill_active()
        run.wait_for_load()
        run.finish_load()
        found = run.read_everything()
        print(run.report())  # noqa: T201 - the numbers of a long run
        run.check_history()
        check_no_broker_was_fenced(run.cluster)
        check_equal_views(run.cluster, found)
        check_equal_logs(run.cluster, CONTROLLERS, run.wait_active().high_watermark)


def check_no_broker_was_fenced(cluster: RunningCluster) -> None:
    for node in cluster.nodes.values():
        assert "is fenced: its session has expired" not in node.process.errors


def test_admin_calls_are_linearizable_while_controllers_are_killed(tmp_path: Path) -> None:
    run_kills(tmp_path, 5)


@pytest.mark.slow
def test_admin_calls_are_linearizable_across_a_hundred_kills(tmp_path: Path) -> None:
    run_kills(tmp_path, 100)
