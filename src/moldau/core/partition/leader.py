"""A partition as its leader sees it: the in-sync replicas and the high watermark. The shell calls
`plan_append` before it writes the log, and reports progress with `held`, `follower_fetched` and
`changed`. They return effects for the shell.

The high watermark is the smallest offset up to which all in-sync replicas have the log, including
proposed ones (KIP-497). It never falls, and does not rise while too few are in sync (KIP-966).
"""

from typing import NamedTuple, TypeAlias

from moldau.core.metadata.image import PartitionImage
from moldau.protocol.error_codes import ErrorCode
from moldau.types import BrokerId, LeaderEpoch, Offset

ACKS_ALL = -1


class Refused(NamedTuple):
    """The append or fetch is refused."""

    code: ErrorCode
    detail: str


class Commit(NamedTuple):
    """Everything before the offset is committed."""

    high_watermark: Offset


class ProposeIsr(NamedTuple):
    """A proposal to the controller; `changed` or `proposal_failed` ends it."""

    isr: tuple[int, ...]
    partition_epoch: int


Effect: TypeAlias = Commit | ProposeIsr
_NOTHING: tuple[Effect, ...] = ()


class PartitionLeader:
    def __init__(
        self,
        broker_id: BrokerId,
        partition: PartitionImage,
        *,
        min_insync_replicas: int,
        log_end: Offset,
        high_watermark: Offset,
    ) -> None:
        """The leader epoch starts at `log_end`."""
        assert partition.leader == broker_id, (partition, broker_id)
        self.leader_epoch = LeaderEpoch(partition.leader_epoch)
        self.epoch_start = log_end
        self.high_watermark = high_watermark
        self._broker_id = broker_id
        self._partition = partition
        self._min_insync_replicas = min_insync_replicas
        self._is_short = self._is_under_min_isr()
        self._held: Offset = high_watermark
        self._fetched: dict[int, Offset] = {}
        self._proposed: tuple[int, ...] | None = None

    @property
    def partition(self) -> PartitionImage:
        return self._partition

    @property
    def is_lagging(self) -> bool:
        """Whether the former leader may have had a higher high watermark (KIP-207)."""
        return self.high_watermark < self.epoch_start

    @property
    def has_followers(self) -> bool:
        return len(self._partition.replicas) > 1

    def plan_append(self, required_acks: int) -> Refused | None:
        if self._is_short and required_acks == ACKS_ALL:
            return Refused(ErrorCode.NOT_ENOUGH_REPLICAS, self._in_sync_shortage())
        return None

    def commit_refusal(self) -> Refused | None:
        """Checked after the commit: the in-sync set may have shrunk since the append."""
        in_sync = self._proposed or self._partition.isr
        if len(in_sync) < self._min_isr():
            return Refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, self._in_sync_shortage())
        return None

    def log_reached(self, up_to: Offset) -> tuple[Effect, ...]:
        """The leader's log has everything before `up_to`, as durable as flushing demands."""
        self._held = up_to
        return self._commit()

    def plan_fetch(self, broker_id: BrokerId) -> Refused | None:
        """Checked before a follower's fetch."""
        if broker_id == self._broker_id or broker_id not in self._partition.replicas:
            return Refused(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {broker_id} is not a known replica"
            )
        return None

    def follower_fetched(self, broker_id: BrokerId, up_to: Offset) -> tuple[Effect, ...]:
        """A follower that fetches from `up_to` has everything before it."""
        assert self.plan_fetch(broker_id) is None, broker_id
        self._fetched[broker_id] = up_to
        effects: tuple[Effect, ...] = ()
        if self._is_in_sync_again(broker_id, up_to):
            self._proposed = (*self._partition.isr, broker_id)
            effects = (ProposeIsr(self._proposed, self._partition.partition_epoch),)
        return effects + self._commit()

    def changed(self, partition: PartitionImage) -> tuple[Effect, ...]:
        """The controller changed the partition, but not its leader or leader epoch."""
        assert partition.leader_epoch == self.leader_epoch, (partition, self.leader_epoch)
        if partition.partition_epoch > self._partition.partition_epoch:
            self._proposed = None
        self._partition = partition
        self._is_short = self._is_under_min_isr()
        self._fetched = {b: o for b, o in self._fetched.items() if b in partition.replicas}
        return self._commit()

    def proposal_failed(self) -> None:
        self._proposed = None

    def min_insync_replicas_changed(self, min_insync_replicas: int) -> tuple[Effect, ...]:
        self._min_insync_replicas = min_insync_replicas
        self._is_short = self._is_under_min_isr()
        return self._commit()

    def _commit(self) -> tuple[Effect, ...]:
        committed = self._held
        isr = self._partition.isr
        if len(isr) > 1 or self._proposed is not None:
            for broker_id in self._proposed or isr:
                if broker_id != self._broker_id:
                    committed = min(committed, self._fetched.get(broker_id, Offset(0)))
        if committed <= self.high_watermark or self._is_short:
            return _NOTHING
        self.high_watermark = committed
        return (Commit(committed),)

    def _is_in_sync_again(self, broker_id: BrokerId, up_to: Offset) -> bool:
        return (
            self._proposed is None
            and broker_id not in self._partition.isr
            and up_to >= max(self.high_watermark, self.epoch_start)
        )

    def _min_isr(self) -> int:
        """At most the number of replicas."""
        return min(self._min_insync_replicas, len(self._partition.replicas))

    def _is_under_min_isr(self) -> bool:
        return len(self._partition.isr) < self._min_isr()

    def _in_sync_shortage(self) -> str:
        return f"the in-sync replicas are {list(self._partition.isr)}, {self._min_isr()} are needed"
