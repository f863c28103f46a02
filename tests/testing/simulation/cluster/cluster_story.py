"""A story of a cluster: clients change its metadata, write, read and commit offsets while its nodes
lose power, are killed, stopped and paused, while their disks fail and the network is cut. An
observer compares what all nodes do with what a quorum promises.

    PYTHONPATH=tests python -m testing.simulation.cluster.cluster_story 17        repeats one seed
    PYTHONPATH=tests python -m testing.simulation.cluster.cluster_story 17 lines  with every event
    PYTHONPATH=tests python -m testing.simulation.cluster.cluster_story 100-400   runs all of them
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, TypeAlias

from testing.simulation.actors import (
    GROUP,
    OFFSETS_AT,
    GroupMember,
    IdempotentProducer,
    Work,
)
from testing.simulation.cluster.cluster_actors import Admin, Imposter, Operator, Reader
from testing.simulation.cluster.keeper import Keeper
from testing.simulation.cluster.nemesis import Nemesis
from testing.simulation.cluster.quorum_observer import QuorumObserver
from testing.simulation.cluster.routed_client import RoutedClient
from testing.simulation.history import PARTITIONS, History, committed_offset, expect, read
from testing.simulation.talking import Client

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.testing.simulation.clock import SimulatedClock
from moldau.testing.simulation.latency import Latency
from moldau.testing.simulation.node import CONTROLLER_PORT, simulated_cluster
from moldau.testing.simulation.simulation import Simulation

Actor: TypeAlias = IdempotentProducer | GroupMember | Admin | Imposter | Operator | Reader

SHAPES = [["controller"] * 3 + ["broker"] * 2, ["broker,controller"] * 3]
PATIENCE_MS = 60_000
"""For everything to work again once nothing fails any more."""
_LOOK_MS = 50
_TOPICS_VERSION = 7


@dataclass
class Report:
    """The outcome of a seed."""

    seed: int
    checksum: int = 0
    events: int = 0
    virtual_s: float = 0.0
    real_s: float = 0.0
    recovery_ms: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


class ClusterStory:
    def __init__(self, seed: int, *, keeps_lines: bool = False) -> None:
        simulation = self.simulation = Simulation(seed, keeps_lines=keeps_lines)
        chance = self._chance = simulation.chance_for("story")
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.recovery_ms = 0.0
        """How long it took until everything worked again."""
        self._clock = SimulatedClock(simulation.loop)
        is_static = chance.random() < 0.3
        self._nodes = simulated_cluster(
            simulation,
            chance.choice(SHAPES),
            drawn_settings(chance),
            static_voters=is_static,
        )
        self._changes_voters = not is_static and chance.random() < 0.4
        self.observer = QuorumObserver(simulation, self._nodes)
        self._keepers = [
            Keeper(each, self._clock, simulation.chance_for(f"keeper {each.node_id}"), self.counts)
            for each in self._nodes
        ]
        self._nemesis = Nemesis(simulation, self._keepers, self.observer, self._clock, self.counts)
        self._work = Work()

    async def story(self) -> None:
        draw_latencies(self._chance, self.simulation)
        self._draw_machines()
        running = [asyncio.ensure_future(each.run()) for each in self._keepers]
        await self._create_topics()
        self._nemesis.draw_network_faults()
        actors = self._actors()
        tasks = [asyncio.ensure_future(actor.run(self._work)) for actor in actors]
        for _ in range(self._chance.randint(4, 16)):
            await self._clock.sleep(self._chance.choice([5, 50, 500, 2_000, 6_000]))
            await self._nemesis.strike()
            self._raise_early([*running, *tasks])
        await self._clock.sleep(self._chance.choice([0, 3_000]))
        await self._nemesis.end()
        healed_ms = self._clock.mono_ms()
        await self._wait_until(self._all_work, "the cluster does not work again", running)
        self.recovery_ms = self._clock.mono_ms() - healed_ms
        self._work.is_over = True
        await self._wait_until(lambda: all(each.done() for each in tasks), "clients wait", tasks)
        await self._check()
        await self._end(running)
        for actor in actors:
            if isinstance(actor, Admin | Imposter | Operator):
                self.counts[f"answers for {type(actor).__name__}"] += actor.answers

    def _draw_machines(self) -> None:
        for node in self._nodes:
            machine = node.machine
            slow_s = self._chance.choice([0.05, 0.5])
            machine.sync_latency = Latency(self._chance.choice([200e-6, 5e-3]), slow_s)
            machine.clock_ahead_ms = self._chance.choice([0, 0, -1_500, 40_000])

    # Clients

    def _client(self, name: str) -> RoutedClient:
        brokers = [each.address for each in self._nodes if each.is_broker]
        return RoutedClient(
            self._clock, brokers, name, self.simulation.chance_for(f"client {name}")
        )

    def _actors(self) -> list[Actor]:
        chance, history, metadata = self.simulation.chance_for, self.history, self.observer.history
        values = count()
        controllers = [
            Client(self._clock, (each.machine.address, CONTROLLER_PORT), "direct")
            for each in self._nodes
            if each.is_controller
        ]
        operators: list[Actor] = (
            [Operator(controllers, self.observer, chance("o"))] if self._changes_voters else []
        )
        return [
            *operators,
            IdempotentProducer(self._client("a"), history, chance("a"), "a"),
            IdempotentProducer(self._client("b"), history, chance("b"), "b"),
            GroupMember(self._client("m"), history, chance("m")),
            Reader(self._client("r"), history, chance("r")),
            Admin(self._client("s"), self.observer, chance("s"), values),
            Admin(self._client("t"), self.observer, chance("t"), values),
            Imposter(controllers, metadata, chance("i")),
        ]

    async def _create_topics(self) -> None:
        client = self._client("first")
        for name in ("plain", "both"):
            topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
            await client.persist(request, _TOPICS_VERSION, _created_code)

    def _raise_early(self, tasks: "Sequence[asyncio.Future[None]]") -> None:
        self.observer.check()
        for task in tasks:
            if task.done():
                task.result()

    # The end

    async def _wait_until(
        self,
        holds: Callable[[], bool],
        otherwise: str,
        tasks: "Sequence[asyncio.Future[None]]",
    ) -> None:
        until_ms = self._clock.mono_ms() + PATIENCE_MS
        while not holds():
            self._raise_early(tasks)
            expect(self._clock.mono_ms() < until_ms, f"{otherwise}: {self._state()}")
            await self._clock.sleep(_LOOK_MS)
        self._raise_early(tasks)

    def _all_work(self) -> bool:
        """Every node runs, follows the quorum's leader, and is not fenced."""
        if not all(each.is_up and each.machine.process is not None for each in self._keepers):
            return False
        end, image = self.observer.history.end_offset, self.observer.history.image
        image_of = self.observer.image_of
        is_current = all(image_of(each).offset >= end - 2 for each in self._nodes)
        return is_current and not any(broker.is_fenced for broker in image.brokers.values())

    def _state(self) -> str:
        leader = self.observer.leading()
        images = {each.node_id: self.observer.image_of(each).offset for each in self._nodes}
        return (
            f"up: {[each.node.node_id for each in self._keepers if each.is_up]}, leader: "
            f"{None if leader is None else leader.node_id}, images at {images}, committed up to "
            f"{self.observer.history.end_offset}"
        )

    async def _check(self) -> None:
        self.observer.check()
        client = self._client("last")
        for place in [*self.history.acknowledged]:
            expected = dict(self.history.acknowledged[place])
            found = await read(client, place, committed=False)
            self.history.check_all(place, expected, found)
        self.history.check_group_offset(await committed_offset(client, GROUP, OFFSETS_AT))
        expect(not self.simulation.problems, "\n".join(self.simulation.problems))

    async def _end(self, running: "Sequence[asyncio.Future[None]]") -> None:
        """All stop; sometimes they start again, and nothing has changed."""
        if self._chance.random() < 0.3:
            for keeper in self._keepers:
                keeper.rest(2 * PATIENCE_MS)
                keeper.ask_to_stop()
            await self._wait_until(
                lambda: all(each.machine.process is None for each in self._keepers),
                "not all stop",
                running,
            )
            for keeper in self._keepers:
                keeper.end_rest()
            await self._wait_until(self._all_work, "not all start again", running)
            await self._check()
        for keeper in self._keepers:
            keeper.end()
        await self._wait_until(
            lambda: all(each.done() for each in running), "not all stop at the end", running
        )
        self.observer.check()
        expect(not self.simulation.problems, "\n".join(self.simulation.problems))


