"""The controller as a machine: its durable state is an image, changed only by replaying records;
what it has heard from brokers is not durable. The shell asks for a decision, replays and appends
its records, and tells the machine when that is done.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from moldau.core.controller.sessions import BrokerSessions
from moldau.core.controller.situation import Situation
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
from moldau.protocol.wire.schema import Message

if TYPE_CHECKING:
    import random

    from moldau.config.broker import BrokerConfig

Decide = Callable[[Situation, Any, int], Decision[Message, Any]]

# Module and function of each decision. Imported at its first request: a node starts without most.
DECISIONS: dict[ApiKey, tuple[str, str]] = {
    ApiKey.CREATE_TOPICS: ("topics", "decide_create_topics"),
    ApiKey.DELETE_TOPICS: ("topic_deletion", "decide_delete_topics"),
    ApiKey.ALTER_CONFIGS: ("config_changes", "decide_alter_configs"),
    ApiKey.CREATE_PARTITIONS: ("more_partitions", "decide_create_partitions"),
    ApiKey.ELECT_LEADERS: ("elections", "decide_elect_leaders"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("config_changes", "decide_incremental_alter_configs"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("reassignments", "decide_alter_reassignments"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("reassignments", "decide_list_reassignments"),
    ApiKey.ALTER_PARTITION: ("in_sync_changes", "decide_alter_partition"),
    ApiKey.UPDATE_FEATURES: ("features", "decide_update_features"),
    ApiKey.BROKER_REGISTRATION: ("registrations", "decide_register_broker"),
    ApiKey.BROKER_HEARTBEAT: ("heartbeats", "decide_heartbeat"),
    ApiKey.UNREGISTER_BROKER: ("registrations", "decide_unregister_broker"),
    ApiKey.ALLOCATE_PRODUCER_IDS: ("producer_ids", "decide_allocate_producer_ids"),
    ApiKey.CONTROLLER_REGISTRATION: ("registrations", "decide_register_controller"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ("directories", "decide_assign_directories"),
}
_PACKAGE = __name__.rpartition(".")[0]


def decide(situation: Situation, request: Message, version: int) -> Decision[Message, Any]:
    """Changes nothing. Raises KafkaError if the whole request is refused."""
    return decision_of(ApiKey(request.API_KEY))(situation, request, version)


def decision_of(api_key: ApiKey) -> Decide:
    module, name = DECISIONS[api_key]
    found: Decide = getattr(import_module(f"{_PACKAGE}.{module}"), name)
    return found


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
