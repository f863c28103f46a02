"""Keeps the metadata of some topics fresh: every metadata.max.age.ms, and soon after it is reported
as stale. For long-lived clients; others call `Cluster.topics`.
"""

import asyncio
from collections.abc import Callable, Iterable

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import ClusterMetadata
from moldau.protocol.errors import MoldauError

Listener = Callable[[ClusterMetadata], None]


class MetadataWatch:
    """Refreshes the metadata of a cluster, from `start` until the cluster is closed."""

    def __init__(self, cluster: Cluster, *, creates_topics: bool = False) -> None:
        self._cluster = cluster
        self._creates_topics = creates_topics
        self._names: set[str] | None = set()
        self._listeners: list[Listener] = []
        self._requested = asyncio.Event()
        self._urgent = asyncio.Event()
        self._waiting: list[asyncio.Future[ClusterMetadata]] = []
        self.failure: MoldauError | None = None
        """The error of the last attempt, if it failed."""

    def start(self) -> None:
        _ = self._cluster.tasks.start(self._keep_fresh(), "keep metadata fresh")

    def on_update(self, listener: Listener) -> None:
        """Adds a function that is called with every response."""
        self._listeners.append(listener)

    def watch(self, names: Iterable[str]) -> None:
        """Watches more topics. New ones are requested soon."""
        if self._names is None:
            return
        new = set(names) - self._names
        if new:
            self._names |= new
            self._refresh_at_once()

    def watch_only(self, names: Iterable[str] | None) -> None:
        """Watches only these topics; None for all of the cluster."""
        wanted = None if names is None else set(names)
        if wanted != self._names:
            self._names = wanted
            self._refresh_at_once()

    def unwatch(self, names: Iterable[str]) -> None:
        if self._names is not None:
            self._names -= set(names)

    def refresh_soon(self) -> None:
        """Requests fresh metadata, after an error. Many calls lead to one request."""
        self._requested.set()

    async def refreshed(self) -> ClusterMetadata:
        """Waits for the response to a request that is sent from now on."""
        future: asyncio.Future[ClusterMetadata] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.refresh_soon()
        try:
            return await future
        finally:
            if future in self._waiting:
                self._waiting.remove(future)

    def _refresh_at_once(self) -> None:
        """Requests new topics without the pause between refreshes."""
        self._urgent.set()
        self._requested.set()

    async def _keep_fresh(self) -> None:
        failures = 0
        clock, max_age_ms = self._cluster.clock, self._cluster.settings.metadata_max_age_ms
        due_ms = clock.mono_ms() + max_age_ms
        while True:
            if not failures:
                await self._wait(self._requested, due_ms - clock.mono_ms())
            self._requested.clear()
            self._urgent.clear()
            waiting, self._waiting = self._waiting, []
            try:
                found = await self._cluster.metadata(
                    self._names, create=self._creates_topics, is_lenient=True
                )
            except MoldauError as error:
                failures += 1
                self.failure = error
                self._waiting = waiting + self._waiting
                if not self._cluster.is_retriable(error):
                    self._give_up(error)
            else:
                failures = 0
                self.failure = None
                self._notify(found, waiting)
            due_ms = clock.mono_ms() + max_age_ms
            # Limits how often metadata is requested.
            await self._wait(self._urgent, self._cluster.pause_ms(max(failures, 1)))

    def _notify(
        self, found: ClusterMetadata, waiting: list[asyncio.Future[ClusterMetadata]]
    ) -> None:
        for listener in self._listeners:
            listener(found)
        for future in waiting:
            if not future.done():
                future.set_result(found)

    def _give_up(self, error: MoldauError) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    async def _wait(self, event: asyncio.Event, patience_ms: float) -> None:
        timer = self._cluster.clock.call_later(patience_ms, event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()
