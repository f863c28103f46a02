"""Periodic tasks of a node of the quorum: no-op records, and cleaning its log."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.net.clock import Clock, Timer
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import NoOpRecord

if TYPE_CHECKING:
    from moldau.broker.quorum.quorum_node import QuorumNode

_log = logging.getLogger(__name__)

_CLEAN_EVERY_MS = 60_000


class Upkeep:
    def __init__(self, quorum: "QuorumNode", clock: Clock, idle_interval_ms: int) -> None:
        """An active controller that is idle for `idle_interval_ms` appends a record; 0: never."""
        self._quorum = quorum
        self._clock = clock
        self._idle_interval_ms = idle_interval_ms
        self._timers: dict[str, Timer] = {}

    def start(self) -> None:
        self._schedule("clean", _CLEAN_EVERY_MS, self._clean)
        if self._idle_interval_ms:
            self._schedule("no-op", self._idle_interval_ms, self._write_no_op)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _schedule(self, name: str, delay_ms: float, work: Callable[[], None]) -> None:
        self._timers[name] = self._clock.call_later(delay_ms, work)

    def _write_no_op(self) -> None:
        """Shows followers and observers that time passes. Not before the bootstrap records."""
        idle_ms = self._clock.mono_ms() - self._quorum.last_append_ms
        if idle_ms >= self._idle_interval_ms:
            if self._quorum.is_leader and self._quorum.has_metadata_version:
                self._append_no_op()
            idle_ms = 0
        self._schedule("no-op", self._idle_interval_ms - idle_ms, self._write_no_op)

    def _append_no_op(self) -> None:
        try:
            self._quorum.append([NoOpRecord()], self._clock.wall_ms())
        except KafkaError as error:
            _log.warning("no idle record was written: %s", error)

    def _clean(self) -> None:
        if self._quorum.failure is None:
            log = self._quorum.log
            try:
                self._quorum.store_recovery_point()
                log.clean(self._clock.wall_ms())
            except KafkaError as error:
                _log.warning("metadata log clean-up failed: %s", error)
            self._schedule("clean", _CLEAN_EVERY_MS, self._clean)
