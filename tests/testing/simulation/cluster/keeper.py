"""Keeps a node of a simulated cluster running, as an operator's supervisor does: whatever ended it,
it starts again, after a while.
"""

from random import Random
from typing import TYPE_CHECKING

from testing.simulation.history import expect

from moldau.net.clock import Clock
from moldau.protocol.errors import MoldauError
from moldau.testing.simulation.machine import ProcessDiedError
from moldau.testing.simulation.node import SimulatedNode

if TYPE_CHECKING:
    from collections import Counter

_LOOK_MS = 40
_FAILED_START_MS = 500
_DEADLY_START_RATE = 0.05


class Keeper:
    def __init__(
        self, node: SimulatedNode, clock: Clock, chance: Random, counts: "Counter[str]"
    ) -> None:
        self.node = node
        self.machine = node.machine
        self.has_disk_trouble = False
        """Only then a node may fail."""
        self.is_disk_broken = False
        """A sync failed, or may have: nothing can be known about what the disk has. Its machine is
        switched off before the node starts again.
        """
        self.is_calm = False
        """Nothing fails any more."""
        self.is_up = False
        self._clock = clock
        self._chance = chance
        self._counts = counts
        self._rests_until_ms = 0.0
        self._is_over = False
        self._is_asked_to_stop = False

    async def run(self) -> None:
        while not self._is_over:
            rest_ms = self._rests_until_ms - self._clock.mono_ms()
            if rest_ms > 0:
                await self._clock.sleep(min(rest_ms, _LOOK_MS))
            elif await self._start():
                await self._watch()

    # Faults

    def rest(self, milliseconds: float) -> None:
        """It does not start before that time has passed."""
        self._rests_until_ms = self._clock.mono_ms() + milliseconds

    def end_rest(self) -> None:
        self._rests_until_ms = 0.0

    def ask_to_stop(self) -> None:
        """As by SIGTERM."""
        self._is_asked_to_stop = True

    def end(self) -> None:
        """It is not started again after its next end."""
        self._is_over = True
        self._is_asked_to_stop = True

    # Its life

    async def _start(self) -> bool:
        self._counts["start"] += 1
        if self.is_disk_broken:
            self.machine.cut_power()
            self.is_disk_broken = False
        if not self.is_calm and self._chance.random() < _DEADLY_START_RATE:
            self._counts["death in a start"] += 1
            dies_at = self._chance.choice([self.machine.cut_power_at, self.machine.kill_at])
            dies_at(self._chance.randint(1, 40))
        try:
            await self.node.start()
        except ProcessDiedError:
            return False
        except MoldauError:
            # No quorum in time, or a disk that is full. Its process exits.
            self._counts["failed start"] += 1
            self.machine.kill()
            self.rest(_FAILED_START_MS)
            return False
        self.machine.spare()
        self.is_up = True
        return True

    async def _watch(self) -> None:
        self._is_asked_to_stop = self._is_over
        while self.machine.process is not None:
            node = self.node.node
            if node is not None and node.failure is not None:
                expect(
                    self.has_disk_trouble, f"node {self.node.node_id} has failed: {node.failure}"
                )
                self._counts["failed node"] += 1
                await self._stop()
            elif self._is_asked_to_stop:
                await self._stop()
            else:
                await self._clock.sleep(_LOOK_MS)
        self.is_up = False

    async def _stop(self) -> None:
        self._counts["stop"] += 1
        try:
            await self.node.stop()
        except ProcessDiedError:
            self._counts["death in a stop"] += 1
