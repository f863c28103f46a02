"""A machine of a simulation: an address, a disk, a clock, and one process at a time."""

import asyncio
import errno
import os
from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.testing.simulated_disk import SimulatedDisk
from moldau.testing.simulated_faults import Effect
from moldau.testing.simulation.clock import SimulatedClock
from moldau.testing.simulation.latency import Latency
from moldau.testing.simulation.network import MachineNetwork, SimulatedNetwork
from moldau.testing.simulation.process import Process

if TYPE_CHECKING:
    from moldau.testing.simulation.loop import SimulatedLoop

ResultT = TypeVar("ResultT")

_ANY_SUBSET_RATE = 0.2
_NEEDS_SPACE = frozenset({"append", "create", "mkdir", "write"})


class ProcessDiedError(Exception):
    """The process ended before its work did."""


class Machine:
    """Made by `Simulation.machine`."""

    def __init__(
        self, loop: "SimulatedLoop", network: SimulatedNetwork, chance: Random, address: str
    ) -> None:
        self.address = address
        self.chance = chance
        self.network = MachineNetwork(network, address)
        self.clock_ahead_ms = 0
        self.write_latency = Latency(20e-6, 0.005, 0.002)
        self.sync_latency = Latency(500e-6, 0.3)
        self.disk = SimulatedDisk()
        self.process: Process | None = None
        self.processes: list[Process] = []
        self._loop = loop
        self._everything = network
        self._ended: asyncio.Future[None] | None = None
        self._is_full = False
        self._use(self.disk)

    # A process

    def start_process(self) -> Process:
        """Switches the machine on, if it is off."""
        assert self.process is None, "one process at a time"
        self._everything.powered(self.address)
        number = len(self.processes) + 1
        process = Process(f"{self.address}#{number}", self.address)
        self.process = process
        self.processes.append(process)
        self._loop.add_process(process)
        self._ended = self._loop.create_future()
        self._loop.trace.add(self._loop.time(), process.name, "starts")
        return process

    def new_clock(self) -> SimulatedClock:
        return SimulatedClock(self._loop, self.clock_ahead_ms)

    async def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Runs `work` in the process, from outside. Raises what it raises, or ProcessDiedError."""
        process, ended = self.process, self._ended
        if process is None or ended is None:
            work.close()
            raise ProcessDiedError
        task = self._loop.create_task(work, context=process.context())
        waits: list[asyncio.Future[Any]] = [task, ended]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if process.is_dead:
            # The work may have met its dead disk.
            raise ProcessDiedError
        return task.result()

    def exit(self) -> None:
        """The process ends after its work: a planned end, with an orderly disk."""
        self._end(is_silent=False)
        self._use(self.disk.fork())

    # Faults

    def kill(self) -> None:
        """SIGKILL: nothing of the process runs any more. What it has written is kept."""
        self._end(is_silent=False)
        self._use(self.disk.fork())

    def cut_power(self) -> None:
        """The machine goes off: some of what was not synced is lost. Its peers are not notified."""
        self._end(is_silent=True)
        any_subset = self.chance.random() < _ANY_SUBSET_RATE
        self._use(self.disk.crash(self.chance, any_subset=any_subset))

    def cut_power_at(self, effect: int) -> None:
        """Cuts the power when the disk would change for the nth time from now on."""
        self.disk.on_crash = self.cut_power
        self.disk.crash_at(self.disk.effects + effect)

    def kill_at(self, effect: int) -> None:
        """Kills the process when the disk would change for the nth time from now on."""
        self.disk.on_crash = self.kill
        self.disk.crash_at(self.disk.effects + effect)

    def spare(self) -> None:
        """Takes `cut_power_at` and `kill_at` back."""
        self.disk.crash_at(None)

    def fill_disk(self) -> None:
        """Nothing more fits on it, until `clear_disk`: also after a restart."""
        self._is_full = True
        self._loop.trace.add(self._loop.time(), self.address, "disk full")

    def clear_disk(self) -> None:
        """There is space again."""
        self._is_full = False

    def pause(self) -> None:
        """SIGSTOP."""
        if self.process is not None:
            self.process.is_paused = True
            self._loop.trace.add(self._loop.time(), self.process.name, "pauses")

    def resume(self) -> None:
        """SIGCONT."""
        if self.process is not None:
            self.process.is_paused = False
            self._loop.trace.add(self._loop.time(), self.process.name, "resumes")

    def _end(self, *, is_silent: bool) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        what = "loses power" if is_silent else "ends"
        self._loop.trace.add(self._loop.time(), process.name, what)
        self._loop.end_process(process)
        # Finalizers that run later find a disk that changes no more.
        self.disk.on_crash = _nothing
        self.disk.crash_at(self.disk.effects + 1)
        if is_silent:
            self._everything.silent[self.address] = None
        self._everything.stopped(process, is_silent=is_silent)
        if self._ended is not None:
            self._ended.set_result(None)

    # The disk

    def _use(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        disk.on_effect(self._disk_changed)
        disk.error_of = self._refuse_growth

    def _refuse_growth(self, effect: Effect) -> OSError | None:
        if self._is_full and effect.kind in _NEEDS_SPACE:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), effect.path)
        return None

    def _disk_changed(self, effect: Effect) -> None:
        is_sync = effect.kind.startswith("sync")
        latency = self.sync_latency if is_sync else self.write_latency
        self._loop.spend(latency.draw(self.chance))
        self.disk.now_ms = int(self._loop.time() * 1000)
        self._loop.trace.add(self._loop.time(), self.address, *effect[1:])


def _nothing() -> None:
    """In place of a callback."""
