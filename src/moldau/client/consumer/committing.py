"""Commits offsets of one consumer, automatically or on request. An older commit never overtakes a
newer one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.interceptors import notify
from moldau.client.consumer.counters import Counts
from moldau.client.consumer.group import Group
from moldau.client.consumer.offsets import (
    CommitRefusedError,
    GroupMetadata,
    Offsets,
    commit,
    committed,
    not_a_member,
    too_late,
)
from moldau.client.errors import ConfigError
from moldau.core.consumer.assignors.contract import NO_GENERATION
from moldau.core.consumer.commits import AutoCommit
from moldau.core.consumer.membership import CommitRefused
from moldau.core.consumer.positions import OffsetAndMetadata, Positions
from moldau.net.tasks import Tasks
from moldau.protocol.errors import MoldauError
from moldau.types import TopicPartition

_log = logging.getLogger(__name__)

Callback = Callable[[Offsets, MoldauError | None], Any]


class Committing:
    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        group: Group | None,
        auto: AutoCommit,
        counts: Counts,
        on_done: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._positions = positions
        self._group = group
        self.auto = auto
        self._counts = counts
        self._on_done = on_done
        self._tasks = Tasks()
        # One commit at a time, so that an older one never overtakes a newer one.
        self._turn = asyncio.Lock()
        self.interceptors: list[Any] = []
        self.for_user: deque[tuple[Callback, Offsets, MoldauError | None]] = deque()
        """Callbacks that the next poll calls."""

    async def finish(self, patience_ms: float) -> None:
        """Waits for the commits in progress."""
        clock = self._cluster.clock
        deadline_ms = clock.mono_ms() + patience_ms
        while len(self._tasks) and clock.mono_ms() < deadline_ms:
            await clock.sleep(1)
        await self._tasks.close()

    def _member(self) -> Group:
        if self._group is None:
            raise ConfigError("offsets are committed by groups; give this consumer a group.id")
        return self._group

    def committer(self) -> GroupMetadata:
        return self._member().committer

    def _committer_now(self) -> GroupMetadata:
        """Refuses a subscribed consumer that is not a member now: its commit must not look like one
        of a consumer without membership.
        """
        identity = self.committer()
        if identity.generation_id == NO_GENERATION and self._member().machine.topics:
            raise not_a_member(identity.group_id)
        return identity

    # On request.

    async def commit(self, offsets: Offsets | None, patience_ms: float | None = None) -> None:
        """Raises CommitFailedError if this consumer is no longer a member, or the group is
        rebalancing.
        """
        wanted = self._positions.consumed() if offsets is None else dict(offsets)
        if not wanted:
            self._member()
            return
        async with self._turn:
            identity = self._committer_now()
            try:
                await self._cluster.with_retries(
                    lambda: commit(self._cluster, identity, wanted), patience_ms=patience_ms
                )
            except CommitRefusedError as error:
                self._note_refusal(identity, error)
                raise too_late(error) from None
            except MoldauError:
                self._counts.commits_failed += 1
                raise
            self._note(wanted)

    def commit_async(self, offsets: Offsets | None, callback: Callback | None) -> None:
        wanted = self._positions.consumed() if offsets is None else dict(offsets)
        self._member()
        _ = self._tasks.start(self._commit_with_callback(wanted, callback), "commit")

    async def _commit_with_callback(self, wanted: Offsets, callback: Callback | None) -> None:
        problem: MoldauError | None = None
        try:
            await self._commit_once(wanted)
        except MoldauError as error:
            problem = error
        if callback is not None:
            self.for_user.append((callback, wanted, problem))
            self._on_done()

    async def _commit_once(self, wanted: Offsets) -> None:
        """Commits without retries: the next commit includes these offsets."""
        if not wanted:
            return
        async with self._turn:
            identity = self._committer_now()
            try:
                await commit(self._cluster, identity, wanted)
            except CommitRefusedError as error:
                self._note_refusal(identity, error)
                raise too_late(error) from None
            except MoldauError:
                self._counts.commits_failed += 1
                self._cluster.forget_coordinator(identity.group_id)
                raise
            self._note(wanted)

    def _note(self, offsets: Offsets) -> None:
        self._counts.commits += 1
        self.auto.committed(offsets)
        for interceptor in self.interceptors:
            notify(interceptor, "on_commit", offsets)

    def _note_refusal(self, identity: GroupMetadata, error: CommitRefusedError) -> None:
        self._counts.commits_failed += 1
        self._member().step(CommitRefused(identity.generation_id, error.code))
        self._on_done()

    # Automatically.

    def commit_if_due(self) -> None:
        """Called in a poll: the records of earlier polls count as processed."""
        now_ms = self._cluster.clock.mono_ms()
        if self.auto.is_due(now_ms):
            self.commit_now()

    def commit_now(self) -> None:
        if not self.auto.is_enabled or self._group is None:
            return
        if self.auto.due_ms != float("inf"):
            self.auto.sent(self._cluster.clock.mono_ms())
        changed = self.auto.changed(self._positions.consumed())
        if changed:
            _ = self._tasks.start(self._commit_quietly(changed), "automatic commit")

    async def _commit_quietly(self, wanted: Offsets) -> None:
        clock = self._cluster.clock
        try:
            await self._commit_once(wanted)
        except MoldauError as error:
            _log.warning("offsets were not committed: %s", error)
            self.auto.failed(clock.mono_ms(), self._cluster.pause_ms(1))

    async def before_revocation(
        self, partitions: Collection[TopicPartition], patience_ms: float
    ) -> None:
        """Commits before partitions are assigned to other members, which resume from there."""
        if not self.auto.is_enabled or self._group is None:
            return
        consumed = self._positions.consumed()
        wanted = {key: at for key, at in consumed.items() if key in set(partitions)}
        changed = self.auto.changed(wanted)
        if not changed:
            return
        try:
            await self.commit(changed, patience_ms)
        except MoldauError as error:
            _log.warning("offsets were not committed before a rebalance: %s", error)

    # Looking up.

    async def committed(
        self, partitions: Collection[TopicPartition], *, is_stable: bool = True
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        group_id = self._member().group_id
        return await self._cluster.with_retries(
            lambda: committed(self._cluster, group_id, partitions, is_stable=is_stable)
        )
