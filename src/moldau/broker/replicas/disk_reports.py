"""Disk problems for operators: a log line at once, repeated at most once a minute, and metrics.
Each line says what is refused and what to do.
"""

import contextlib
import logging
from collections import Counter
from typing import TYPE_CHECKING

from moldau.protocol.errors import KafkaError
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.failures import DamageFound, DiskFullError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

ACCEPT_DAMAGE = "moldau.accept.damage"

_AGAIN_MS = 60_000
_SUBJECTS_MAX = 1_000


class DiskReports:
    def __init__(self, directories: "Iterable[LogDirectory]", clock: "Clock") -> None:
        self.refused_writes: Counter[str] = Counter()
        """By directory."""
        self.failures: Counter[str] = Counter()
        """Failures of background work, by its name."""
        self.damage_found = 0
        """The number of damaged ranges found; a restart finds and counts them again."""
        self._clock = clock
        self._reported_ms: dict[tuple[str, str], float] = {}
        self._full_since_ms: dict[LogDirectory, float] = {}
        for directory in directories:
            directory.on_refusal(self._write_refused, self._write_taken)
            directory.on_damage = self._damaged

    def is_full(self, directory: LogDirectory) -> bool:
        return directory in self._full_since_ms

    def failed(self, work: str, subject: object, error: Exception) -> None:
        """Background work failed, and is retried automatically."""
        self.failures[work] += 1
        if self._is_due(work, str(subject)):
            is_foreseen = isinstance(error, KafkaError | OSError)
            _log.log(
                logging.WARNING if is_foreseen else logging.ERROR,
                "%s of %s failed%s and is retried: %s (%d failures since the start)",
                work, subject, "" if is_foreseen else " unexpectedly",
                error if is_foreseen else repr(error), self.failures[work],
                exc_info=None if is_foreseen else error,
            )  # fmt: skip

    def _damaged(self, damage: DamageFound) -> None:
        self.damage_found += 1
        lost = f"offsets {damage.first_offset} to {damage.next_offset - 1}"
        if damage.is_offline:
            _log.error(
                "%s is damaged and refuses all requests: %s of it cannot be read (%s: %s). Restore "
                "the file from a copy and restart, or start once with %s=true to continue "
                "without the lost records",
                damage.topic_partition, lost, damage.path, damage.reason, ACCEPT_DAMAGE,
            )  # fmt: skip
            return
        _log.error(
            "%s is damaged: %s cannot be read (%s: %s). All other offsets are served. A consumer "
            "that stops there with CORRUPT_MESSAGE continues after a seek to %d. To repair it, "
            "stop the node and restore the file from a copy; or delete the records before %d",
            damage.topic_partition, lost, damage.path, damage.reason,
            damage.next_offset, damage.next_offset,
        )  # fmt: skip

    def _write_refused(self, directory: LogDirectory, error: DiskFullError) -> None:
        path = str(directory.path)
        self.refused_writes[path] += 1
        self._full_since_ms.setdefault(directory, self._clock.mono_ms())
        if self._is_due("full", path):
            free = -1
            with contextlib.suppress(OSError):
                free = directory.filesystem.free_bytes(directory.path)
            _log.error(
                "%s; %d bytes are free in %s. Records and new topics for it are refused "
                "(%d writes so far), reads continue. Make room: delete topics or records, lower "
                "retention, or enlarge the disk; the node then continues automatically",
                error.detail, free, path, self.refused_writes[path],
            )  # fmt: skip

    def _write_taken(self, directory: LogDirectory) -> None:
        since_ms = self._full_since_ms.pop(directory, None)
        if since_ms is not None and self._is_due("room", str(directory.path)):
            _log.warning(
                "%s accepts writes again, after %.0f s; %d writes were refused since the start",
                directory.path,
                (self._clock.mono_ms() - since_ms) / 1000,
                self.refused_writes[str(directory.path)],
            )

    def _is_due(self, what: str, subject: str) -> bool:
        key, now_ms = (what, subject), self._clock.mono_ms()
        reported_ms = self._reported_ms.get(key)
        if reported_ms is not None and now_ms - reported_ms < _AGAIN_MS:
            return False
        self._reported_ms.pop(key, None)
        if len(self._reported_ms) >= _SUBJECTS_MAX:
            del self._reported_ms[next(iter(self._reported_ms))]
        self._reported_ms[key] = now_ms
        return True
