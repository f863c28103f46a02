"""The leader of the quorum, as the listeners know it. This node leads only once everything before
its epoch was delivered; what belongs to its leadership ends at once when it does not lead any
longer.
"""

import asyncio
import logging
from collections.abc import Callable

from moldau.broker.quorum.committed_batches import CommittedBatches
from moldau.broker.quorum.leader_appends import LeaderAppends
from moldau.core.quorum.events import LeaderChanged
from moldau.protocol.errors import KafkaError
from moldau.types import NO_LEADER, BrokerId, LeaderEpoch

_log = logging.getLogger(__name__)


class Leadership:
    def __init__(
        self,
        node_id: BrokerId,
        batches: CommittedBatches,
        appends: LeaderAppends,
        is_current: Callable[[LeaderEpoch], bool],
        cannot_lead: Callable[[LeaderEpoch, KafkaError], None],
    ) -> None:
        """`is_current`: whether this node still leads in the epoch. `cannot_lead`: a listener
        refused to lead, for example because the disk is full.
        """
        self.leading: LeaderEpoch | None = None
        """The epoch in which this node may append."""
        self._node_id = node_id
        self._batches = batches
        self._appends = appends
        self._is_current = is_current
        self._cannot_lead = cannot_lead
        self._reported: LeaderChanged | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def changed(self, changed: LeaderChanged, lost: KafkaError, high_watermark: int) -> None:
        """`lost` is for those that wait for records which may never be committed now."""
        if changed.leader_id == self._node_id:
            self._batches.when_done(lambda: self._lead(changed.epoch))
            return
        self.leading = None
        self._batches.when_done(None)
        self._batches.forget_appended()
        self._batches.refuse_waiting(lost, max(high_watermark, 0))
        self._tell(changed)

    async def wait(self) -> None:
        """Until the next leader is known."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        try:
            await done
        finally:
            self._waiting.remove(done)

    def refuse_waiting(self, error: KafkaError) -> None:
        for done in self._waiting:
            if not done.done():
                done.set_exception(error)

    def _lead(self, epoch: LeaderEpoch) -> None:
        if not self._is_current(epoch):
            # It has ended while this node had something to deliver; `changed` is called for that
            # when a vote that comes first is on the disk.
            return
        self._appends.begin_epoch()
        self.leading = epoch
        try:
            self._tell(LeaderChanged(epoch, self._node_id))
        except KafkaError as error:
            _log.error("this node cannot be the active controller of epoch %s: %s", epoch, error)
            self._cannot_lead(epoch, error)

    def _tell(self, changed: LeaderChanged) -> None:
        self._reported = changed
        for listener in self._batches.listeners:
            if self._reported is not changed:
                # The listener before has ended this leadership, and all know of that already.
                return
            listener.on_leader_change(changed.epoch, changed.leader_id)
        if changed.leader_id != NO_LEADER:
            for done in self._waiting:
                if not done.done():
                    done.set_result(None)
