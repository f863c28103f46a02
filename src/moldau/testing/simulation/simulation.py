"""One simulation: its loop, its network, its machines, and what went wrong in it."""

import asyncio
import contextlib
import gc
import logging
import threading
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any, TypeVar

from moldau import unexpected
from moldau.net import stopwatch
from moldau.testing.simulated_faults import SimulatedCrash
from moldau.testing.simulation.latency import Latency
from moldau.testing.simulation.loop import SimulatedLoop
from moldau.testing.simulation.machine import Machine
from moldau.testing.simulation.network import SimulatedNetwork
from moldau.testing.simulation.process import Process, running_process
from moldau.testing.simulation.trace import Trace

ResultT = TypeVar("ResultT")

OUTSIDE_ADDRESS = "127.0.0.1"
"""Where clients are that belong to no machine."""
_FIRST_ADDRESS = 11
_SLICE_ENDS_RATE = 0.01


class Simulation:
    """A world of machines that runs on virtual time. Everything in it follows from the seed.

        simulation = Simulation(7)
        node = SimulatedNode(simulation.machine())

        async def story() -> None:
            await node.start()
            ...
            node.machine.cut_power()
            await node.start()

        simulation.run(story())

    Args:
        seed: The same seed gives the same run, if the program is the same.
        keeps_lines: Keep each event as a line of text in `trace.lines`.
    """

    def __init__(self, seed: int, *, keeps_lines: bool = False) -> None:
        self.seed = seed
        self.trace = Trace(keeps_lines=keeps_lines)
        latency = Latency(100e-6, 0.1)
        self.loop = SimulatedLoop(  # type: ignore[abstract]
            self.chance_for("order"), self.trace, latency
        )
        self.network = SimulatedNetwork(self.loop, self.chance_for("network"), self.trace)
        self.log_lines: list[str] = []
        """Warnings and errors of all processes."""
        self._problems: list[str] = []
        self._machines: list[Machine] = []
        self._work_chance = self.chance_for("work")
        self._outside = Process("outside", OUTSIDE_ADDRESS)
        self.loop.add_process(self._outside)

    def chance_for(self, purpose: str) -> Random:
        """Returns a source of its own for each purpose, so that one does not disturb the other."""
        return Random(f"{self.seed} {purpose}")  # noqa: S311 - the same seed, the same run

    def machine(self) -> Machine:
        """Returns a new machine with an empty disk."""
        number = len(self._machines)
        address = f"127.0.0.{_FIRST_ADDRESS + number}"
        made = Machine(self.loop, self.network, self.chance_for(address), address)
        self._machines.append(made)
        return made

    async def pass_time(self, seconds: float) -> None:
        """Waits in virtual time."""
        await asyncio.sleep(seconds)

    @property
    def problems(self) -> list[str]:
        """Errors that no code has foreseen or handled: bugs."""
        return self._problems + self.loop.problems

    def run(self, story: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Runs `story` outside of all machines, and then nothing more: a simulation runs once.
        Returns what the story returns and raises what it raises; NothingLeftError if it waits for
        something that cannot happen.
        """
        with self._undisturbed():
            try:
                result: ResultT = self._outside.context().run(self.loop.run_until_complete, story)
                return result
            finally:
                self._dispose()

    def _dispose(self) -> None:
        self.loop.close()
        asyncio._set_running_loop(self.loop)
        try:
            for machine in self._machines:
                machine.disk.on_crash = lambda: None
                machine.disk.crash_at(machine.disk.effects + 1)
                for process in machine.processes:
                    process.dispose()
            self._outside.dispose()
        finally:
            asyncio._set_running_loop(None)

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Lets nothing in from outside, and no line out."""
        was_collecting = gc.isenabled()
        interval_s = unexpected.INTERVAL_S
        # A finalizer must not run at a moment that depends on other tests.
        gc.disable()
        unexpected.INTERVAL_S = 0.0
        try:
            with stopwatch.replaced_by(self._stopwatch_s), self._captured_log():
                yield
        finally:
            unexpected.INTERVAL_S = interval_s
            if was_collecting:
                gc.enable()

    def _stopwatch_s(self) -> float:
        # Now and then work takes longer than a slice.
        is_long = self._work_chance.random() < _SLICE_ENDS_RATE
        self.loop.spend(0.003 if is_long else 1e-6)
        return self.loop.time()

    @contextlib.contextmanager
    def _captured_log(self) -> Iterator[None]:
        logger = logging.getLogger("moldau")
        handler = _Lines(self)
        before = logger.propagate, logger.level
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = before[0]
            logger.setLevel(before[1])

    def logged(self, record: logging.LogRecord) -> None:
        """Called for each line that a process logs."""
        process = running_process()
        if process.is_dead:
            return
        line = f"{self.loop.time():.6f} {process.name} {record.levelname} {record.getMessage()}"
        self.log_lines.append(line)
        if record.exc_info and not isinstance(record.exc_info[1], SimulatedCrash):
            self._problems.append(f"{line}\n{logging.Formatter().formatException(record.exc_info)}")


class _Lines(logging.Handler):
    """Nodes in other threads are not part of the simulation."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._simulation.logged(record)
