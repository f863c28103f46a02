"""Python's cycle collector, tuned for a process that is a node.

A full collection traverses all live objects: with ten thousand groups that is a tenth of a second
in which no client is served. So automatic full collections are off. New objects are collected as
usual; survivors are examined once more, within about a second, and then frozen: reference counting
still frees them, but no collection traverses them again. The price is garbage: cycles of frozen
objects are not found. So a full collection runs when for minutes there have been twice as many
frozen objects as after the previous one.
"""

import gc
import logging
import time

from moldau.net.clock import Clock, Timer

_log = logging.getLogger(__name__)

_YOUNG_MAX = 5_000
"""New objects before the youngest generation is collected: half a millisecond of work or less."""
_YOUNG_COLLECTIONS = 4
"""Collections before their survivors are collected together."""
_EXAMINED_MAX = 2
"""Survivors are examined up to this number: ten milliseconds of work."""
_NEVER = 1 << 30
CHECK_EVERY_MS = 1_000
_CHECKS_BETWEEN_COUNTS = 60
"""Counting the frozen objects takes a few milliseconds for a million objects."""
_COUNTS_ABOVE = 5
"""Counts above the limit, in a row, before a full collection: objects of requests come and go."""
_FROZEN_MIN = 1_000_000
"""Fewer objects are not worth a full collection."""


class GarbageCollection:
    """For processes that only run a node: its settings affect the whole process."""

    def __init__(self, clock: Clock, *, frozen_min: int = _FROZEN_MIN) -> None:
        self._clock = clock
        self._frozen_min = frozen_min
        self._timer: Timer | None = None
        self._before: tuple[int, int, int] | None = None
        self._checks = 0
        self._full_above = frozen_min
        self._counts_above = 0
        self.full_collections = 0
        """The number of collections that traversed everything."""

    def start(self) -> None:
        self._before = gc.get_threshold()
        gc.set_threshold(_YOUNG_MAX, _YOUNG_COLLECTIONS, _NEVER)
        gc.freeze()
        self._timer = self._clock.call_later(CHECK_EVERY_MS, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._before is not None:
            gc.set_threshold(*self._before)
            gc.unfreeze()
            self._before = None

    def _check(self) -> None:
        self._timer = self._clock.call_later(CHECK_EVERY_MS, self._check)
        survivors = gc.get_count()[2]
        if survivors:
            # A flood is not worth the pause: most of it is freed soon, without a collection.
            if survivors <= _EXAMINED_MAX:
                gc.collect()
            gc.freeze()
        self._checks += 1
        if self._checks % _CHECKS_BETWEEN_COUNTS == 0:
            is_above = gc.get_freeze_count() > self._full_above
            self._counts_above = self._counts_above + 1 if is_above else 0
            if self._counts_above == _COUNTS_ABOVE:
                self._collect_all()

    def _collect_all(self) -> None:
        began_s = time.perf_counter()
        gc.unfreeze()
        freed = gc.collect()
        gc.freeze()
        alive = gc.get_freeze_count()
        self._full_above = max(2 * alive, self._frozen_min)
        self._counts_above = 0
        self.full_collections += 1
        took_ms = (time.perf_counter() - began_s) * 1000
        _log.debug("a full collection of %d objects freed %d in %.0f ms", alive, freed, took_ms)
