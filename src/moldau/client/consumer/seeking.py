"""Finds unknown positions by the reset policy, and checks after a change of leader whether the new
leader has the records that were read (KIP-320).
"""

from collections.abc import Callable, Coroutine
from typing import Any

from moldau.client.admin.offsets import list_offsets
from moldau.client.cluster.cluster import Cluster
from moldau.client.consumer.errors import LogTruncationError, NoOffsetError
from moldau.client.consumer.options import FetchOptions
from moldau.client.errors import check
from moldau.core.consumer.positions import PartitionState, Positions
from moldau.core.consumer.resets import LATEST, ResetKind
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.errors import MoldauError
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.types import CONSUMER_REPLICA, NO_EPOCH, NO_OFFSET


class Seeking:
    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        options: FetchOptions,
        on_found: Callable[[MoldauError | None, PartitionState | None], None],
    ) -> None:
        self._cluster = cluster
        self._positions = positions
        self._options = options
        self._on_found = on_found
        self._in_flight: set[tuple[PartitionState, int]] = set()
        self._tasks = Tasks()

    async def close(self) -> None:
        await self._tasks.close()

    def find_positions(self) -> None:
        """Starts a reset or a validation for each partition that needs one, unless one is in
        progress.
        """
        resets = [state for state in self._positions if state.reset and self._is_waiting(state)]
        if resets:
            self._begin(resets, lambda: self._reset(resets), "find where to begin")
        for state in self._positions:
            if state.must_validate and state.position is not None and self._is_waiting(state):
                self._begin(
                    [state],
                    lambda state=state: self._validate(state),  # type: ignore[misc]
                    f"validate {state.partition}",
                )

    def _begin(
        self,
        states: list[PartitionState],
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
    ) -> None:
        marks = {(state, state.version) for state in states}
        self._in_flight |= marks

        async def tracked() -> None:
            problem: MoldauError | None = None
            try:
                await work()
            except MoldauError as error:
                # A retriable error is retried without a limit.
                problem = None if self._cluster.is_retriable(error) else error
                await self._cluster.clock.sleep(self._cluster.pause_ms(1))
            finally:
                self._in_flight -= marks
            if all(state.version != version for state, version in marks):
                problem = None  # Outdated by a seek or a new assignment.
            self._on_found(problem, states[0] if len(states) == 1 else None)

        _ = self._tasks.start(tracked(), name)

    def _is_waiting(self, state: PartitionState) -> bool:
        # Without a known leader there is no broker to send the request to.
        is_led = self._cluster.known.leader_of(state.partition) is not None
        return is_led and (state, state.version) not in self._in_flight

    def lost(self, state: PartitionState) -> None:
        """Resets a position that is no longer in the log. With auto.offset.reset=none polls raise
        NoOffsetError instead.
        """
        if self._options.reset.kind is ResetKind.NONE:
            raise NoOffsetError(
                f"{state.partition} no longer has offset {state.fetch_offset}, and "
                "auto.offset.reset is none; seek to an offset that exists"
            )
        state.request_reset(self._options.reset)

    async def _reset(self, states: list[PartitionState]) -> None:
        now_ms = self._cluster.clock.wall_ms()
        versions = {state.partition: state.version for state in states}
        wanted = {state.partition: state.reset.timestamp(now_ms) for state in states if state.reset}
        found = await list_offsets(self._cluster, wanted, self._options.isolation)
        late = [partition for partition, at in found.items() if at.offset == NO_OFFSET]
        if late:
            # No record is that new: begin at the end.
            ends = dict.fromkeys(late, LATEST.timestamp(now_ms))
            found |= await list_offsets(self._cluster, ends, self._options.isolation)
        for state in states:
            # A seek before this began has outdated the reset.
            if state.partition in found and state.version == versions[state.partition]:
                state.seek(found[state.partition].offset)

    async def _validate(self, state: PartitionState) -> None:
        version = state.version
        await self._cluster.with_retries(lambda: self._validate_once(state, version))

    async def _validate_once(self, state: PartitionState, version: int) -> None:
        leader = await self._cluster.leader(state.partition)
        connection = await self._cluster.connection(leader)
        if state.version != version:
            return
        if state.fetch_epoch == NO_EPOCH or not connection.serves(ApiKey.OFFSET_FOR_LEADER_EPOCH):
            state.must_validate = False
            return
        name, number = state.partition
        row = OffsetForLeaderPartition(
            partition=number,
            current_leader_epoch=state.leader_epoch,
            leader_epoch=state.fetch_epoch,
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA, topics=[OffsetForLeaderTopic(topic=name, partitions=[row])]
        )
        answer = await connection.send(request, OffsetForLeaderEpochResponse)
        for topic in answer.topics:
            for end in topic.partitions:
                check(end.error_code, str(state.partition))
                if state.version == version:
                    self._compare_end(state, end.end_offset, end.leader_epoch)

    def _compare_end(self, state: PartitionState, end_offset: int, epoch: int) -> None:
        state.must_validate = False
        position = state.position
        if end_offset == NO_OFFSET or position is None or end_offset >= state.fetch_offset:
            return
        if self._options.reset.kind is ResetKind.NONE:
            # Nothing is read from this partition until a seek.
            state.must_validate = True
            raise LogTruncationError(
                f"{state.partition} was read up to {position}, its new leader ends at "
                f"{end_offset}; seek to the offset to continue with"
            )
        state.seek(min(position, end_offset), epoch)
        state.must_validate = False
