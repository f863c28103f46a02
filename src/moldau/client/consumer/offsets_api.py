"""Positions and offsets of the asyncio consumer: seeking, committing, looking up."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from moldau.client.admin.offsets import FoundOffset, list_offsets
from moldau.client.consumer.arguments import (
    AnyPartition,
    CommitOffsets,
    offsets_of,
    partition_of,
    partitions_of,
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
    """A record that was found by its timestamp."""

    offset: int
    timestamp: int
    """The timestamp of the record, in milliseconds since 1970."""
    leader_epoch: int = NO_EPOCH
    """The epoch of the leader that wrote the record; -1 if it is unknown."""


class OffsetMethods:
    """The methods of a consumer that concern offsets. A partition is a `TopicPartition`, or a tuple
    of a topic and a number.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # Seeking.

    def seek(self, partition: AnyPartition, offset: int | OffsetAndMetadata) -> None:
        """Sets the position in a partition.

        Args:
            partition: An assigned partition.
            offset: The offset of the next record to read, alone or with its leader epoch.

        Raises:
            ClientError: The partition is not assigned, or the offset is negative.
        """
        self._engine.seek(partition_of(partition), position_of(offset))

    def seek_to_beginning(self, *partitions: AnyPartition) -> None:
        """Sets the position to the first record that exists.

        Args:
            *partitions: Assigned partitions; all of them if none is given.
        """
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: AnyPartition) -> None:
        """Sets the position after the last record, so that only later records are read.

        Args:
            *partitions: Assigned partitions; all of them if none is given.
        """
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Iterable[AnyPartition], policy: ResetPolicy) -> None:
        self._engine.reset(partitions_of(partitions) or self._engine.positions.partitions, policy)

    async def seek_to_time(self, timestamp_ms: int, *partitions: AnyPartition) -> None:
        """Sets the position to the first record that is not older than a time.

        If all records of a partition are older, its position is set to the end.

        Args:
            timestamp_ms: The time, in milliseconds since 1970.
            *partitions: Assigned partitions; all of them if none is given.
        """
        wanted = partitions_of(partitions) or list(self._engine.positions.partitions)
        found = await self.offsets_for_times(dict.fromkeys(wanted, time_of(timestamp_ms)))
        for partition, at in found.items():
            if at is None:
                self._engine.reset([partition], LATEST)
            else:
                self._engine.seek(partition, OffsetAndMetadata(at.offset, "", at.leader_epoch))

    def pause(self, *partitions: AnyPartition) -> None:
        """Stops reading from partitions until `resume`, without giving them up.

        Args:
            *partitions: Assigned partitions; all of them if none is given.
        """
        self._engine.pause(partitions_of(partitions), is_paused=True)

    def resume(self, *partitions: AnyPartition) -> None:
        """Continues to read from paused partitions.

        Args:
            *partitions: Assigned partitions; all of them if none is given.
        """
        self._engine.pause(partitions_of(partitions), is_paused=False)

    def paused(self) -> set[TopicPartition]:
        """Returns the partitions that are paused now."""
        return {state.partition for state in self._engine.positions if state.is_paused}

    async def position(self, partition: AnyPartition) -> int:
        """Returns the offset of the next record to read, and waits until it is known.

        Args:
            partition: An assigned partition.

        Raises:
            ClientTimeoutError: The position was not found within default.api.timeout.ms.
            NoOffsetError: Nothing is committed, and auto.offset.reset is none.
        """
        patience_ms = self._engine.config.default_api_timeout_ms
        return await self._engine.until_known(partition_of(partition), patience_ms)

    def lag(self, partition: AnyPartition) -> int | None:
        """Returns how many records are left to read, as of the last fetch.

        Args:
            partition: An assigned partition.

        Returns:
            The number of records between the position and the end; None before the first fetch.
        """
        self._engine.start()
        return self._engine.state_of(partition_of(partition)).lag

    # Committing.

    async def commit(self, offsets: CommitOffsets = None) -> None:
        """Commits offsets for the group, and waits for the response.

        Args:
            offsets: The offset of the next record to read in each partition, alone or as
                `OffsetAndMetadata`; None for the positions of all assigned partitions.

        Raises:
            CommitFailedError: This consumer is no longer a member, or the group is rebalancing.
        """
        self._engine.start()
        await self._engine.committing.commit(offsets_of(offsets))

    def commit_async(
        self, offsets: CommitOffsets = None, callback: Callable[..., Any] | None = None
    ) -> None:
        """Commits offsets for the group without waiting.

        Args:
            offsets: As in `commit`.
            callback: A later poll calls `callback(offsets, error)`; the error is None if the
                offsets are committed.
        """
        self._engine.start()
        self._engine.committing.commit_async(offsets_of(offsets), callback)

    async def committed(
        self, partitions: Iterable[AnyPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Looks up the committed offsets of the group.

        Args:
            partitions: The partitions, which need not be assigned.

        Returns:
            For each partition, the committed offset; None if there is none.
        """
        self._engine.start()
        wanted = partitions_of(partitions)
        found = await self._engine.committing.committed(wanted)
        return {partition: found.get(partition) for partition in wanted}

    def group_metadata(self) -> GroupMetadata:
        """Returns the identity of this consumer in its group, for `Producer.send_offsets`."""
        return self._engine.committing.committer()

    # Looking up.

    async def beginning_offsets(
        self, partitions: Iterable[AnyPartition]
    ) -> dict[TopicPartition, int]:
        """Looks up the first offsets of partitions.

        Args:
            partitions: The partitions, which need not be assigned.

        Returns:
            For each partition, the offset of its first record.
        """
        return await self._list(partitions, ListOffsetsTimestamp.EARLIEST)

    async def end_offsets(self, partitions: Iterable[AnyPartition]) -> dict[TopicPartition, int]:
        """Looks up the end offsets of partitions.

        Args:
            partitions: The partitions, which need not be assigned.

        Returns:
            For each partition, the offset after the last record that may be read. With
            isolation.level=read_committed this is the last stable offset.
        """
        return await self._list(partitions, ListOffsetsTimestamp.LATEST)

    async def _list(
        self, partitions: Iterable[AnyPartition], which: int
    ) -> dict[TopicPartition, int]:
        found = await self._find(dict.fromkeys(partitions_of(partitions), which))
        return {partition: at.offset for partition, at in found.items()}

    async def offsets_for_times(
        self, times: Mapping[AnyPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Looks up records by time.

        Args:
            times: For each partition, a time in milliseconds since 1970.

        Returns:
            For each partition, the first record that is not older; None if all are older.
        """
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
