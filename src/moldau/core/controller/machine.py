"""The controller as a machine: its durable state is an image, changed only by replaying records;
what it has heard from brokers is not durable. The shell asks for a decision, replays and appends
its records, and tells the machine when that is done.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from moldau.core.controller.config_changes import (
    decide_alter_configs,
    decide_incremental_alter_configs,
)
from moldau.core.controller.directories import decide_assign_directories
from moldau.core.controller.elections import decide_elect_leaders
from moldau.core.controller.features import decide_update_features
from moldau.core.controller.heartbeats import decide_heartbeat
from moldau.core.controller.in_sync_changes import decide_alter_partition
from moldau.core.controller.more_partitions import decide_create_partitions
from moldau.core.controller.producer_ids import decide_allocate_producer_ids
from moldau.core.controller.registrations import (
    decide_register_broker,
    decide_register_controller,
    decide_unregister_broker,
)
from moldau.core.controller.sessions import BrokerSessions
from moldau.core.controller.situation import Situation
from moldau.core.controller.topic_deletion import decide_delete_topics
from moldau.core.controller.topics import decide_create_topics
from moldau.core.decision import Decision
from moldau.core.metadata.cluster_changes import FENCED
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.log_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.schema import Message

if TYPE_CHECKING:
    import random

    from moldau.config.broker import BrokerConfig

Decide = Callable[[Situation, Any, int], Decision[Message, Any]]

DECISIONS: dict[ApiKey, Decide] = {
    ApiKey.CREATE_TOPICS: decide_create_topics,
    ApiKey.DELETE_TOPICS: decide_delete_topics,
    ApiKey.ALTER_CONFIGS: decide_alter_configs,
    ApiKey.CREATE_PARTITIONS: decide_create_partitions,
    ApiKey.ELECT_LEADERS: decide_elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: decide_incremental_alter_configs,
    ApiKey.ALTER_PARTITION: decide_alter_partition,
    ApiKey.UPDATE_FEATURES: decide_update_features,
    ApiKey.BROKER_REGISTRATION: decide_register_broker,
    ApiKey.BROKER_HEARTBEAT: decide_heartbeat,
    ApiKey.UNREGISTER_BROKER: decide_unregister_broker,
    ApiKey.ALLOCATE_PRODUCER_IDS: decide_allocate_producer_ids,
    ApiKey.CONTROLLER_REGISTRATION: decide_register_controller,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: decide_assign_directories,
}
"""What the active controller decides."""


def decide(situation: Situation, request: Message, version: int) -> Decision[Message, Message]:
    """Changes nothing. Raises KafkaError if the whole request is refused."""
    return DECISIONS[ApiKey(request.API_KEY)](situation, request, version)


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

    def situation(
        self, config: "BrokerConfig", *, next_offset: int, now_ms: float, kraft_version: int = 1
    ) -> Situation:
        """What a decision of now looks at, whose first record will stand at `next_offset`."""
        return Situation(
            image=self.image,
            sessions=self.sessions,
            config=config,
            cluster_id=self._cluster_id,
            next_offset=next_offset,
            now_ms=now_ms,
            chance=self._chance,
            kraft_version=kraft_version,
        )

    def replayed(self, records: Sequence[Message]) -> MetadataDelta:
        """Try our own records before they are appended. Raises MetadataReplayError: then they must
        not be, for nobody could replay them.
        """
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        return delta

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
