"""A second broker that exists only for the controller: a test sends its requests."""

from typing import Any, Self

from config.live.live_node import LiveNode
from support.wire_client import WireClient

from moldau.core.controller.features import SUPPORTED_FEATURES
from moldau.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
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
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.types import Uuid

FIRST, SECOND = 1, 2
NEWEST = 2**62


class SecondBroker:
    """Registered, and fenced until its first heartbeat."""

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._controller = WireClient(f"127.0.0.1:{node.ports['CONTROLLER']}")
        request = BrokerRegistrationRequest(
            broker_id=SECOND,
            cluster_id=node.broker._running().services.cluster_id,
            incarnation_id=Uuid(b"2" * 16),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[Uuid(b"d" * 16)],
        )
        answer = self._controller.ask(request)
        assert answer.error_code == 0
        self.epoch = answer.broker_epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.close()

    def heartbeat(self) -> bool:
        """Sends a heartbeat. Returns whether the broker is fenced."""
        request = BrokerHeartbeatRequest(
            broker_id=SECOND,
            broker_epoch=self.epoch,
            current_metadata_offset=NEWEST,
            want_fence=False,
        )
        answer = self._controller.ask(request)
        assert answer.error_code == 0
        return bool(answer.is_fenced)

    def alter_isr(self, topic: str, *isr: int) -> None:
        """Changes the in-sync replicas, as the leader of the topic's first partition."""
        metadata = self._metadata_of(topic)
        (partition,) = metadata.partitions
        image = self._node.broker._running().services.image
        epochs = {each: image.brokers[each].epoch for each in (FIRST, SECOND)}
        change = AlterPartitionRequestPartitionData(
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=each, broker_epoch=epochs[each]) for each in isr
            ],
            partition_epoch=image.topics[topic].partitions[0].partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader_id,
            broker_epoch=epochs[partition.leader_id],
            topics=[
                AlterPartitionRequestTopicData(topic_id=metadata.topic_id, partitions=[change])
            ],
        )
        answer = self._controller.ask(request)
        assert answer.error_code == 0
        assert answer.topics[0].partitions[0].error_code == 0

    def leader(self, topic: str) -> int:
        (partition,) = self._metadata_of(topic).partitions
        return int(partition.leader_id)

    def create_topic(self, name: str, *replicas: int, **configs: str) -> str:
        wanted = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[
                CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
        (made,) = self._node.client.ask(request).topics
        assert made.error_code == 0, made.error_message
        return name

    def _metadata_of(self, topic: str) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        (answer,) = self._node.client.ask(request, 12).topics
        return answer
