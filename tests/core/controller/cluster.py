"""A controller without a log: decisions are replayed at once, and every record is kept, so that a
test can compare the image with the records.
"""

import random
from collections.abc import Mapping
from typing import Any

from core.metadata.metadata_records import counted

from moldau.config.broker import BrokerConfig
from moldau.core.controller.brokers.fencing import decide_fence_stale_broker
from moldau.core.controller.decision_context import DecisionContext
from moldau.core.controller.decisions import decide
from moldau.core.controller.features import SUPPORTED_FEATURES
from moldau.core.controller.machine import Controller, replayed
from moldau.core.decision import Decision
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage
from moldau.protocol.log_records import FeatureLevelRecord, NoOpRecord
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.wire.schema import Message
from moldau.types import LeaderEpoch, Offset, TopicPartition, Uuid

CLUSTER_ID = "MoldauTestCluster0000A"
CONTROLLER_ID = 100
EPOCH = LeaderEpoch(1)
SETTINGS = {
    "process.roles": "controller",
    "node.id": str(CONTROLLER_ID),
    "listeners": "CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
}
METADATA_LEVEL = 30


def uuid_of(number: int) -> Uuid:
    """The id of a directory or incarnation, by a number that a test chooses."""
    return Uuid(bytes([number]) * 16)


class Cluster:
    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        level: int = METADATA_LEVEL,
        eligible_replicas: bool = True,
        kraft_version: int = 1,
        seed: int = 1,
        own_incarnation: Uuid | None = None,
    ) -> None:
        self.config = BrokerConfig.parse({**SETTINGS, **(settings or {})})
        self.controller = Controller(self.config, CLUSTER_ID, random.Random(seed), own_incarnation)
        self.log: list[Message] = []
        self.now_ms = 0.0
        self.kraft_version = kraft_version
        features = {"metadata.version": level}
        if eligible_replicas:
            features["eligible.leader.replicas.version"] = 1
        self._append(
            [FeatureLevelRecord(name=n, feature_level=each) for n, each in features.items()]
        )
        self.controller.activate(self.now_ms)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    @property
    def context(self) -> DecisionContext:
        return self.controller.context(
            self.config,
            next_offset=len(self.log),
            now_ms=self.now_ms,
            kraft_version=self.kraft_version,
        )

    def send(self, request: Message, version: int | None = None) -> Any:
        """Decides a request, logs the records of the decision, and returns the response."""
        if version is None:
            version = request.VERSIONS[1]
        decision = decide(self.context, request, version)
        if decision.kraft_version is not None:
            self.kraft_version = decision.kraft_version
        self._append(decision.records)
        self.controller.answered(request, self.now_ms)
        return decision.response

    def do(self, decision: Decision[Message, Any]) -> Any:
        self._append(decision.records)
        return decision.response

    def fence_stale(self) -> tuple[int, int] | None:
        decision = decide_fence_stale_broker(self.context)
        self._append(decision.records)
        if decision.response is not None:
            self.controller.sessions.end(*decision.response)
        return decision.response

    def register(
        self,
        broker_id: int,
        *,
        rack: str | None = None,
        incarnation: int = 0,
        directories: tuple[int, ...] = (),
        previous_epoch: int = -1,
    ) -> int:
        """Registers a broker and returns its epoch."""
        request = registration(broker_id, rack=rack, incarnation=incarnation)
        request.previous_broker_epoch = previous_epoch
        if directories:
            request.log_dirs = [uuid_of(number) for number in directories]
        response = self.send(request)
        assert response.error_code == 0
        return int(response.broker_epoch)

    def heartbeat(self, broker_id: int, **fields: Any) -> Any:
        broker = self.image.brokers[broker_id]
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=fields.pop("broker_epoch", broker.epoch),
            current_metadata_offset=fields.pop("offset", self.image.offset),
            **fields,
        )
        return self.send(request)

    def start(self, *broker_ids: int, racks: Mapping[int, str] | None = None) -> None:
        """Registers and unfences brokers."""
        for broker_id in broker_ids:
            self.register(broker_id, rack=(racks or {}).get(broker_id))
            assert not self.heartbeat(broker_id).is_fenced

    def create(
        self, name: str, *assignment: list[int], configs: Mapping[str, str] | None = None
    ) -> Uuid:
        """Creates a topic with these replicas and returns its id."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                for index, replicas in enumerate(assignment)
            ],
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
        )
        (result,) = self.send(CreateTopicsRequest(topics=[topic])).topics
        assert result.error_code == 0, result.error_message
        return Uuid(result.topic_id)

    def partition(self, name: str, index: int = 0) -> PartitionImage:
        partition = self.image.partition(TopicPartition(name, index))
        assert partition is not None
        return partition

    def check(self) -> None:
        """Checks that the controller's image equals the state of its records."""
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in self.log:
            delta.replay(record)
        assert delta.finish(Offset(len(self.log) - 1), EPOCH, 0) == self.image
        assert self.image.partition_counts == counted(self.image)

    def _append(self, records: Any) -> None:
        records = list(records)
        if records:
            delta = replayed(self.controller.image, records)
            self.log += records
            last_offset = Offset(len(self.log) - 1)
            self.controller.note(records, last_offset)
            self.controller.adopt(delta, last_offset, EPOCH)

    def idle(self, count: int = 1) -> None:
        """Appends no-op records."""
        self._append([NoOpRecord() for _ in range(count)])


def registration(
    broker_id: int, *, rack: str | None = None, incarnation: int = 0
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid_of(100 + 10 * broker_id % 100 + incarnation),
        listeners=[Listener(name="PLAINTEXT", host=f"host-{broker_id}", port=9000 + broker_id)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        rack=rack,
        log_dirs=[uuid_of(broker_id + 1)],
    )
