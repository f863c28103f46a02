"""Keeps what is known of some topics fresh: every metadata.max.age.ms, and soon after somebody says
that it is stale. For clients that live long; others ask `Cluster.topics`.
"""

import asyncio
from collections.abc import Callable, Iterable

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import ClusterMetadata
from moldau.protocol.errors import MoldauError

Listener = Callable[[ClusterMetadata], None]


class MetadataWatch:
    """`start` it in the event loop of its cluster; it ends with the cluster."""

    def __init__(self, cluster: Cluster, *, creates_topics: bool = False) -> None:
        self._cluster = cluster
        self._creates_topics = creates_topics
        self._names: set[str] | None = set()
        self._listeners: list[Listener] = []
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._waiting: list[asyncio.Future[ClusterMetadata]] = []
        self.failure: MoldauError | None = None
        """Why the last attempt got nothing."""

    def start(self) -> None:
        _ = self._cluster.tasks.start(self._keep_fresh(), "keep metadata fresh")

    def on_update(self, listener: Listener) -> None:
        """Called with every answer."""
        self._listeners.append(listener)

    def watch(self, names: Iterable[str]) -> None:
        """These too. New ones are asked for soon."""
        if self._names is None:
            return
        new = set(names) - self._names
        if new:
            self._names |= new
            self._refresh_at_once()

    def watch_only(self, names: Iterable[str] | None) -> None:
        """These, or all topics of the cluster if None."""
        wanted = None if names is None else set(names)
        if wanted != self._names:
            self._names = wanted
            self._refresh_at_once()

    def unwatch(self, names: Iterable[str]) -> None:
        if self._names is not None:
            self._names -= set(names)

    def refresh_soon(self) -> None:
        """What is known led to an error. Many calls make one question."""
        self._asked.set()

    async def refreshed(self) -> ClusterMetadata:
        """The next answer, to a question that is not asked yet."""
        future: asyncio.Future[ClusterMetadata] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.refresh_soon()
        try:
            return await future
        finally:
            if future in self._waiting:
                self._waiting.remove(future)

    def _refresh_at_once(self) -> None:
        """Something new is asked, which no pause is for."""
        self._hurried.set()
        self._asked.set()

    async def _keep_fresh(self) -> None:
        failures = 0
        clock, max_age_ms = self._cluster.clock, self._cluster.settings.metadata_max_age_ms
        due_ms = clock.mono_ms() + max_age_ms
        while True:
            if not failures:
                await self._wait(self._asked, due_ms - clock.mono_ms())
            self._asked.clear()
            self._hurried.clear()
            waiting, self._waiting = self._waiting, []
            try:
                found = await self._cluster.metadata(
                    self._names, create=self._creates_topics, is_lenient=True
                )
            except MoldauError as error:
                failures += 1
                self.failure = error
                self._waiting = waiting + self._waiting
                if not self._cluster.may_pass(error):
                    self._give_up(error)
            else:
                failures = 0
                self.failure = None
                self._tell(found, waiting)
            due_ms = clock.mono_ms() + max_age_ms
            # Whoever asks again and again gets no more than this.
            await self._wait(self._hurried, self._cluster.pause_ms(max(failures, 1)))

    def _tell(self, found: ClusterMetadata, waiting: list[asyncio.Future[ClusterMetadata]]) -> None:
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
