"""The controller as a machine: its durable state is an image, changed only by replaying records;
what it has heard from brokers is not durable. The shell asks for a decision, replays and appends
its records, and tells the machine when that is done.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.core.controller.brokers.sessions import BrokerSessions
from moldau.core.controller.decision_context import DecisionContext
from moldau.core.metadata.cluster_changes import FENCED
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.protocol.log_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.wire.schema import Message

if TYPE_CHECKING:
    import random

    from moldau.config.broker import BrokerConfig


def replayed(image: MetadataImage, records: Sequence[Message]) -> MetadataDelta:
    """Try our own records before they are appended. Raises MetadataReplayError: then they must not
    be, for nobody could replay them.
    """
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta


class Controller:
    def __init__(self, config: "BrokerConfig", cluster_id: str, chance: "random.Random") -> None:
        self.image = EMPTY_IMAGE
        self.sessions = BrokerSessions(config.broker_session_timeout_ms)
        self._own_broker_id = config.node_id if config.is_broker else None
        self._cluster_id = cluster_id
        self._chance = chance

    def activate(self, now_ms: float) -> None:
        """From here on this controller decides. The broker in its own process has no session: it
        was started with the controller and has not registered yet.
        """
        brokers = self.image.brokers.values()
        others = [broker for broker in brokers if broker.broker_id != self._own_broker_id]
        self.sessions.activate(others, self.image.offset, now_ms)

    def context(
        self, config: "BrokerConfig", *, next_offset: int, now_ms: float, kraft_version: int = 1
    ) -> DecisionContext:
        """What a decision of now looks at, whose first record will stand at `next_offset`."""
        return DecisionContext(
            image=self.image,
            sessions=self.sessions,
            config=config,
            cluster_id=self._cluster_id,
            next_offset=next_offset,
            now_ms=now_ms,
            chance=self._chance,
            kraft_version=kraft_version,
        )

    def adopt(
        self, delta: MetadataDelta, records: Sequence[Message], last_offset: int, epoch: int
    ) -> None:
        """They are in the log, up to `last_offset`."""
        for offset, record in enumerate(records, last_offset - len(records) + 1):
            self._note(record, offset)
        self.image = delta.finish(last_offset, epoch, self.image.timestamp_ms)

    def load(self, image: MetadataImage) -> None:
        """Start over from a snapshot, or go back to what is committed."""
        self.image = image

    def answered(self, request: Message, now_ms: float) -> None:
        """The records of the request's decision are replayed."""
        if not isinstance(request, BrokerHeartbeatRequest):
            return
        broker = self.image.brokers[request.broker_id]
        if broker.is_fenced and request.want_shut_down:
            # It was told to stop: its next start needs not wait for the session to run out.
            self.sessions.end(request.broker_id, request.broker_epoch)
            return
        self.sessions.heard(request.broker_id, request.broker_epoch, now_ms)
        self.sessions.caught_up_to(request.broker_id, request.current_metadata_offset)
        if broker.in_controlled_shutdown and not broker.is_fenced:
            self.sessions.shutting_down(request.broker_id, self.image.offset)

    def _note(self, record: Message, offset: int) -> None:
        if isinstance(record, RegisterBrokerRecord):
            before = self.image.brokers.get(record.broker_id)
            if before is None or before.epoch != record.broker_epoch:
                self.sessions.registered(record.broker_id, offset)
        elif isinstance(record, UnregisterBrokerRecord):
            self.sessions.forget(record.broker_id)
        elif isinstance(record, FenceBrokerRecord):
            self.sessions.fenced(record.id)
        elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCED:
            self.sessions.fenced(record.broker_id)
