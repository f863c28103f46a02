"""A cluster of real processes under a load of admin calls, and the checks at the end: the calls are
linearizable, no broker was fenced, and all nodes have the same metadata.

A deposed controller that does not know it yet can refuse a call because of what it remembers, as in
Kafka. For that it must be cut off or stand still until the others have elected another one.
"""

import random
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.linearizability import UNKNOWN, Operation, violations
from support.namespaces import Network
from support.running_cluster import RunningCluster, running_cluster
from support.waiting import wait_for
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
from system.cluster.admin_model import ABSENT, DONE, step
from system.cluster.final_views import check_equal_logs, check_equal_views

CONTROLLERS, BROKERS = (1, 2, 3), (4, 5)
TOPICS = 4
_CALLS_BETWEEN_FAULTS = 30
_READER = "reader"
# Snapshots are made and the log is cleaned many times.
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "50000",
    "internal.metadata.log.segment.bytes": "50000",
    "metadata.max.retention.bytes": "200000",
}


@dataclass
class AdminRun:
    cluster: RunningCluster
    seed: str
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self._callers: list[Caller] = []
        self._topics = 0
        self.history.use([self._new_topic() for _ in range(TOPICS)])

    # The load

    def _new_topic(self) -> str:
        self._topics += 1
        return f"topic-{self._topics}"

    def use_another_topic(self) -> None:
        """Instead of the oldest one: calls without a response may happen at any later time."""
        self.history.use([*self.history.names[1:], self._new_topic()])

    def controller_addresses(self) -> list[str]:
        return [node.controller_address for node in self.cluster.controllers]

    def start_load(self) -> None:
        addresses = [node.address for node in self.cluster.brokers]
        for number, address in enumerate(addresses * 2):
            chance = random.Random(f"{self.seed} broker {number}")
            self._callers.append(BrokerCaller(f"client-{number}", self.history, chance, address))
        for number in range(2):
            chance = random.Random(f"{self.seed} controller {number}")
            name = f"direct-{number}"
            self._callers.append(
                ControllerCaller(name, self.history, chance, self.controller_addresses)
            )
        self._callers += [Watcher(self.history, address) for address in addresses]
        for caller in self._callers:
            caller.start()

    def wait_for_load(self) -> None:
        wanted = self.history.answered + _CALLS_BETWEEN_FAULTS
        wait_for(
            lambda: self.history.answered >= wanted or bool(self.history.problems),
            "answered calls",
        )
        assert not self.history.problems, self.history.problems[:3]

    def finish_load(self) -> None:
        for caller in self._callers:
            caller.finish()
        assert not self.history.problems, self.history.problems[:3]
        assert all(each.reads > 0 for each in self._callers if isinstance(each, Watcher))

    def give_up(self) -> None:
        """Something else has failed: does not wait for them."""
        for caller in self._callers:
            caller.stop()

    # The quorum

    def wait_active(self) -> Quorum:
        found: list[Quorum] = []

        def is_active() -> bool:
            quorum = active_controller(self.cluster)
            found.extend([quorum] if quorum is not None else [])
            return bool(found)

        wait_for(is_active, "an active controller")
        return found[-1]

    def wait_all_caught_up(self) -> None:
        def is_caught_up() -> bool:
            found = active_controller(self.cluster)
            return found is not None and all(
                end >= found.high_watermark for end in found.ends.values()
            )

        wait_for(is_caught_up, "all voters to follow")

    # The end

    def check(self, *, may_refuse_wrongly: bool = False) -> None:
        """The load is over, and all nodes run. `may_refuse_wrongly`: only successful changes are
        judged, and the state at the end.
        """
        self.wait_all_caught_up()
        expected = self._read_everything()
        judged = [
            each
            for each in self.history.operations
            if not may_refuse_wrongly or _changes_or_is_last(each)
        ]
        found = violations(judged, ABSENT, step)
        assert not found, "\n".join(map(str, found[:3]))
        check_equal_views(self.cluster, expected)
        check_equal_logs(self.cluster, CONTROLLERS, self.wait_active().high_watermark)

    def _read_everything(self) -> dict[str, tuple[str, str]]:
        """Number of partitions and setting of all topics, by the active controller. It is part of
        the history.
        """
        reader = ControllerCaller(_READER, self.history, self.chance, self.controller_addresses)
        leader = self.cluster.nodes[self.wait_active().leader_id]
        with WireClient(leader.controller_address) as wire:
            for number in range(1, self._topics + 1):
                assert reader.read(wire, f"topic-{number}")
        last = [each for each in self.history.operations if each.process == _READER]
        return {
            count.key: (count.outcome, setting.outcome)
            for count, setting in zip(last[::2], last[1::2], strict=True)
        }

    def check_no_broker_was_fenced(self) -> None:
        for node in self.cluster.nodes.values():
            assert "is fenced: its session has expired" not in node.process.errors

    def report(self) -> str:
        operations = self.history.operations
        unknown = sum(each.outcome is UNKNOWN for each in operations)
        outcomes = ", ".join(f"{k}: {n}" for k, n in sorted(self.history.outcomes().items()))
        return (
            f"{len(operations)} calls, {unknown} of them without an outcome, last epoch "
            f"{self.wait_active().epoch}; {outcomes}"
        )


def _changes_or_is_last(operation: Operation) -> bool:
    return operation.outcome in {DONE, UNKNOWN} or operation.process == _READER


@contextmanager
def admin_run(
    folder: Path, settings: Mapping[str, str] | None = None, net: Network | None = None
) -> Iterator[AdminRun]:
    seed = secrets.token_hex(4)
    roles = ["controller"] * len(CONTROLLERS) + ["broker"] * len(BROKERS)
    chosen = SETTINGS | dict(settings or {})
    with running_cluster(folder, roles, chosen, network=net) as cluster:
        cluster.start()
        run = AdminRun(cluster, seed)
        try:
            run.start_load()
            yield run
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            for node in cluster.nodes.values():
                error.add_note(f"node {node.node_id}:\n{node.process.errors[-1500:]}")
            raise
        finally:
            run.give_up()
