"""The faults of a simulated cluster: each is begun at a drawn moment, or when the quorum has a new
leader, and ends after a while, in which others happen.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from testing.simulation.cluster.keeper import Keeper
from testing.simulation.cluster.quorum_observer import QuorumObserver

from moldau.net.clock import Clock
from moldau.testing.simulation.latency import Latency
from moldau.testing.simulation.simulation import OUTSIDE_ADDRESS, Simulation

if TYPE_CHECKING:
    from collections import Counter

    from moldau.testing.simulation.machine import Machine

_RESTS_MS = [0, 100, 1_500, 8_000, 25_000]
_LASTS_MS = [20, 700, 3_000, 12_000]
_LEADER_RATE = 0.4
_LOOK_MS = 5
_WAITS_MS = 20_000

Fault = Callable[[], Awaitable[None]]


class Nemesis:
    def __init__(
        self,
        simulation: Simulation,
        keepers: Sequence[Keeper],
        observer: QuorumObserver,
        clock: Clock,
        counts: "Counter[str]",
    ) -> None:
        self._simulation = simulation
        self._keepers = list(keepers)
        self._observer = observer
        self._clock = clock
        self._counts = counts
        self._chance = simulation.chance_for("faults")
        self._tasks: list[asyncio.Future[None]] = []
        self._faults: list[tuple[str, Fault]] = [
            ("power cut", self._cut_power),
            ("power cut of several", self._cut_power_of_several),
            ("kill", self._kill),
            ("death in an effect", self._die_at_effect),
            ("stop", self._stop),
            ("pause", self._pause),
            ("cut in one direction", self._cut_one_way),
            ("isolation", self._isolate),
            ("delay", self._delay),
            ("broken connections", self._break_connections),
            ("slow disk", self._slow_disk),
            ("full disk", self._fill_disk),
            ("disk error", self._fail_disk),
            ("fault of a new leader", self._strike_new_leader),
            ("faults of voters", self._strike_voters),
        ]
        self._voters_die_rate = 0.0
        self._sync_latencies: dict[Machine, Latency] = {}
        """The usual ones of machines whose disks were slow."""
        observer.on_vote = self._voted

    def draw_network_faults(self) -> None:
        faults, chance = self._simulation.network.faults, self._chance
        faults.break_rate = chance.choice([0.0, 0.0, 0.002, 0.02])
        faults.lost_answer_rate = chance.choice([0.0, 0.0, 0.002, 0.02])

    async def strike(self) -> None:
        """Begins one fault."""
        name, fault = self._chance.choice(self._faults)
        self._counts[name] += 1
        self._tasks.append(asyncio.ensure_future(fault()))

    async def end(self) -> None:
        """Everything heals, and every node is started again."""
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        faults = self._simulation.network.faults
        faults.break_rate = faults.lost_answer_rate = self._voters_die_rate = 0.0
        self._simulation.network.heal()
        for machine, usual in self._sync_latencies.items():
            machine.sync_latency = usual
        for keeper in self._keepers:
            keeper.is_calm = True
            keeper.machine.spare()
            keeper.machine.resume()
            keeper.machine.clear_disk()
            keeper.end_rest()

    # Whom it hits

    def _victim(self, leader_rate: float = _LEADER_RATE) -> Keeper:
        leader = self._observer.leading()
        if leader is not None and self._chance.random() < leader_rate:
            return next(each for each in self._keepers if each.node is leader)
        return self._chance.choice(self._keepers)

    async def _last(self) -> None:
        await self._clock.sleep(self._chance.choice(_LASTS_MS))

    # Processes

    async def _cut_power(self) -> None:
        self._switch_off(self._victim())

    async def _cut_power_of_several(self) -> None:
        count = self._chance.randint(2, len(self._keepers))
        for keeper in self._chance.sample(self._keepers, count):
            self._switch_off(keeper)

    def _switch_off(self, keeper: Keeper) -> None:
        keeper.rest(self._chance.choice(_RESTS_MS))
        keeper.machine.cut_power()

    async def _kill(self) -> None:
        keeper = self._victim()
        keeper.rest(self._chance.choice(_RESTS_MS))
        keeper.machine.kill()

    async def _die_at_effect(self) -> None:
        machine = self._victim().machine
        dies_at = self._chance.choice([machine.cut_power_at, machine.kill_at])
        dies_at(self._chance.choice([1, 2, 3, 5, 10, 30]))

    async def _stop(self) -> None:
        keeper = self._victim()
        keeper.rest(self._chance.choice(_RESTS_MS))
        keeper.ask_to_stop()

    async def _pause(self) -> None:
        machine = self._victim().machine
        machine.pause()
        await self._last()
        machine.resume()

    # The network

    def _others(self, keeper: Keeper) -> list[str]:
        return [each.machine.address for each in self._keepers if each is not keeper]

    async def _cut_one_way(self) -> None:
        keeper = self._victim()
        here, network = keeper.machine.address, self._simulation.network
        others = [*self._others(keeper), OUTSIDE_ADDRESS]
        is_deaf = self._chance.random() < 0.5
        for other in self._chance.sample(others, self._chance.randint(1, len(others))):
            network.cut(*((other, here) if is_deaf else (here, other)))
        await self._last()
        network.heal()

    async def _isolate(self) -> None:
        """A group of nodes from the others, in both directions. Clients reach all of them, so a
        leader among them takes requests. Sometimes it ends before it is back.
        """
        network = self._simulation.network
        addresses = [each.machine.address for each in self._keepers]
        victim = self._victim(leader_rate=0.8)
        count = self._chance.choice([0, 0, 1, len(addresses) // 2])
        group = {victim.machine.address, *self._chance.sample(addresses, count)}
        for one in addresses:
            for other in addresses:
                if (one in group) != (other in group):
                    network.cut(one, other)
        await self._last()
        ending = self._chance.randrange(6)
        if ending == 0:
            victim.ask_to_stop()
        elif ending == 1:
            victim.machine.kill()
        if ending <= 1:
            await self._last()
        network.heal()

    async def _delay(self) -> None:
        keeper, network = self._victim(), self._simulation.network
        here, seconds = keeper.machine.address, self._chance.choice([0.05, 0.6, 3.0])
        for other in self._others(keeper):
            if self._chance.random() < 0.6:
                network.delay(here, other, seconds)
            if self._chance.random() < 0.6:
                network.delay(other, here, seconds)
        await self._last()
        network.heal()

    async def _break_connections(self) -> None:
        self._simulation.network.break_connections(self._victim().machine.address)

    # Disks

    async def _slow_disk(self) -> None:
        machine = self._victim().machine
        usual = self._sync_latencies.setdefault(machine, machine.sync_latency)
        slow_s = self._chance.choice([0.05, 0.4, 2.0])
        machine.sync_latency = Latency(slow_s, 3 * slow_s, 0.1)
        await self._last()
        machine.sync_latency = usual

    async def _fill_disk(self) -> None:
        keeper = self._victim()
        keeper.has_disk_trouble = True
        keeper.machine.fill_disk()
        await self._last()
        keeper.machine.clear_disk()

    async def _fail_disk(self) -> None:
        keeper = self._victim()
        keeper.has_disk_trouble = keeper.is_disk_broken = True
        error = OSError(errno.EIO, "Input/output error")
        rate = self._chance.choice([0.02, 0.5])
        keeper.machine.disk.fail_by_chance(self._chance, rate, error)
        await self._clock.sleep(self._chance.choice([50, 500, 3_000]))
        self._switch_off(keeper)

    # When something happens

    async def _strike_voters(self) -> None:
        """For a while they die right after they have voted, and are soon back. Elections come with
        it, and requests to vote are late.
        """
        network = self._simulation.network
        self._voters_die_rate = 0.7
        for _ in range(self._chance.randint(1, 4)):
            for keeper in self._keepers:
                for other in self._others(keeper):
                    delay_s = self._chance.choice([0.0, 0.02, 0.1, 0.5])
                    network.delay(keeper.machine.address, other, delay_s)
            self._switch_off(self._victim())
            await self._clock.sleep(self._chance.choice([1_000, 4_000]))
        self._voters_die_rate = 0.0
        network.heal()

    def _voted(self, address: str) -> None:
        if self._chance.random() >= self._voters_die_rate:
            return
        keeper = next(each for each in self._keepers if each.machine.address == address)
        self._counts["death after a vote"] += 1
        keeper.rest(self._chance.choice([0, 0, 100]))
        if self._chance.random() < 0.5:
            keeper.machine.kill()
        else:
            keeper.machine.cut_power()

    async def _strike_new_leader(self) -> None:
        """Just when a node was elected, or while it commits its first records."""
        elections, waited_ms = self._observer.counts["election"], 0
        while self._observer.counts["election"] == elections and waited_ms < _WAITS_MS:
            await self._clock.sleep(_LOOK_MS)
            waited_ms += _LOOK_MS
        leader = self._observer.leading()
        if leader is None:
            return
        keeper = next(each for each in self._keepers if each.node is leader)
        drawn = self._chance.randrange(4)
        if drawn == 0:
            self._switch_off(keeper)
        elif drawn == 1:
            keeper.machine.cut_power_at(self._chance.randint(1, 12))
        elif drawn == 2:
            keeper.machine.pause()
            await self._last()
            keeper.machine.resume()
        else:
            for other in self._others(keeper):
                self._simulation.network.cut(keeper.machine.address, other)
            await self._last()
            self._simulation.network.heal()
