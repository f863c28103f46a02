"""How appends become durable. A flush has three steps, so that the slow one can run in a thread:
`log.begin_flush()` collects what to sync, `ticket.run()` syncs and touches nothing else,
`log.finish_flush(ticket)` moves the flushed offset. A failed sync is final.

| policy | acks=all may count | a sync happens |
|---|---|---|
| os | written records | when a segment is sealed, and by flush.messages, flush.ms |
| group | flushed records | once for all dirty logs every few milliseconds (`GroupFlusher`) |
| strict | flushed records | at once for every append, before it is acknowledged |
"""

import contextlib
import heapq
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.protocol.errors import KafkaError
from moldau.storage.disk.failures import OUT_OF_DESCRIPTORS, DiskFullError, SyncFailedError
from moldau.storage.disk.filesystem import File, FileSystem, sync_path
from moldau.storage.segment.open_segments import segments_open_max
from moldau.types import Offset
from moldau.unexpected import apart, log_unexpected

if TYPE_CHECKING:
    from moldau.storage.log.epochs import LeaderEpochCache
    from moldau.storage.log.state import LogState
    from moldau.storage.segment.segment import Segment

_log = logging.getLogger(__name__)

OnFailed = Callable[["LogState", Exception], None]

ROUND_LOGS_MAX = 32
"""A few milliseconds. An append waits for the running round and for its own. Beside a client that
writes to 1,000 partitions, others wait a third as long as with 128, for the same processor time.
"""


class FlushTicket:
    """The files and paths that hold everything before `end_offset`. The log keeps the files open
    until the ticket is finished.
    """

    __slots__ = (
        "_directories",
        "_epochs",
        "_files",
        "_filesystem",
        "end_offset",
        "error",
        "log",
        "paths",
        "segments",
    )

    def __init__(
        self,
        log: "LogState",
        end_offset: Offset,
        *,
        files: Sequence[File],
        paths: Sequence[Path] = (),
        directories: Sequence[Path] = (),
        epochs: "LeaderEpochCache | None" = None,
    ) -> None:
        self.log = log
        self.end_offset = end_offset
        """Lowered by the log if it is truncated in the meantime."""
        self.error: OSError | None = None
        self.segments: Sequence[Segment] = ()
        """The segments whose files the ticket syncs."""
        self._filesystem: FileSystem = log.filesystem
        self._files = files
        self.paths = paths
        self._directories = directories
        self._epochs = epochs

    @property
    def is_refused(self) -> bool:
        """No descriptor was free to sync a file: nothing is lost, and the sync can be retried."""
        error = self.error
        return (
            error is not None
            and error.errno in OUT_OF_DESCRIPTORS
            and not isinstance(error, SyncFailedError)
        )

    def run(self) -> None:
        """May run in any thread; the outcome is in `error`."""
        try:
            for file in self._files:
                file.sync()
            # One at a time, since there may be many. A missing path was truncated, retired or
            # deleted in the meantime; a log that moves invalidates the ticket.
            for path in self.paths:
                with contextlib.suppress(FileNotFoundError):
                    sync_path(self._filesystem, path)
            for directory in self._directories:
                with contextlib.suppress(FileNotFoundError):
                    self._filesystem.sync_directory(directory)
            if self._epochs is not None:
                with contextlib.suppress(FileNotFoundError):
                    self._epochs.flush_if_possible()
        except OSError as error:
            self.error = error


class GroupFlusher:
    """All logs with unsynced changes. One round covers every append made before `begin`, for at
    most `logs_max` logs, and no more than may hold files open at once; the others stay dirty.
    Rounds do not overlap.

    Each log has a place in the queue, and a round takes the lowest. A log that becomes dirty is
    placed directly after those of the last round; `queue_after` makes the logs of one client
    follow each other. So a client that writes to thousands of logs delays others by a round or two.
    """

    def __init__(
        self,
        on_work: Callable[[], None] | None = None,
        logs_max: int = ROUND_LOGS_MAX,
        on_failed: OnFailed | None = None,
    ) -> None:
        self._on_work = on_work
        """Called when the first log becomes dirty."""
        self._on_failed = on_failed
        """Called with an unforeseen error, which concerns one log; the others are flushed."""
        self._logs_max = logs_max
        self._dirty: dict[LogState, int] = {}
        """With their places, in the order in which they became dirty."""
        self._reached = 0
        """The highest place of the last round."""
        self.has_more = False
        """The last round left logs for the next."""
        self._running: list[FlushTicket] | None = None

    @property
    def has_work(self) -> bool:
        return bool(self._dirty)

    @property
    def is_crowded(self) -> bool:
        """The next round may not be able to take all logs: places begin to matter."""
        return len(self._dirty) > self._logs_max // 8

    def mark(self, log: "LogState") -> None:
        had_work = bool(self._dirty)
        self._dirty[log] = self._reached + 1
        if not had_work and self._on_work is not None:
            self._on_work()

    def queue_after(self, place: int, log: "LogState", *, is_first: bool) -> int:
        """Queues the log after `place`, the place of the last log that the same client appended to.
        Returns the client's new last place. `is_first`: the first append to this log since the
        last round. Otherwise the log may be queued for another client, and keeps the better place.
        """
        next_place = max(place, self._reached) + 1
        if log not in self._dirty or (not is_first and next_place >= self._dirty[log]):
            return place
        self._dirty[log] = next_place
        return next_place

    def forget(self, log: "LogState") -> None:
        self._dirty.pop(log, None)

    def begin(self) -> list[FlushTicket]:
        """Run every ticket, then `finish`. A log that failed or is damaged is skipped."""
        assert self._running is None, "a round is still running"
        tickets: list[FlushTicket] = []
        logs = self._next_logs()
        self._reached = max((self._dirty[log] for log in logs), default=self._reached)
        self.has_more = len(logs) < len(self._dirty)
        for log in logs:
            del self._dirty[log]
            try:
                tickets.append(log.begin_flush())
            except DiskFullError:
                # Refused for lack of room or descriptors: a later round tries again.
                self._dirty[log] = self._reached + 1
            except KafkaError:
                continue
            except Exception as error:  # noqa: BLE001 - the other logs are still synced
                # Nothing was begun. Outside of the queue the log would never be flushed again: it
                # counts as dirty.
                self._dirty[log] = self._reached + 1
                self._failed(log, error)
        self._running = tickets
        return tickets

    def _next_logs(self) -> "list[LogState]":
        count = min(self._logs_max, max(segments_open_max() // 2, 1))
        if len(self._dirty) <= count:
            return list(self._dirty)
        return heapq.nsmallest(count, self._dirty, key=self._dirty.__getitem__)

    def finish(self, tickets: list[FlushTicket]) -> None:
        """A failed ticket takes its directory offline; the others count."""
        assert tickets is self._running
        self._running = None
        for ticket in tickets:
            try:
                ticket.log.finish_flush(ticket)
            except KafkaError:
                continue
            except Exception as error:  # noqa: BLE001 - the other logs are still synced
                self._failed(ticket.log, error)

    def _failed(self, log: "LogState", error: Exception) -> None:
        if self._on_failed is None:
            log_unexpected(_log, "a flush", error)
        else:
            apart(_log, "a callback after a failed flush", self._on_failed, log, error)

    def run_round(self) -> None:
        """All three steps for all logs, for callers that may block."""
        left = len(self._dirty) + 1
        # Logs that cannot be synced now stay dirty.
        while 0 < len(self._dirty) < left:
            left = len(self._dirty)
            tickets = self.begin()
            for ticket in tickets:
                ticket.run()
            self.finish(tickets)
