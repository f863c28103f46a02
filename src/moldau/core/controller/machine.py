"""The controller as a state machine. Its durable state is an image, changed only by replaying
records; broker sessions are not durable. The shell requests a decision, replays and appends its
records, and then calls `note` and `adopt`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.core.controller.brokers.sessions import BrokerSessions
from moldau.core.controller.decision_context import DecisionContext
from moldau.core.metadata.cluster_changes import FENCED
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, BrokerImage, MetadataImage
from moldau.protocol.log_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.wire.schema import Message
from moldau.types import BrokerId, LeaderEpoch, Offset, Uuid

if TYPE_CHECKING:
    import random

    from moldau.config.broker import BrokerConfig


def replayed(image: MetadataImage, records: Sequence[Message]) -> MetadataDelta:
    """Replays a decision's records before they are appended. Raises MetadataReplayError for records
    that no node could replay: they must not be appended.
    """
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta


class Controller:
    def __init__(
        self,
        config: "BrokerConfig",
        cluster_id: str,
        chance: "random.Random",
        own_incarnation: Uuid | None = None,
    ) -> None:
        """`own_incarnation`: that of the broker in the same process."""
        self.image = EMPTY_IMAGE
        self.sessions = BrokerSessions(config.broker_session_timeout_ms)
        self._node_id = config.node_id
        self._own_incarnation = own_incarnation
        self.cluster_id = cluster_id
        self._chance = chance

    def activate(self, now_ms: float) -> None:
        """This controller becomes the active one. Brokers that were alive get a full session, but
        for the earlier run of this node itself, which is over.
        """
        alive = [broker for broker in self.image.brokers.values() if not self._is_over(broker)]
        self.sessions.activate(alive, self.image.offset, now_ms)

    def _is_over(self, broker: BrokerImage) -> bool:
        is_own = broker.broker_id == self._node_id and self._own_incarnation is not None
        return is_own and broker.incarnation_id != self._own_incarnation

    def context(
        self, config: "BrokerConfig", *, next_offset: int, now_ms: float, kraft_version: int = 1
    ) -> DecisionContext:
        """The context of a decision whose first record will have the offset `next_offset`."""
        return DecisionContext(
            image=self.image,
            sessions=self.sessions,
            config=config,
            cluster_id=self.cluster_id,
            next_offset=next_offset,
            now_ms=now_ms,
            chance=self._chance,
            kraft_version=kraft_version,
        )

    def note(self, records: Sequence[Message], last_offset: Offset) -> None:
        """The records are in the log and end at `last_offset`. Call `adopt` with their delta before
        the next decision.
        """
        for offset, record in enumerate(records, last_offset - len(records) + 1):
            self._note(record, offset)

    def adopt(self, delta: MetadataDelta, last_offset: Offset, epoch: LeaderEpoch) -> None:
        """The next decisions are based on these changes."""
        self.image = delta.finish(last_offset, epoch, self.image.timestamp_ms)

    def load(self, image: MetadataImage) -> None:
        """Starts over from a snapshot, or reverts to the committed state."""
        self.image = image

    def answered(self, request: Message, now_ms: float) -> None:
        """The records of the request's decision have been replayed."""
        if not isinstance(request, BrokerHeartbeatRequest):
            return
        broker_id = BrokerId(request.broker_id)
        broker = self.image.brokers[broker_id]
        if broker.is_fenced and request.want_shut_down:
            # It may shut down now: its next start need not wait for this session to expire.
            self.sessions.end(broker_id, request.broker_epoch)
            return
        self.sessions.heard(broker_id, request.broker_epoch, now_ms)
        self.sessions.caught_up_to(broker_id, request.current_metadata_offset)
        if broker.in_controlled_shutdown and not broker.is_fenced:
            self.sessions.shutting_down(broker_id, self.image.offset)

    def _note(self, record: Message, offset: int) -> None:
        if isinstance(record, RegisterBrokerRecord):
            before = self.image.brokers.get(record.broker_id)
            if before is None or before.epoch != record.broker_epoch:
                self.sessions.registered(BrokerId(record.broker_id), offset)
        elif isinstance(record, UnregisterBrokerRecord):
            self.sessions.forget(BrokerId(record.broker_id))
        elif isinstance(record, FenceBrokerRecord):
            self.sessions.fenced(BrokerId(record.id))
        elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCED:
            self.sessions.fenced(BrokerId(record.broker_id))