def _created_code(answer: Any) -> int:
    code = ErrorCode(answer.topics[0].error_code)
    if code is ErrorCode.INVALID_REPLICATION_FACTOR:
        # All brokers are fenced for a moment.
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NONE if code is ErrorCode.TOPIC_ALREADY_EXISTS else code


def drawn_settings(chance: Random) -> dict[str, str]:
    return {
        "moldau.flush.policy": chance.choice(["group", "group", "strict"]),
        "moldau.flush.interval.ms": chance.choice(["0", "2", "10"]),
        "metadata.log.max.record.bytes.between.snapshots": chance.choice(
            ["20", "2000", "20000000"]
        ),
        "metadata.max.retention.bytes": chance.choice(["1", "5000", "104857600"]),
        "internal.metadata.log.segment.bytes": chance.choice(["2000", "1073741824"]),
        "metadata.max.idle.interval.ms": chance.choice(["500", "2000"]),
        "broker.heartbeat.interval.ms": chance.choice(["500", "2000"]),
        "broker.session.timeout.ms": chance.choice(["3000", "9000"]),
        "controller.quorum.fetch.timeout.ms": chance.choice(["1000", "2000"]),
        "controller.quorum.election.timeout.ms": chance.choice(["30", "1000"]),
        "controller.quorum.fetch.max.bytes": chance.choice(["300", "1048576"]),
        "controller.quorum.fetch.snapshot.max.bytes": chance.choice(["700", "1048576"]),
        "log.flush.offset.checkpoint.interval.ms": chance.choice(["100", "60000"]),
    }


