"""A story of one node: its clients work while it loses power, is killed, is stopped, and while the
network fails. Whatever it has promised must be so after each start.

    PYTHONPATH=tests python -m testing.simulation.one_node 17        repeats one seed
    PYTHONPATH=tests python -m testing.simulation.one_node 17 lines  and shows every event
"""

import asyncio
import errno
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from testing.simulation.actors import (
    GROUP,
    OFFSETS_AT,
    TRANSACTIONS_GROUP,
    Actor,
    Admin,
    GroupMember,
    IdempotentProducer,
    TransactionalProducer,
    Work,
)
from testing.simulation.history import (
    PARTITIONS,
    History,
    committed_offset,
    expect,
    read,
    wait_until_stable,
)
from testing.simulation.talking import Client

from moldau.testing.simulation.clock import SimulatedClock
from moldau.testing.simulation.latency import Latency
from moldau.testing.simulation.machine import Machine, ProcessDiedError
from moldau.testing.simulation.node import SimulatedNode
from moldau.testing.simulation.simulation import OUTSIDE_ADDRESS, Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

STARTS_MAX = 50


@dataclass
class Report:
    """The outcome of a seed."""

    seed: int
    checksum: int = 0
    events: int = 0
    virtual_s: float = 0.0
    real_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


class OneNode:
    def __init__(self, seed: int, *, keeps_lines: bool = False) -> None:
        self.simulation = Simulation(seed, keeps_lines=keeps_lines)
        self.history = History()
        self.counts: Counter[str] = Counter()
        self._chance = self.simulation.chance_for("story")
        self._machine = self.simulation.machine()
        self._node = SimulatedNode(self._machine, drawn_settings(self._chance))
        self._clock = SimulatedClock(self.simulation.loop)
        self._work = Work()

    async def story(self) -> None:
        draw_latencies(self._chance, self.simulation, self._machine)
        await self._start()
        await self._create_topics()
        self._draw_network_faults()
        actors = self._actors()
        tasks = [asyncio.ensure_future(actor.run(self._work)) for actor in actors]
        for _ in range(self._chance.randint(2, 5)):
            await self._clock.sleep(self._chance.choice([5, 50, 300, 1_000]))
            await self._fault()
            self._raise_early(tasks)
        self._heal()
        if self._machine.process is None:
            await self._start()
        await self._clock.sleep(300)
        self._work.is_over = True
        await asyncio.gather(*tasks)
        await self._check(is_end=True)
        await self._stop()
        await self._start()
        await self._check(is_end=True)
        for actor in actors:
            if isinstance(actor, TransactionalProducer):
                self.counts.update(actor.counts)
            if isinstance(actor, GroupMember):
                self.counts["commits"] += actor.commits

    # Clients

    def _client(self, name: str) -> Client:
        return Client(self._clock, self._node.address, name)

    def _actors(self) -> list[Actor]:
        chance, history, numbers = self.simulation.chance_for, self.history, count()
        return [
            IdempotentProducer(self._client("a"), history, chance("a"), "a"),
            IdempotentProducer(self._client("b"), history, chance("b"), "b"),
            TransactionalProducer(self._client("x"), history, chance("x"), "x", numbers),
            GroupMember(self._client("m"), history, chance("m")),
            Admin(self._client("t"), history, chance("t")),
        ]

    async def _create_topics(self) -> None:
        node = self._node.node
        assert node is not None
        for name in ("plain", "both"):
            await self._machine.run(node.create_topic(name, PARTITIONS, {}))

    # Faults

    async def _fault(self) -> None:
        drawn = self._chance.randrange(9)
        if self._machine.process is None:
            # A fault of the disk came first.
            drawn = 0
        if drawn <= 1:
            self._lose_power()
            await self._clock.sleep(self._chance.choice([0, 10, 2_000]))
        elif drawn == 2:
            await self._die_at_effect()
        elif drawn == 3:
            self.counts["kill"] += 1
            self._machine.kill()
        elif drawn == 4:
            await self._stop()
        elif drawn == 5:
            await self._fail_disk()
        elif drawn == 6:
            await self._pause()
            return
        elif drawn == 7:
            await self._cut_network()
            return
        else:
            self.counts["broken connections"] += 1
            self.simulation.network.break_connections(self._machine.address)
            return
        await self._start()
        await self._check(is_end=False)

    def _lose_power(self) -> None:
        self.counts["power cut"] += 1
        if self._machine.process is not None:
            self._machine.cut_power()

    async def _die_at_effect(self) -> None:
        dies_at = self._chance.choice([self._machine.cut_power_at, self._machine.kill_at])
        dies_at(self._chance.choice([1, 2, 3, 5, 10, 30, 100]))
        for _ in range(20):
            if self._machine.process is None:
                self.counts["death in an effect"] += 1
                return
            await self._clock.sleep(50)
        self._lose_power()

    async def _fail_disk(self) -> None:
        """Nothing can be known about what such a disk has: the power goes, too."""
        self.counts["disk error"] += 1
        error = OSError(errno.EIO, "Input/output error")
        self._machine.disk.fail_by_chance(self._chance, self._chance.choice([0.02, 0.5]), error)
        await self._clock.sleep(self._chance.choice([50, 500, 3_000]))
        self._lose_power()

    async def _cut_network(self) -> None:
        """In one direction, or in both."""
        self.counts["network cut"] += 1
        network, there = self.simulation.network, self._machine.address
        ways = [(OUTSIDE_ADDRESS, there), (there, OUTSIDE_ADDRESS)]
        for source, target in self._chance.sample(ways, self._chance.randint(1, 2)):
            network.cut(source, target)
        await self._clock.sleep(self._chance.choice([10, 500, 12_000]))
        network.heal()

    async def _pause(self) -> None:
        self.counts["pause"] += 1
        self._machine.pause()
        await self._clock.sleep(self._chance.choice([10, 500, 12_000]))
        self._machine.resume()

    def _draw_network_faults(self) -> None:
        faults = self.simulation.network.faults
        faults.break_rate = self._chance.choice([0.0, 0.0, 0.01, 0.05])
        faults.lost_answer_rate = self._chance.choice([0.0, 0.0, 0.01, 0.05])

    def _heal(self) -> None:
        faults = self.simulation.network.faults
        faults.break_rate = faults.lost_answer_rate = 0.0
        self._machine.resume()

    # The life of the node

    async def _start(self) -> None:
        """Sometimes the power fails during the start, too."""
        for _ in range(STARTS_MAX):
            self.counts["start"] += 1
            if self._chance.random() < 0.1:
                self._machine.cut_power_at(self._chance.randint(1, 30))
                self.counts["power cut in a start"] += 1
            try:
                await self._node.start()
            except ProcessDiedError:
                continue
            self._machine.spare()
            return
        raise AssertionError("the node does not start any more")

    async def _stop(self) -> None:
        self.counts["stop"] += 1
        try:
            await self._node.stop()
        except ProcessDiedError:
            self.counts["power cut in a stop"] += 1

    # Checks

    async def _check(self, *, is_end: bool) -> None:
        client, committed = self._client("reader"), {}
        for place in [*self.history.acknowledged]:
            if is_end:
                await wait_until_stable(client, place)
            expected = dict(self.history.acknowledged[place])
            found = await read(client, place, committed=False)
            self.history.check_all(place, expected, found)
            found = await read(client, place, committed=True)
            committed[place] = list(found.values())
            self.history.check_committed(place, committed[place], is_end=is_end)
        if is_end:
            self.history.check_atomic(committed)
            offset = await committed_offset(client, TRANSACTIONS_GROUP, OFFSETS_AT)
            self.history.check_transaction_offset(offset)
            self.history.check_group_offset(await committed_offset(client, GROUP, OFFSETS_AT))
        node = self._node.node
        expect(node is None or node.failure is None, "the node has failed")
        expect(not self.simulation.problems, "\n".join(self.simulation.problems))

    def _raise_early(self, tasks: "Sequence[asyncio.Future[None]]") -> None:
        for task in tasks:
            if task.done():
                task.result()


