"""The same administration, as raw requests of every version, to a live Apache Kafka and to Moldau:
same responses, except for ids, ports and the texts about invalid settings.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from interop.apache import ApacheOracle
from interop.node_pair import TIMEOUT_MS, Pair, Pairs, running_pairs
from support.waiting import wait_for
from support.wire_client import has_leaders

from moldau.config.alter import Operation
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.messages import alter_configs as legacy
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_acls import DescribeAclsRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from moldau.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest
from moldau.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from moldau.protocol.wire.schema import Message
from moldau.types import Uuid

pytestmark = pytest.mark.interop

UNKNOWN_ID = Uuid(b"u" * 16)
SETTINGS = {"num.partitions": "2", "log.retention.hours": "100", "log.roll.ms": "3600000"}


@pytest.fixture(scope="module")
def pairs(apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    with running_pairs(apache, tmp_path_factory.mktemp("pair"), SETTINGS) as pairs:
        yield pairs


@pytest.fixture
def pair(pairs: Pairs) -> Pair:
    return pairs.brokers


def topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


def assigned(*replica_lists: list[int], start: int = 0) -> list[CreatableReplicaAssignment]:
    return [
        CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
        for index, replicas in enumerate(replica_lists, start)
    ]


def configs(**values: str | None) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=n.replace("_", "."), value=v) for n, v in values.items()]


CREATIONS = [
    [topic("plain", 3)],
    [topic("defaults", -1, -1)],
    [topic("manual", -1, -1, assignments=assigned([1], [1]))],
    [topic("with-configs", configs=configs(retention_ms="60000", cleanup_policy="compact,delete"))],
    [topic("a.b"), topic("ok")],
    [topic("")],
    [topic(".")],
    [topic("..")],
    [topic("x" * 249)],
    [topic("x" * 250)],
    [topic("a/b")],
    [topic("a b"), topic("ü"), topic("a\0b")],
    [topic("__cluster_metadata"), topic("beside")],
    [topic("twice"), topic("twice"), topic("once")],
    [topic("t", 0), topic("u", -5), topic("v", 1, 0), topic("w", 1, -2), topic("x", 1, 2)],
    [topic("t", 0, 0)],
    [topic("t", configs=configs(retention_ms="abc"))],
    [topic("t", configs=configs(retention_ms=None, segment_ms=None))],
    [topic("t", configs=configs(no_such_setting="1"))],
    [topic("t", configs=configs(min_compaction_lag_ms="5", max_compaction_lag_ms="4"))],
    [topic("t", 1, -1, assignments=assigned([1]))],
    [topic("t", -1, 1, assignments=assigned([1]))],
    [topic("t", -1, -1, assignments=assigned([]))],
    [topic("t", -1, -1, assignments=assigned([7]))],
    [topic("t", -1, -1, assignments=assigned([1, 1]))],
    [topic("t", -1, -1, assignments=assigned([1], start=1))],
    [topic("t", -1, -1, assignments=[*assigned([1]), *assigned([1])])],
    [topic("t", 10_001)],
    [topic("t", 10_000)],
    [topic("t", 2_000_000_000)],
    [],
]


@pytest.mark.parametrize(
    "requested", CREATIONS, ids=lambda requested: ",".join(t.name[:12] for t in requested)
)
def test_topics_are_created_and_refused_alike(pair: Pair, requested: list[CreatableTopic]) -> None:
    pair.same(CreateTopicsRequest(topics=requested, validate_only=True))
    # The first version creates them, the others find them.
    pair.same(CreateTopicsRequest(topics=requested))
    for name in {each.name for each in requested}:
        pair.delete(name)


def test_colliding_names_are_refused_alike(pair: Pair) -> None:
    pair.create(*[topic("c.d")])
    pair.same(CreateTopicsRequest(topics=[topic("c_d")]))


def test_topics_are_deleted_alike(pair: Pair) -> None:
    for version in range(1, 7):
        pair.create(*[topic("doomed"), topic("spared")])
        if version < 6:
            names = ["doomed", "missing", "spared", "spared", ""]
            pair.same(DeleteTopicsRequest(timeout_ms=TIMEOUT_MS, topic_names=names), version)
        else:
            states = [
                DeleteTopicState(name="doomed"),
                DeleteTopicState(name="missing"),
                DeleteTopicState(topic_id=UNKNOWN_ID),
                DeleteTopicState(),
                DeleteTopicState(name="a", topic_id=UNKNOWN_ID),
                DeleteTopicState(name="spared"),
                DeleteTopicState(name="spared"),
            ]
            pair.same(DeleteTopicsRequest(timeout_ms=TIMEOUT_MS, topics=states), version)


def test_partitions_are_added_alike(pair: Pair) -> None:
    pair.create(*[topic("growing")])

    def more(count: int, assignment: list[list[int]] | None = None) -> CreatePartitionsTopic:
        manual = assignment
        return CreatePartitionsTopic(
            name="growing",
            count=count,
            assignments=None
            if manual is None
            else [CreatePartitionsAssignment(broker_ids=ids) for ids in manual],
        )

    for requested in (
        more(1),
        more(0),
        more(-1),
        more(3, [[1]]),
        more(2, [[7]]),
        more(2, [[1, 1]]),
        more(2, [[]]),
        CreatePartitionsTopic(name="missing", count=3, assignments=None),
    ):
        pair.same(CreatePartitionsRequest(timeout_ms=TIMEOUT_MS, topics=[requested]))
    pair.same(CreatePartitionsRequest(timeout_ms=TIMEOUT_MS, topics=[more(9)], validate_only=True))
    pair.same(CreatePartitionsRequest(timeout_ms=TIMEOUT_MS, topics=[more(2), more(3)]))
    for version in range(4):
        pair.same(
            CreatePartitionsRequest(timeout_ms=TIMEOUT_MS, topics=[more(2 + version)]), version
        )
    pair.same(CreatePartitionsRequest(timeout_ms=TIMEOUT_MS, topics=[more(6, [[1]])]), 3)


def names(*wanted: str | None) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in wanted]


def test_metadata_is_reported_alike(pair: Pair) -> None:
    pair.create(*[topic("shown", 3), topic("shown.too")])
    for requested in (
        ["shown"],
        ["shown", "shown.too", "shown"],
        ["missing", "a/b", "", "shown"],
    ):
        quiet = MetadataRequest(topics=names(*requested), allow_auto_topic_creation=False)
        pair.same(quiet, *range(4, 14))
    pair.same(MetadataRequest(topics=names("shown")), *range(4))
    pair.same(MetadataRequest(topics=[]), *range(1, 14))
    operations = MetadataRequest(
        topics=names("shown", "missing"),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    pair.same(operations, 8, 9, 10)
    unknown = [MetadataRequestTopic(name=None, topic_id=UNKNOWN_ID)]
    pair.same(MetadataRequest(topics=unknown), 10, 11, 12, 13)
    # From version 12 on Apache fails with UNKNOWN_SERVER_ERROR.
    pair.same(MetadataRequest(topics=names(None)), 10, 11)


def test_all_topics_are_reported_alike(pair: Pair) -> None:
    pair.create(*[topic("shown", 3)])
    pair.same(MetadataRequest(topics=[]), 0)
    pair.same(MetadataRequest(topics=None), *range(1, 14))


def test_requested_topics_are_created_alike(pair: Pair) -> None:
    for client in pair:
        client.ask(MetadataRequest(topics=names("made")))
        wait_for(partial(has_leaders, client, "made", 2), "made")
    pair.same(MetadataRequest(topics=names("made")))


def test_the_cluster_is_described_alike(pair: Pair) -> None:
    pair.same(DescribeClusterRequest())
    pair.same(DescribeClusterRequest(include_cluster_authorized_operations=True))
    pair.same(DescribeClusterRequest(endpoint_type=2), 1, 2)
    pair.same(DescribeClusterRequest(endpoint_type=9), 1, 2)
    pair.same(DescribeClusterRequest(include_fenced_brokers=True), 2)


def test_partitions_are_described_alike(pair: Pair) -> None:
    pair.create(*[topic("described", 3), topic("described-too")])
    requested = [
        TopicRequest(name=name) for name in ("described", "described-too", "missing", "a/b")
    ]
    pair.same(DescribeTopicPartitionsRequest(topics=requested))
    for limit in (-1, 0, 1, 3, 4):
        pair.same(DescribeTopicPartitionsRequest(topics=requested, response_partition_limit=limit))
    for name, index in (("described", 1), ("described", 7), ("missing", 0), ("zzz", 0), ("a", -1)):
        cursor = DescribeTopicPartitionsRequestCursor(topic_name=name, partition_index=index)
        pair.same(DescribeTopicPartitionsRequest(topics=requested, cursor=cursor))


def test_the_quorum_is_described_alike(pair: Pair) -> None:
    def of(name: str, *indexes: int) -> DescribeQuorumRequest:
        partitions = [DescribeQuorumRequestPartitionData(partition_index=i) for i in indexes]
        requested = DescribeQuorumRequestTopicData(topic_name=name, partitions=partitions)
        return DescribeQuorumRequest(topics=[requested])

    pair.same(of("__cluster_metadata", 0))


def test_elections_are_answered_alike(pair: Pair) -> None:
    pair.create(*[topic("elected", 2)])
    requested = [
        TopicPartitions(topic="elected", partitions=[0, 1, 9]),
        TopicPartitions(topic="missing", partitions=[0]),
    ]
    for kind in (0, 1):
        pair.same(ElectLeadersRequest(election_type=kind, topic_partitions=requested), 1, 2)
        pair.same(ElectLeadersRequest(election_type=kind, topic_partitions=[]), 1, 2)
    pair.same(ElectLeadersRequest(election_type=7, topic_partitions=requested), 1, 2)
    pair.same(ElectLeadersRequest(topic_partitions=None))


TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
GROUP, METRICS = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS


def resource(kind: int, name: str, *changes: tuple[str, str | None, int]) -> AlterConfigsResource:
    altered = [AlterableConfig(name=n, value=v, config_operation=o) for n, v, o in changes]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=altered)


ALTERATIONS = [
    resource(TOPIC, "altered", ("retention.ms", "5000", Operation.SET)),
    resource(TOPIC, "altered", ("cleanup.policy", "compact", Operation.APPEND)),
    resource(TOPIC, "altered", ("cleanup.policy", "delete", Operation.SUBTRACT)),
    resource(TOPIC, "altered", ("retention.ms", None, Operation.DELETE)),
    resource(TOPIC, "altered", ("retention.ms", "x", Operation.SET)),
    resource(TOPIC, "altered", ("no.such", "1", Operation.SET)),
    resource(TOPIC, "altered", ("no.such", "1", Operation.DELETE)),
    resource(TOPIC, "altered", ("retention.ms", "1", Operation.APPEND)),
    resource(TOPIC, "altered", ("retention.ms", None, Operation.SET)),
    resource(TOPIC, "altered", ("segment.ms", "1", 0), ("segment.ms", "2", 0)),
    resource(TOPIC, "altered"),
    resource(TOPIC, "missing", ("retention.ms", "5000", Operation.SET)),
    resource(TOPIC, "", ("retention.ms", "5000", Operation.SET)),
    resource(TOPIC, "a/b", ("retention.ms", "5000", Operation.SET)),
    resource(BROKER, "1", ("log.cleaner.threads", "2", Operation.SET)),
    resource(BROKER, "", ("log.retention.ms", "700000", Operation.SET)),
    resource(BROKER, "", ("log.retention.ms", None, Operation.DELETE)),
    resource(BROKER, "2", ("log.cleaner.threads", "2", Operation.SET)),
    resource(BROKER, "one", ("log.cleaner.threads", "2", Operation.SET)),
    resource(BROKER, "1", ("node.id", "7", Operation.SET)),
    resource(BROKER, "1", ("min.insync.replicas", "1", Operation.SET)),
    resource(BROKER, "", ("min.insync.replicas", None, Operation.DELETE)),
    resource(GROUP, "g", ("consumer.session.timeout.ms", "50000", Operation.SET)),
    resource(GROUP, "g", ("consumer.session.timeout.ms", "1", Operation.SET)),
    resource(GROUP, "g", ("no.such", "1", Operation.SET)),
    resource(GROUP, "", ("consumer.session.timeout.ms", "50000", Operation.SET)),
    resource(METRICS, "m", ("interval.ms", "1000", Operation.SET)),
    resource(METRICS, "m", ("interval.ms", "1", Operation.SET)),
    resource(METRICS, "", ("interval.ms", "1000", Operation.SET)),
    resource(99, "x", ("a", "b", Operation.SET)),
    resource(0, "x", ("a", "b", Operation.SET)),
]


@pytest.mark.parametrize(
    "requested", ALTERATIONS, ids=lambda r: f"{r.resource_type}-{r.resource_name}"
)
def test_settings_are_altered_and_refused_alike(
    pair: Pair, requested: AlterConfigsResource
) -> None:
    pair.create(*[topic("altered")])
    pair.same(IncrementalAlterConfigsRequest(resources=[requested], validate_only=True))
    pair.same(IncrementalAlterConfigsRequest(resources=[requested]))
    pair.same(IncrementalAlterConfigsRequest(resources=[requested, requested]))


def test_settings_are_replaced_alike(pair: Pair) -> None:
    pair.create(*[topic("replaced")])
    for kind, name, values in (
        (TOPIC, "replaced", {"retention.ms": "5"}),
        (TOPIC, "replaced", {"retention.ms": "x"}),
        (TOPIC, "replaced", {"retention.ms": None}),
        (TOPIC, "replaced", {}),
        (TOPIC, "missing", {"retention.ms": "5"}),
        (BROKER, "1", {"log.cleaner.threads": "2"}),
        (BROKER, "1", {}),
        (BROKER, "7", {}),
        (ConfigResourceType.BROKER_LOGGER, "1", {}),
        (99, "x", {}),
    ):
        altered = [legacy.AlterableConfig(name=n, value=v) for n, v in values.items()]
        requested = legacy.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=altered
        )
        pair.same(legacy.AlterConfigsRequest(resources=[requested], validate_only=True))
        pair.same(legacy.AlterConfigsRequest(resources=[requested]))


@pytest.mark.parametrize(
    "updates",
    [
        [("group.version", 7, 1)],
        [("no.such", 1, 1)],
        [("no.such", 0, 1)],
        [("group.version", -1, 2)],
        [("group.version", 0, 1)],
        [("group.version", 1, 9)],
        [("group.version", 1, 0)],
        [("metadata.version", 31, 1)],
        [("metadata.version", 29, 1)],
        [("metadata.version", 29, 2)],
        [("metadata.version", 22, 3)],
        [("metadata.version", 1, 2)],
        [("kraft.version", 0, 2)],
        [("kraft.version", 1, 1)],
        [("kraft.version", 2, 1)],
        [("share.version", 0, 2)],
        [("share.version", 1, 1), ("streams.version", 1, 1)],
        [("share.version", 1, 2)],
        [],
    ],
    ids=str,
)
def test_features_are_updated_and_refused_alike(
    pair: Pair, updates: list[tuple[str, int, int]]
) -> None:
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in updates
    ]
    pair.same(UpdateFeaturesRequest(feature_updates=keys, validate_only=True), 1, 2)
    pair.same(UpdateFeaturesRequest(feature_updates=keys), 1, 2)


def test_unknown_brokers_are_not_unregistered(pair: Pair) -> None:
    pair.same(UnregisterBrokerRequest(broker_id=77))


def acl_requests(**fields: int) -> Iterator[Message]:
    entry: dict[str, Any] = {"operation": 3, "permission_type": 3} | fields
    kind = entry.pop("resource_type", 2)
    pattern = entry.pop("pattern_type", 3)
    filters = {"resource_type_filter": kind, "pattern_type_filter": pattern, **entry}
    new = {"resource_type": kind, "resource_pattern_type": pattern, **entry}
    yield DescribeAclsRequest(**filters)
    yield DeleteAclsRequest(filters=[DeleteAclsFilter(**filters)] * 2)
    yield CreateAclsRequest(creations=[AclCreation(**new)] * 2)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"resource_type": 0},
        {"pattern_type": 0},
        {"operation": 0},
        {"permission_type": 0},
        {"resource_type": 99, "pattern_type": 99, "operation": 99, "permission_type": 99},
    ],
    ids=str,
)
def test_access_control_is_reported_as_disabled_alike(pairs: Pairs, fields: dict[str, int]) -> None:
    for pair in pairs:
        for request in acl_requests(**fields):
            pair.same(request)
        pair.same(CreateAclsRequest())
        pair.same(DeleteAclsRequest())


def test_reassignments_are_refused_alike(pairs: Pairs) -> None:
    pairs.brokers.create(*[topic("moved", 2)])
    for pair in pairs:
        for replicas in ([1], None, [], [7], [1, 7], [1, 1], [-1]):
            requested = [
                ReassignableTopic(
                    name=name,
                    partitions=[
                        ReassignablePartition(partition_index=index, replicas=replicas)
                        for index in (0, 1, 1, 9, -1)
                    ],
                )
                for name in ("moved", "missing", "", "a/b")
            ]
            pair.same(AlterPartitionReassignmentsRequest(topics=requested))
            unsized = AlterPartitionReassignmentsRequest(
                topics=requested, allow_replication_factor_change=False
            )
            pair.same(unsized, 1)
        pair.same(AlterPartitionReassignmentsRequest())


def test_reassignments_are_listed_alike(pairs: Pairs) -> None:
    pairs.brokers.create(*[topic("listed")])
    requested = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 0, 9])
        for name in ("listed", "missing", "")
    ]
    for pair in pairs:
        for topics in (None, [], requested):
            pair.same(ListPartitionReassignmentsRequest(topics=topics))
