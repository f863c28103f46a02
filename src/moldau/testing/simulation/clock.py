"""The clock of a simulated machine: the time of the simulation, shifted."""

from typing import TYPE_CHECKING

from moldau.net.clock import Clock

if TYPE_CHECKING:
    from moldau.testing.simulation.loop import SimulatedLoop

WALL_START_MS = 1_700_000_000_000


class SimulatedClock(Clock):
    """Timers fire when the time of the loop has come. `ahead_ms` is how far this machine's wall
    clock is ahead of the others.
    """

    def __init__(self, loop: "SimulatedLoop", ahead_ms: int = 0) -> None:
        super().__init__()
        self._loop = loop
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return WALL_START_MS + self.ahead_ms + int(self._loop.time() * 1000)

    def mono_ms(self) -> float:
        return self._loop.time() * 1000
