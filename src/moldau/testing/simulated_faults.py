"""The plan of faults of a simulated disk. Every call that changes the disk is one effect; effects
are numbered from 1 and kept in `trace`.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from moldau.testing.simulated_power import Node


class SimulatedCrash(BaseException):
    """The power failed before this effect. No `except Exception` may catch it."""


class Effect(NamedTuple):
    """One change of the disk: its number, the kind of call that made it, the path, and the size."""

    number: int
    kind: str
    path: str
    size_bytes: int


class Fault(NamedTuple):
    """The error of one effect."""

    error: OSError
    # For an append: this many bytes still reach the file.
    bytes_written: int


class FaultPlan:
    """The effects so far, and the faults planned for later ones."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.effects = 0
        self.trace: list[Effect] = []
        self._faults: dict[int, Fault] = {}
        self._fails_from: tuple[int, OSError] | None = None
        self._unreadable: dict[Path, OSError] = {}
        self.is_cold: Callable[[Path], bool] = lambda _path: False
        """Whether a file is not in the page cache, so that its readers must wait for the disk."""
        self.wait_for_disk: Callable[[Path], None] = lambda _path: None
        """Called in the thread that reads such a file; a test may block it there."""
        self._crash_at: int | None = None
        self._is_dead = False
        self._listeners: list[Callable[[Effect], None]] = []

    def fail_at(self, effect: int, error: OSError, *, for_ever: bool = False) -> None:
        """Make the effect with number `effect` raise `error`; with `for_ever`, all later effects
        too.
        """
        if for_ever:
            self._fails_from = (effect, error)
        else:
            self._faults[effect] = Fault(error, 0)

    def short_write_at(self, effect: int, bytes_written: int, error: OSError) -> None:
        """Make the append with number `effect` write only `bytes_written` bytes, then raise
        `error`.
        """
        self._faults[effect] = Fault(error, bytes_written)

    def fail_reads(self, path: Path, error: OSError) -> None:
        """Make every read of the file at `path` raise `error`."""
        self._unreadable[path] = error

    def crash_at(self, effect: int) -> None:
        """Raise SimulatedCrash instead of performing the effect with number `effect`, and instead
        of every later one.
        """
        self._crash_at = effect

    def on_effect(self, listener: Callable[[Effect], None]) -> None:
        """Call `listener` after each effect; a test may `fork` there to examine every boundary."""
        self._listeners.append(listener)

    def begin(self, kind: str, path: Path, size_bytes: int) -> tuple[int, Fault | None]:
        """Counts an effect of the given `kind`, `path` and `size_bytes`. Returns its number and its
        fault, if any.
        """
        number = self.effects + 1
        if self._is_dead or number == self._crash_at:
            self._is_dead = True
            raise SimulatedCrash(f"before effect {number}: {kind} {path}")
        self.effects = number
        self.trace.append(Effect(number, kind, str(path), size_bytes))
        if self._fails_from and number >= self._fails_from[0]:
            return number, Fault(self._fails_from[1], 0)
        return number, self._faults.get(number)

    def finish(self, node: Node | None) -> None:
        if node is not None:
            node.modified_ms = self.now_ms
        for listener in self._listeners:
            listener(self.trace[-1])

    def check_cached(self, path: Path) -> None:
        if self.is_cold(path):
            raise BlockingIOError(errno.EAGAIN, "not in the page cache", str(path))

    def check_read(self, path: Path) -> None:
        if self.is_cold(path):
            self.wait_for_disk(path)
        if path in self._unreadable:
            raise self._unreadable[path]
