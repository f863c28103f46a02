"""Readers: of chosen partitions, or as a member of a group. Both give what was fetched and are told
what was consumed; the group's reader commits that now and then, before a rebalance, and at its end.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from moldau.client.admin.groups import Committed, commit_offsets, committed_offsets
from moldau.client.cluster import Cluster
from moldau.client.fetcher import FetchedPartition, Fetcher, FetchOptions
from moldau.client.group_member import GroupMember, GroupOptions
from moldau.client.start_positions import StartAt, start_positions
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.types import TopicPartition

_COMMIT_EVERY_MS = 5_000
# The group has moved on; whoever has the partition now reads these records again.
_TOO_LATE = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}


class Reader(Protocol):
    @property
    def assigned(self) -> Mapping[TopicPartition, int]:
        """What is read now, and the offset where that began."""

    @property
    def is_assigned(self) -> bool:
        """False while a member waits for its share."""

    async def next(self, timeout_ms: float | None = None) -> FetchedPartition | None:
        """None: nothing came in time, or the assignment changed."""

    async def consumed(self, partition: TopicPartition, next_offset: int) -> None: ...


class PartitionReader:
    """Use as `async with`."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int], options: FetchOptions
    ) -> None:
        self.assigned = dict(positions)
        self.is_assigned = True
        self._fetcher = Fetcher(cluster, positions, options)

    async def __aenter__(self) -> Self:
        await self._fetcher.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._fetcher.__aexit__(kind, error, trace)

    @property
    def buffered_bytes(self) -> int:
        """What came and waits to be taken."""
        return self._fetcher.buffered_bytes

    async def next(self, timeout_ms: float | None = None) -> FetchedPartition | None:
        return await self._fetcher.next(timeout_ms)

    async def consumed(self, partition: TopicPartition, next_offset: int) -> None:
        """Nobody keeps it."""


class GroupReader:
    """Use as `async with`; leaving it, also by an interrupt, commits and leaves the group."""

    def __init__(
        self,
        cluster: Cluster,
        group: GroupOptions,
        start: StartAt,
        options: FetchOptions,
        *,
        is_committing: bool = True,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._start = start
        self._options = options
        self._is_committing = is_committing
        self._member = GroupMember(cluster, group, self._interrupt)
        self._fetcher: Fetcher | None = None
        self._uncommitted: dict[TopicPartition, Committed] = {}
        self._commit_due_ms = 0.0
        self.assigned: dict[TopicPartition, int] = {}

    @property
    def is_assigned(self) -> bool:
        return self._fetcher is not None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop_fetching()
        try:
            await self._commit()
        finally:
            await self._member.leave()

    async def next(self, timeout_ms: float | None = None) -> FetchedPartition | None:
        if self._member.error is not None:
            raise self._member.error
        if self._fetcher is None or self._member.must_rejoin:
            await self._rejoin()
            return None
        await self._commit_if_due()
        return await self._fetcher.next(timeout_ms)

    async def consumed(self, partition: TopicPartition, next_offset: int) -> None:
        if partition in self.assigned:
            self._uncommitted[partition] = Committed(next_offset)
        await self._commit_if_due()

    def _interrupt(self) -> None:
        if self._fetcher is not None:
            self._fetcher.interrupt()

    async def _rejoin(self) -> None:
        # Eager: everything is given up before joining, so it is committed before.
        await self._stop_fetching()
        await self._commit()
        self.assigned = {}
        partitions = await self._member.join()
        committed = await committed_offsets(self._cluster, self._group.group_id)
        known = {one: committed[one].offset for one in partitions if one in committed}
        fresh = [one for one in partitions if one not in known]
        self.assigned = known | await start_positions(self._cluster, fresh, self._start)
        self._commit_due_ms = self._cluster.clock.mono_ms() + _COMMIT_EVERY_MS
        self._fetcher = Fetcher(self._cluster, self.assigned, self._options)
        await self._fetcher.__aenter__()

    async def _stop_fetching(self) -> None:
        if self._fetcher is not None:
            fetcher, self._fetcher = self._fetcher, None
            await fetcher.__aexit__(None, None, None)

    async def _commit_if_due(self) -> None:
        if self._cluster.clock.mono_ms() >= self._commit_due_ms:
            await self._commit()
            self._commit_due_ms = self._cluster.clock.mono_ms() + _COMMIT_EVERY_MS

    async def _commit(self) -> None:
        offsets, self._uncommitted = self._uncommitted, {}
        if not (offsets and self._is_committing):
            return
        try:
            await commit_offsets(
                self._cluster, self._group.group_id, offsets, self._member.identity
            )
        except KafkaError as error:
            if error.code not in _TOO_LATE:
                raise
