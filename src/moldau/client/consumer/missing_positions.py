"""Finds missing positions: the committed offsets of the group, or those that auto.offset.reset
chooses.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from moldau.client.cluster.cluster import Cluster
from moldau.client.consumer.errors import NoOffsetError
from moldau.client.consumer.fetching import Fetching
from moldau.core.consumer.positions import OffsetAndMetadata, PartitionState, Positions
from moldau.core.consumer.resets import ResetKind, ResetPolicy
from moldau.net.tasks import Tasks
from moldau.protocol.errors import MoldauError
from moldau.types import TopicPartition

Committed = Callable[
    [Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]
]


class MissingPositions:
    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        fetching: Fetching,
        reset: ResetPolicy,
        on_change: Callable[[], None],
    ) -> None:
        self.committed: Committed | None = None
        """Requests the group's offsets; None without a group."""
        self._cluster = cluster
        self._positions = positions
        self._fetching = fetching
        self._reset = reset
        self._on_change = on_change
        self._finding: set[tuple[PartitionState, int]] = set()
        """Partitions with the versions of their states, while their offsets are requested."""
        self._tasks = Tasks()

    def find(self) -> None:
        lost = [
            (state, state.version)
            for state in self._positions
            if state.position is None
            and state.reset is None
            and (state, state.version) not in self._finding
        ]
        if lost:
            self._finding.update(lost)
            _ = self._tasks.start(self._find_all(lost), "find committed offsets")

    async def _find_all(self, lost: list[tuple[PartitionState, int]]) -> None:
        try:
            found: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
            if self.committed is not None:
                found = await self.committed([state.partition for state, _ in lost])
            self._begin(lost, found)
        except MoldauError as error:
            if not self._cluster.is_retriable(error):
                self._fetching.fail(error)
            await self._cluster.clock.sleep(self._cluster.pause_ms(1))
        finally:
            self._finding.difference_update(lost)
            self._on_change()
        self._fetching.fetch_more()

    def _begin(
        self,
        lost: Iterable[tuple[PartitionState, int]],
        found: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        for state, version in lost:
            if state.version != version:
                continue
            at = found.get(state.partition)
            if at is not None:
                state.seek(at.offset, at.leader_epoch)
            elif self._reset.kind is not ResetKind.NONE:
                state.request_reset(self._reset)
            else:
                self._fetching.fail(
                    NoOffsetError(
                        f"{state.partition} has no committed offset, and auto.offset.reset is "
                        "none; seek to the offset to begin with"
                    ),
                    state,
                )
                return

    async def close(self) -> None:
        await self._tasks.close()