def drawn_settings(chance: Random) -> dict[str, str]:
    return {
        "moldau.flush.policy": chance.choice(["group", "group", "strict"]),
        "moldau.flush.interval.ms": chance.choice(["0", "2", "10"]),
        "metadata.log.max.record.bytes.between.snapshots": chance.choice(
            ["20", "2000", "20000000"]
        ),
        "metadata.max.idle.interval.ms": chance.choice(["500", "5000"]),
        "broker.heartbeat.interval.ms": chance.choice(["500", "2000"]),
        "log.roll.ms": chance.choice(["500", "600000"]),
        "log.cleaner.backoff.ms": chance.choice(["300", "15000"]),
        "log.cleaner.min.cleanable.ratio": "0.0",
        "log.flush.offset.checkpoint.interval.ms": chance.choice(["100", "60000"]),
        "producer.id.expiration.check.interval.ms": "600000",
    }


def draw_latencies(chance: Random, simulation: Simulation, machine: Machine) -> None:
    simulation.network.faults.latency = Latency(
        chance.choice([50e-6, 1e-3]), chance.choice([0.05, 1.0])
    )
    simulation.loop.thread_latency = Latency(
        chance.choice([20e-6, 1e-3]), chance.choice([0.05, 0.5])
    )
    machine.sync_latency = Latency(chance.choice([200e-6, 5e-3]), chance.choice([0.05, 1.0]))


def story(seed: int, *, keeps_lines: bool = False) -> Report:
    """Runs one seed. Raises BrokenPromiseError, or whatever else went wrong."""
    one = OneNode(seed, keeps_lines=keeps_lines)
    report = Report(seed, counts=one.counts)
    began_s = time.perf_counter()
    try:
        one.simulation.run(one.story())
    finally:
        report.real_s = time.perf_counter() - began_s
        trace = one.simulation.trace
        report.checksum, report.events = trace.checksum, trace.count
        report.virtual_s = one.simulation.loop.time()
        one.counts["acknowledged"] = sum(map(len, one.history.acknowledged.values()))
        one.counts["checks"] = one.history.reads
        if keeps_lines:
            sys.stdout.write("\n".join([*trace.lines, *one.simulation.log_lines, ""]))
    return report


if __name__ == "__main__":
    done = story(int(sys.argv[1]), keeps_lines="lines" in sys.argv)
    sys.stdout.write(f"{done}\n")
