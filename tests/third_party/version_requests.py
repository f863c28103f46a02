"""One valid request for each API that a node serves, reduced to what a version can carry."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.running_node import fresh_name
from support.waiting import wait_for
from support.wire_client import WireClient, create_topic

from moldau.protocol import messages as m
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.alter_configs import AlterableConfig, AlterConfigsResource
from moldau.protocol.messages.alter_partition_reassignments import (
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.create_partitions import CreatePartitionsTopic
from moldau.protocol.messages.create_topics import CreatableTopic
from moldau.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from moldau.protocol.messages.delete_topics import DeleteTopicState
from moldau.protocol.messages.describe_configs import DescribeConfigsResource
from moldau.protocol.messages.describe_log_dirs import DescribableLogDirTopic
from moldau.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from moldau.protocol.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from moldau.protocol.messages.elect_leaders import TopicPartitions
from moldau.protocol.messages.fetch import FetchPartition, FetchTopic
from moldau.protocol.messages.incremental_alter_configs import AlterableConfig as ConfigChange
from moldau.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as ChangedResource,
)
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequestTopic
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.protocol.messages.produce import PartitionProduceData, TopicProduceData
from moldau.protocol.messages.update_features import FeatureUpdateKey
from moldau.protocol.records.batch_builder import BatchBuilder
from moldau.protocol.wire.schema import Message, Struct, contains
from moldau.types import Uuid

TOPIC, BROKER = 2, 4
FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True)
class World:
    """The objects that the requests name."""

    address: str
    topic: str
    topic_id: Uuid
    group: str
    node_id: int
    log_dir: str
    metadata_level: int


def make_world(address: str) -> World:
    """Creates a topic with ten records and a group with an offset, and queries the node's
    description.
    """
    topic, group = fresh_name("versions"), fresh_name("versions")
    topic_id = Uuid(create_topic(address, topic))
    with WireClient(address) as client:
        cluster = client.ask(m.DescribeClusterRequest())
        dirs = client.ask(m.DescribeLogDirsRequest(topics=None)).results
        features = client.ask(api_versions())
        (level,) = [
            each.max_version_level
            for each in features.finalized_features
            if each.name == "metadata.version"
        ]
        world = World(
            address, topic, topic_id, group, cluster.controller_id, dirs[0].log_dir, level
        )
        wait_for(lambda: has_coordinator(client, group), "a coordinator")
        client.ask(fitted(produce(world), 9), version=9)
        client.ask(fitted(offset_commit(world), 9), version=9)
    return world


def api_versions() -> Message:
    return m.ApiVersionsRequest(client_software_name="test", client_software_version="1")


def has_coordinator(client: WireClient, group: str) -> bool:
    """The first request for one creates the internal topic."""
    (found,) = client.ask(m.FindCoordinatorRequest(coordinator_keys=[group])).coordinators
    return bool(found.error_code == 0)


def fitted(message: Message, version: int) -> Any:
    """The message without the fields that this version lacks."""
    _fit(message, version)
    return message


def _fit(struct: Struct, version: int) -> None:
    untouched = type(struct)()
    for name, _, versions, *_ in struct.FIELDS:
        if not contains(versions, version):
            setattr(struct, name, getattr(untouched, name))
            continue
        value = getattr(struct, name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct) and each is not getattr(untouched, name):
                _fit(each, version)


def produce(world: World) -> Message:
    batch = BatchBuilder()
    for number in range(10):
        batch.append(FIRST_MS + number, b"key", b"%d" % number, [("name", b"value")])
    data = PartitionProduceData(index=0, records=batch.build())
    topic = TopicProduceData(name=world.topic, topic_id=world.topic_id, partition_data=[data])
    return m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])


def fetch(world: World) -> Message:
    wanted = FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=world.topic, topic_id=world.topic_id, partitions=[wanted])
    return m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def list_offsets(world: World) -> Message:
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=FIRST_MS + 3)]
    return m.ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=world.topic, partitions=partitions)]
    )


def offset_commit(world: World) -> Message:
    committed = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=4, committed_leader_epoch=0, committed_metadata="note"
    )
    topic = OffsetCommitRequestTopic(
        name=world.topic, topic_id=world.topic_id, partitions=[committed]
    )
    return m.OffsetCommitRequest(group_id=world.group, topics=[topic])


def offset_fetch(world: World) -> Message:
    named = OffsetFetchRequestTopic(name=world.topic, partition_indexes=[0])
    grouped = OffsetFetchRequestTopics(
        name=world.topic, topic_id=world.topic_id, partition_indexes=[0]
    )
    group = OffsetFetchRequestGroup(group_id=world.group, topics=[grouped])
    return m.OffsetFetchRequest(group_id=world.group, topics=[named], groups=[group])


def create_topics(world: World) -> Message:
    new = CreatableTopic(name=fresh_name("versions"), num_partitions=1, replication_factor=1)
    return m.CreateTopicsRequest(topics=[new])


def delete_topics(world: World) -> Message:
    name = fresh_name("versions")
    create_topic(world.address, name)
    return m.DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=10_000
    )


def delete_records(world: World) -> Message:
    wanted = DeleteRecordsPartition(partition_index=0, offset=1)
    topic = DeleteRecordsTopic(name=world.topic, partitions=[wanted])
    return m.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)


def offset_for_leader_epoch(world: World) -> Message:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    topic = OffsetForLeaderTopic(topic=world.topic, partitions=[partition])
    return m.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def describe_configs(world: World) -> Message:
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=world.topic),
        DescribeConfigsResource(resource_type=BROKER, resource_name=str(world.node_id)),
    ]
    for each in resources:
        each.configuration_keys = None
    return m.DescribeConfigsRequest(
        resources=resources, include_synonyms=True, include_documentation=True
    )


def alter_configs(world: World) -> Message:
    change = [AlterableConfig(name="segment.bytes", value="2000000")]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=world.topic, configs=change)
    return m.AlterConfigsRequest(resources=[resource], validate_only=True)


def incremental_alter_configs(world: World) -> Message:
    change = [ConfigChange(name="segment.bytes", config_operation=0, value="2000000")]
    resource = ChangedResource(resource_type=TOPIC, resource_name=world.topic, configs=change)
    return m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def alter_replica_log_dirs(world: World) -> Message:
    topic = AlterReplicaLogDirTopic(name=world.topic, partitions=[0])
    return m.AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path=world.log_dir, topics=[topic])]
    )


def describe_quorum(world: World) -> Message:
    data = DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData()]
    )
    return m.DescribeQuorumRequest(topics=[data])


def update_features(world: World) -> Message:
    update = FeatureUpdateKey(
        feature="metadata.version", max_version_level=world.metadata_level, upgrade_type=1
    )
    return m.UpdateFeaturesRequest(feature_updates=[update], validate_only=True)


def offset_delete(world: World) -> Message:
    topic = OffsetDeleteRequestTopic(
        name=world.topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
    )
    return m.OffsetDeleteRequest(group_id=world.group, topics=[topic])


def alter_reassignments(world: World) -> Message:
    stays = ReassignablePartition(partition_index=0, replicas=[world.node_id])
    topic = ReassignableTopic(name=world.topic, partitions=[stays])
    return m.AlterPartitionReassignmentsRequest(topics=[topic])


def delete_groups(world: World) -> Message:
    group = fresh_name("versions")
    with WireClient(world.address) as client:
        commit: Any = offset_commit(world)
        commit.group_id = group
        client.ask(fitted(commit, 9), version=9)
    return m.DeleteGroupsRequest(groups_names=[group])


REQUESTS: dict[ApiKey, Callable[[World], Message]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.METADATA: lambda world: m.MetadataRequest(
        topics=[MetadataRequestTopic(name=world.topic)]
    ),
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.FIND_COORDINATOR: lambda world: m.FindCoordinatorRequest(
        key=world.group, coordinator_keys=[world.group]
    ),
    ApiKey.DESCRIBE_GROUPS: lambda world: m.DescribeGroupsRequest(groups=[world.group]),
    ApiKey.LIST_GROUPS: lambda _: m.ListGroupsRequest(),
    ApiKey.API_VERSIONS: lambda _: api_versions(),
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.INIT_PRODUCER_ID: lambda _: m.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: lambda world: m.DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=world.topic, partitions=[0])]
    ),
    ApiKey.CREATE_PARTITIONS: lambda world: m.CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=world.topic, count=2, assignments=None)],
        timeout_ms=10_000,
        validate_only=True,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda _: m.ListPartitionReassignmentsRequest(),
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.ELECT_LEADERS: lambda world: m.ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=world.topic, partitions=[0])]
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.DESCRIBE_QUORUM: describe_quorum,
    ApiKey.UPDATE_FEATURES: update_features,
    ApiKey.DESCRIBE_CLUSTER: lambda _: m.DescribeClusterRequest(),
    ApiKey.DESCRIBE_PRODUCERS: lambda world: m.DescribeProducersRequest(
        topics=[ProducersTopic(name=world.topic, partition_indexes=[0])]
    ),
    ApiKey.LIST_CONFIG_RESOURCES: lambda _: m.ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda world: m.DescribeTopicPartitionsRequest(
        topics=[DescribedTopic(name=world.topic)]
    ),
}
