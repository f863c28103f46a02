"""How appends become durable. A flush has three steps, so that the slow one can run in a thread:
`log.begin_flush()` collects what to sync, `ticket.run()` syncs and touches nothing else,
`log.finish_flush(ticket)` moves the flushed offset. A failed sync is final.

| policy | acks=all may count | a sync happens |
|---|---|---|
| os | what is written | when a segment is sealed, and by flush.messages, flush.ms |
| group | what is flushed | once for all dirty logs every few milliseconds (`GroupFlusher`) |
| strict | what is flushed | inside every append |
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.protocol.errors import KafkaError
from moldau.storage.filesystem import File, FileSystem

if TYPE_CHECKING:
    from moldau.storage.log_state import LogState


class FlushTicket:
    """Files that hold everything before `end_offset`. The log keeps them open until it is back."""

    __slots__ = ("_directories", "_files", "_filesystem", "_paths", "end_offset", "error", "log")

    def __init__(
        self,
        log: "LogState",
        end_offset: int,
        *,
        files: Sequence[File],
        paths: Sequence[Path] = (),
        directories: Sequence[Path] = (),
    ) -> None:
        self.log = log
        self.end_offset = end_offset
        """Lowered by the log if it is truncated in the meantime."""
        self.error: OSError | None = None
        self._filesystem: FileSystem = log.filesystem
        self._files = files
        self._paths = paths
        self._directories = directories

    def run(self) -> None:
        """May run in any thread; the outcome is in `error`."""
        try:
            for file in self._files:
                file.sync()
            # The log may be truncated, renamed or deleted meanwhile, which is as durable as it must
            # be by itself.
            for path in self._paths:
                with contextlib.suppress(FileNotFoundError):
                    self._sync_path(path)
            for directory in self._directories:
                with contextlib.suppress(FileNotFoundError):
                    self._filesystem.sync_directory(directory)
        except OSError as error:
            self.error = error

    def _sync_path(self, path: Path) -> None:
        file = self._filesystem.open(path)
        try:
            file.sync()
        finally:
            file.close()


class GroupFlusher:
    """All logs that have something to sync. One round covers every append made before `begin`;
    rounds do not overlap.
    """

    def __init__(self) -> None:
        self._dirty: dict[LogState, None] = {}
        self._running: list[FlushTicket] | None = None

    @property
    def has_work(self) -> bool:
        return bool(self._dirty)

    def mark(self, log: "LogState") -> None:
        self._dirty[log] = None

    def forget(self, log: "LogState") -> None:
        self._dirty.pop(log, None)

    def begin(self) -> list[FlushTicket]:
        """Run every ticket, then `finish`. A log that failed or is damaged is left out."""
        assert self._running is None, "a round is still running"
        dirty, self._dirty = self._dirty, {}
        tickets: list[FlushTicket] = []
        for log in dirty:
            try:
                tickets.append(log.begin_flush())
            except KafkaError:
                continue
        self._running = tickets
        return tickets

    def finish(self, tickets: list[FlushTicket]) -> None:
        """A failed ticket takes its directory offline; the others count."""
        assert tickets is self._running
        self._running = None
        for ticket in tickets:
            try:
                ticket.log.finish_flush(ticket)
            except KafkaError:
                continue

    def run_round(self) -> None:
        """All three steps at once, for callers that may block."""
        tickets = self.begin()
        for ticket in tickets:
            ticket.run()
        self.finish(tickets)