def draw_latencies(chance: Random, simulation: Simulation) -> None:
    simulation.network.faults.latency = Latency(
        chance.choice([50e-6, 1e-3]), chance.choice([0.05, 0.6]), chance.choice([0.002, 0.01])
    )
    simulation.loop.thread_latency = Latency(
        chance.choice([20e-6, 1e-3]), chance.choice([0.05, 0.3]), chance.choice([0.002, 0.01])
    )


def story(seed: int, *, keeps_lines: bool = False) -> Report:
    """Runs one seed. Raises BrokenPromiseError, or whatever else went wrong."""
    one = ClusterStory(seed, keeps_lines=keeps_lines)
    report = Report(seed, counts=one.counts)
    began_s = time.perf_counter()
    try:
        one.simulation.run(one.story())
    finally:
        report.real_s = time.perf_counter() - began_s
        trace = one.simulation.trace
        report.checksum, report.events = trace.checksum, trace.count
        report.recovery_ms = one.recovery_ms
        report.virtual_s = one.simulation.loop.time()
        one.counts.update(one.observer.counts)
        one.counts["acknowledged"] = sum(map(len, one.history.acknowledged.values()))
        one.counts["committed"] = one.observer.history.end_offset
        if keeps_lines:
            sys.stdout.write("\n".join([*trace.lines, *one.simulation.log_lines, ""]))
    return report


def many(first: int, last: int) -> int:
    """Returns how many failed."""
    failed, slowest_ms = 0, 0.0
    for seed in range(first, last + 1):
        try:
            slowest_ms = max(slowest_ms, story(seed).recovery_ms)
        except Exception as error:  # noqa: BLE001 - the others are run, too
            failed += 1
            sys.stdout.write(f"{seed}: {type(error).__name__}: {error}\n")
            sys.stdout.flush()
    sys.stdout.write(
        f"{last + 1 - first} seeds, {failed} failed; everything worked again after "
        f"{slowest_ms:.0f} ms at most\n"
    )
    return failed


if __name__ == "__main__":
    low, dash, high = sys.argv[1].partition("-")
    if dash:
        sys.exit(1 if many(int(low), int(high)) else 0)
    done = story(int(low), keeps_lines="lines" in sys.argv)
    sys.stdout.write(f"{done}\n")
