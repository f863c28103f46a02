"""Positions and offsets of the consumer for asyncio: seeking, committing, asking."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from moldau.client.admin.offsets import FoundOffset, list_offsets
from moldau.client.consumer.arguments import (
    CommitOffsets,
    Place,
    offsets_of,
    place_of,
    places_of,
    position_of,
    time_of,
    times_of,
)
from moldau.client.consumer.engine import Engine
from moldau.client.consumer.offsets import GroupMetadata
from moldau.core.consumer.positions import OffsetAndMetadata
from moldau.core.consumer.resets import EARLIEST, LATEST, ResetPolicy
from moldau.protocol.enums import IsolationLevel, ListOffsetsTimestamp
from moldau.types import NO_EPOCH, NO_OFFSET, TopicPartition


class OffsetAndTimestamp(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int = NO_EPOCH


class OffsetMethods:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # Seeking.

    def seek(self, partition: Place, offset: int | OffsetAndMetadata) -> None:
        """The next record to be read there."""
        self._engine.seek(place_of(partition), position_of(offset))

    def seek_to_beginning(self, *partitions: Place) -> None:
        """Of these, or of all that are assigned."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Place) -> None:
        """Of these, or of all that are assigned: only later records are given."""
        self._reset(partitions, LATEST)

    def _reset(self, places: Iterable[Place], policy: ResetPolicy) -> None:
        self._engine.reset(places_of(places) or self._engine.positions.partitions, policy)

    async def seek_to_time(self, timestamp_ms: int, *partitions: Place) -> None:
        """To the first record that is not older; to the end if there is none."""
        wanted = places_of(partitions) or list(self._engine.positions.partitions)
        found = await self.offsets_for_times(dict.fromkeys(wanted, time_of(timestamp_ms)))
        for partition, at in found.items():
            if at is None:
                self._engine.reset([partition], LATEST)
            else:
                self._engine.seek(partition, OffsetAndMetadata(at.offset, "", at.leader_epoch))

    def pause(self, *partitions: Place) -> None:
        """Nothing is given of these, or of all, until they are resumed."""
        self._engine.pause(places_of(partitions), is_paused=True)

    def resume(self, *partitions: Place) -> None:
        """Gives records of these, or of all, again."""
        self._engine.pause(places_of(partitions), is_paused=False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused now."""
        return {state.partition for state in self._engine.positions if state.is_paused}

    async def position(self, partition: Place) -> int:
        """The offset of the next record to be given."""
        patience_ms = self._engine.config.default_api_timeout_ms
        return await self._engine.until_known(place_of(partition), patience_ms)

    def lag(self, partition: Place) -> int | None:
        """Records between the position and the end, as far as the last fetch knew; None before."""
        self._engine.start()
        return self._engine.state_of(place_of(partition)).lag

    # Committing.

    async def commit(self, offsets: CommitOffsets = None) -> None:
        """Waits until the group has it. Raises CommitFailedError if it does not take it."""
        self._engine.start()
        await self._engine.committing.commit(offsets_of(offsets))

    def commit_async(
        self, offsets: CommitOffsets = None, callback: Callable[..., Any] | None = None
    ) -> None:
        """Does not wait; `callback(offsets, error)` is called by a later poll."""
        self._engine.start()
        self._engine.committing.commit_async(offsets_of(offsets), callback)

    async def committed(
        self, partitions: Iterable[Place]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has nothing."""
        self._engine.start()
        wanted = places_of(partitions)
        found = await self._engine.committing.committed(wanted)
        return {partition: found.get(partition) for partition in wanted}

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, for a transaction that commits its offsets."""
        return self._engine.committing.committer()

    # Asking.

    async def beginning_offsets(self, partitions: Iterable[Place]) -> dict[TopicPartition, int]:
        """The offset of the first record that is there."""
        return await self._list(partitions, ListOffsetsTimestamp.EARLIEST)

    async def end_offsets(self, partitions: Iterable[Place]) -> dict[TopicPartition, int]:
        """Behind the last record that may be read: with read_committed, the last stable offset."""
        return await self._list(partitions, ListOffsetsTimestamp.LATEST)

    async def _list(self, places: Iterable[Place], which: int) -> dict[TopicPartition, int]:
        found = await self._find(dict.fromkeys(places_of(places), which))
        return {partition: at.offset for partition, at in found.items()}

    async def offsets_for_times(
        self, times: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record that is not older than a time in ms; None if there is none."""
        found = await self._find(times_of(times))
        return {
            partition: None if at.offset == NO_OFFSET else OffsetAndTimestamp(*at)
            for partition, at in found.items()
        }

    async def _find(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        self._engine.start()
        committed = self._engine.config.isolation_level == "read_committed"
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return await list_offsets(self._engine.cluster, wanted, level)
