"""Logs that the metadata requires and that do not exist yet, and those that it no longer requires.
They are made and deleted a few at a time; a partition gets its log when that is on the disk.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from moldau.protocol.errors import KafkaError
from moldau.storage.disk.disk_steps import run_here
from moldau.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from moldau.broker.replicas.disk_threads import DiskThreads
    from moldau.broker.replicas.log_store import LogStore
    from moldau.net.clock import Clock
    from moldau.net.tasks import Tasks
    from moldau.storage.directory.unsynced_names import DoAll

_ROOM_CHECK_INTERVAL_MS = 1_000
_LOGS_AT_ONCE = 20
"""Making or deleting a log takes time: other tasks run in between."""


class LogPlacement(NamedTuple):
    """The topic and directory that the metadata assigns to a partition's log."""

    topic_id: Uuid
    directory_id: Uuid


class LogOwner(NamedTuple):
    """Callbacks of the owner of the partitions, which has the newest metadata."""

    placement_of: Callable[[TopicPartition], LogPlacement | None]
    """Returns None if the log is no longer required here."""
    made: Callable[[TopicPartition, KafkaError | None], None]
    """The log is on the disk, or could not be made."""
    caught_up: Callable[[], None]
    delete: Callable[[TopicPartition], None]
    has_no_room: Callable[[TopicPartition], bool]


class PendingLogs:
    def __init__(
        self, store: "LogStore", disk: "DiskThreads", do_all: "DoAll", owner: LogOwner
    ) -> None:
        self._store = store
        self._disk = disk
        self._do_all = do_all
        self._owner = owner
        self._missing: dict[TopicPartition, None] = {}
        self._obsolete: dict[TopicPartition, None] = {}
        self._without_room: dict[TopicPartition, None] = {}
        self._caught_up = asyncio.Event()
        self._caught_up.set()

    def make(self, name: TopicPartition) -> None:
        self._missing[name] = None

    def delete(self, name: TopicPartition) -> None:
        self._obsolete[name] = None

    def begin(self, tasks: "Tasks") -> None:
        if (self._obsolete or self._missing) and self._caught_up.is_set():
            self._caught_up.clear()
            _ = tasks.start(self._catch_up(), "make and delete logs")

    async def wait(self) -> None:
        """Waits until exactly the logs exist that the metadata requires."""
        await self._caught_up.wait()

    async def _catch_up(self) -> None:
        try:
            while self._obsolete or self._missing:
                placements = self._next_placements(_LOGS_AT_ONCE)
                making, refused = self._store.making(placements, self._do_all)
                for logs, names, steps in making:
                    try:
                        refused |= await self._disk.run(logs.directory, steps)
                    except KafkaError as error:
                        refused |= dict.fromkeys(names, error)
                self._report_made(placements, refused)
        finally:
            self._caught_up.set()

    def catch_up_blocking(self) -> None:
        """Makes all logs at once and blocks on the disk: for the start of a node."""
        while self._obsolete or self._missing:
            placements = self._next_placements(len(self._obsolete) + len(self._missing))
            making, refused = self._store.making(placements, self._do_all)
            for _, names, steps in making:
                try:
                    refused |= run_here(steps)
                except KafkaError as error:
                    refused |= dict.fromkeys(names, error)
            self._report_made(placements, refused)

    def delete_blocking(self) -> None:
        """Makes no further logs."""
        self._missing.clear()
        self.catch_up_blocking()

    def _next_placements(self, count: int) -> dict[TopicPartition, LogPlacement]:
        """Deletes obsolete logs, and returns the placements of missing ones in the newest metadata:
        `count` logs in all. Deletions go first, because a deleted log may have the name of a
        new one.
        """
        obsolete = list(islice(self._obsolete, count))
        for name in obsolete:
            del self._obsolete[name]
            self._owner.delete(name)
        return dict(self._take_placements(list(islice(self._missing, count - len(obsolete)))))

    def _take_placements(
        self, names: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, LogPlacement]]:
        for name in names:
            del self._missing[name]
            placement = self._owner.placement_of(name)
            if placement is not None:
                log = self._store.log_of(name, placement.topic_id)
                if log is None and self._store.holder(name) is not None:
                    self._store.set_aside(name, "it belongs to an earlier topic of that name")
                yield name, placement

    def _report_made(
        self,
        placements: dict[TopicPartition, LogPlacement],
        refused: dict[TopicPartition, KafkaError],
    ) -> None:
        for name, placement in placements.items():
            now = self._owner.placement_of(name)
            if now is not None and now.topic_id == placement.topic_id:
                self._owner.made(name, refused.get(name))
                continue
            # Deleted while its log was made, and perhaps made again.
            self._obsolete[name] = None
            if now is not None:
                self._missing[name] = None
        self._owner.caught_up()

    # On a full disk

    def wait_for_room(self, name: TopicPartition, tasks: "Tasks", clock: "Clock") -> bool:
        """Retries once there is room. False if the retry is scheduled already."""
        if name in self._without_room:
            return False
        is_first = not self._without_room
        self._without_room[name] = None
        if is_first:
            _ = tasks.start(self._retry_without_room(tasks, clock), "make logs once there is room")
        return True

    async def _retry_without_room(self, tasks: "Tasks", clock: "Clock") -> None:
        while self._without_room:
            await clock.sleep(_ROOM_CHECK_INTERVAL_MS)
            self._missing |= self._without_room
            self.begin(tasks)
            await self.wait()
            for name in list(self._without_room):
                if not self._owner.has_no_room(name):
                    del self._without_room[name]
