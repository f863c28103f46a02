"""The broker's view of the cluster: an image that follows the metadata log and notifies its
subscribers. Batches that are committed together are one change. A record that cannot be replayed
stops the node; a subscriber that fails does not: the same record would stop every broker, and
again at each start.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from moldau.broker.quorum.listener import QuorumListener
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.core.metadata.loader import CommittedBatch, MetadataLoader
from moldau.net.slices import free_later
from moldau.unexpected import log_unexpected

_log = logging.getLogger(__name__)

Subscriber: TypeAlias = Callable[[MetadataDelta, MetadataImage], None]
"""The delta is valid until the subscriber returns."""


class MetadataFeed(QuorumListener):
    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.failures = 0
        """How often a subscriber failed; it may have missed a part of a change."""
        self._loader = MetadataLoader()
        self._prepared: MetadataDelta | None = None
        self._subscribers: list[Subscriber] = []
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tie_breaker = count()
        self._conditions: dict[asyncio.Future[None], Callable[[MetadataImage], bool]] = {}

    @property
    def has_open_transaction(self) -> bool:
        """Whether the log ends inside a transaction of metadata records."""
        return self._loader.transaction_start is not None

    def subscribe(self, subscriber: Subscriber, known: MetadataImage = EMPTY_IMAGE) -> None:
        """`subscriber` is called with every later change, in the order of subscription;
        `feed.image` is then already the new image. A late subscriber is called at once with
        everything that differs from `known`, which it has already.
        """
        self._subscribers.append(subscriber)
        if self.image.offset > known.offset:
            subscriber(MetadataDelta.between(known, self.image), self.image)

    async def wait_for(self, offset: int) -> None:
        """Waits until the image includes the record at `offset`. The caller bounds the wait."""
        if offset <= self.image.offset:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._tie_breaker), done))
        await done

    async def wait_until(self, holds: Callable[[MetadataImage], bool]) -> None:
        """Waits until something holds in the image. The caller bounds the wait."""
        if holds(self.image):
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._conditions[done] = holds
        try:
            await done
        finally:
            del self._conditions[done]

    # Events of the quorum

    def prepare_snapshot(self, image: MetadataImage) -> None:
        self._prepared = MetadataDelta.between(self.image, image)

    def on_snapshot(self, image: MetadataImage) -> None:
        delta, self._prepared = self._prepared, None
        if delta is None or delta.before is not self.image:
            # Batches were committed meanwhile.
            delta = MetadataDelta.between(self.image, image)
        self._loader = MetadataLoader(image)
        self._publish(delta, image)

    def on_committed(self, batch: CommittedBatch) -> None:
        self._loader.load(batch)

    def on_commits_end(self) -> None:
        loaded = self._loader.flush()
        if loaded is not None:
            self._publish(*loaded)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        for subscriber in self._subscribers:
            try:
                subscriber(delta, image)
            except Exception as error:  # noqa: BLE001 - the others must still follow
                self.failures += 1
                log_unexpected(_log, "a subscriber of the cluster's metadata", error)
        free_later(*delta.leftovers())
        while self._waiting and self._waiting[0][0] <= image.offset:
            done = heapq.heappop(self._waiting)[2]
            if not done.done():
                done.set_result(None)
        for done, holds in self._conditions.items():
            if not done.done():
                _complete(done, holds, image)


def _complete(
    done: asyncio.Future[None], holds: Callable[[MetadataImage], bool], image: MetadataImage
) -> None:
    """A condition that fails concerns the task that waits for it, and nothing else."""
    try:
        if holds(image):
            done.set_result(None)
    except Exception as error:  # noqa: BLE001 - raised where it is awaited
        done.set_exception(error)
