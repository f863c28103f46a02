"""Every admin call of kafka-python that one node without accounts can answer.

Left to later issues: alter_user_scram_credentials, describe_user_scram_credentials;
list_transactions, describe_transactions, abort_transaction, find_hanging_transactions.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import (
    ElectionNotNeededError,
    GroupIdNotFoundError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    NoError,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    SecurityDisabledError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer import OffsetSpec
from kafka.structs import OffsetAndMetadata, TopicPartitionReplica
from support.running_node import fresh_name
from support.waiting import wait_for
from third_party.kafka_python_library import KafkaPythonLibrary, collect_what_was_left_open
from third_party.libraries import ConsumerOptions, ProducerOptions, Sent
from third_party.members import members

LIBRARY = KafkaPythonLibrary()
FIRST_MS = 1_700_000_000_000


@pytest.fixture
def admin(address: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=address)
    yield client
    client.close()
    del client
    collect_what_was_left_open()


def node_id(admin: Any) -> int:
    (broker,) = admin.describe_cluster()["brokers"]
    return int(broker["node_id"] if "node_id" in broker else broker["broker_id"])


def fill(address: str, topic: str, count: int) -> None:
    records = [
        Sent(value=b"%d" % number, partition=0, timestamp=FIRST_MS + number)
        for number in range(count)
    ]
    LIBRARY.produce(address, topic, records, ProducerOptions(is_idempotent=True))


def test_a_topic_is_created_described_grown_and_deleted(admin: Any) -> None:
    name = fresh_name("made")
    wanted = {name: {"num_partitions": 2, "configs": {"cleanup.policy": "compact"}}}
    admin.create_topics(wanted, wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(wanted)
    assert name in admin.list_topics()
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 2
    assert described["error_code"] == 0

    admin.create_partitions({name: 3})
    wait_for(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 3, "the new partition")
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({name: 1})

    admin.delete_topics([name])
    wait_for(lambda: name not in admin.list_topics(), "the deletion")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


@pytest.mark.parametrize(
    ("name", "wanted", "error"),
    [
        ("a/b", {}, InvalidTopicError),
        ("many", {"num_partitions": 1, "replication_factor": 9}, InvalidReplicationFactorError),
        ("none", {"num_partitions": 0}, InvalidPartitionsError),
    ],
)
def test_an_impossible_topic_is_refused(
    admin: Any, name: str, wanted: dict[str, int], error: type[Exception]
) -> None:
    with pytest.raises(error):
        admin.create_topics({name: wanted})


def test_a_request_that_only_validates_changes_nothing(admin: Any, topic: str) -> None:
    name = fresh_name("imagined")
    admin.create_topics([name], validate_only=True)
    admin.create_partitions({topic: 4}, validate_only=True)
    assert name not in admin.list_topics()
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 1


def test_a_topic_is_described_page_by_page(admin: Any) -> None:
    name = fresh_name("paged")
    admin.create_topics({name: {"num_partitions": 5}}, wait_for_metadata=True)
    found: list[int] = []
    cursor = None
    for _ in range(3):
        page = admin.describe_topic_partitions([name], response_partition_limit=2, cursor=cursor)
        (part,) = page["topics"]
        found += [each["partition_index"] for each in part["partitions"]]
        cursor = page["next_cursor"]
    assert (found, cursor) == ([0, 1, 2, 3, 4], None)


def test_the_cluster_and_its_features_describe_themselves(admin: Any, address: str) -> None:
    described = admin.describe_cluster()
    (broker,) = described["brokers"]
    assert f"{broker['host']}:{broker['port']}" == address
    features = admin.describe_features()
    assert features["metadata.version"]["finalized"][1] >= 25
    assert features["group.version"]["finalized"] == (1, 1)
    assert {"supported", "finalized", "finalized_epoch"} <= set(features["metadata.version"])
    assert admin.api_versions()
    assert admin.get_broker_version_data(node_id(admin)).api_versions


def test_features_are_updated_or_refused(admin: Any) -> None:
    level = admin.describe_features()["metadata.version"]["finalized"][1]
    assert admin.update_features({"metadata.version": level}, validate_only=True) == {
        "metadata.version": "OK"
    }
    with pytest.raises(InvalidUpdateVersionError):
        admin.update_features({"metadata.version": 999})
    assert admin.describe_features()["metadata.version"]["finalized"][1] == level


def test_the_quorum_describes_itself(admin: Any) -> None:
    described = admin.describe_metadata_quorum()
    (topic,) = described["topics"]
    (partition,) = topic["partitions"]
    own_id = node_id(admin)
    assert topic["topic_name"] == "__cluster_metadata"
    assert partition["leader_id"] == own_id
    assert partition["high_watermark"] > 0
    assert [each["replica_id"] for each in partition["current_voters"]] == [own_id]


def topic_configs(admin: Any, topic: str, **options: Any) -> dict[str, Any]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    described = admin.describe_configs([resource], config_filter="all", **options)
    return dict(described["topic"][topic])


def test_settings_are_described_altered_and_reset(admin: Any, topic: str) -> None:
    assert topic_configs(admin, topic)["retention.ms"]["value"] == "-1"
    kind = ConfigResourceType.TOPIC
    changes: dict[str, Any] = {"retention.ms": "777000", "cleanup.policy": ("APPEND", "compact")}
    admin.alter_configs([ConfigResource(kind, topic, changes)])
    wait_for(lambda: topic_configs(admin, topic)["retention.ms"]["value"] == "777000", "the change")
    policy = topic_configs(admin, topic)["cleanup.policy"]["value"]
    assert sorted(policy.split(",")) == ["compact", "delete"]
    admin.reset_configs([ConfigResource(kind, topic, ["retention.ms"])])
    wait_for(
        lambda: topic_configs(admin, topic)["retention.ms"]["value"] == "604800000", "the default"
    )
    admin.alter_configs(
        [ConfigResource(kind, topic, {"segment.bytes": "1500000"})], incremental=False
    )
    wait_for(
        lambda: topic_configs(admin, topic)["segment.bytes"]["value"] == "1500000", "the change"
    )
    admin.alter_configs([ConfigResource(kind, topic, {"segment.ms": "9000"})], validate_only=True)
    assert topic_configs(admin, topic)["segment.ms"]["value"] == "604800000"


def test_settings_come_with_their_synonyms(admin: Any, topic: str) -> None:
    found = topic_configs(admin, topic, include_synonyms=True)["segment.bytes"]
    assert "log.segment.bytes" in str(found)


def test_resources_with_settings_are_listed(admin: Any, topic: str) -> None:
    listed = admin.list_config_resources()
    assert topic in listed["topic"]
    assert str(node_id(admin)) in listed["broker"]
    assert set(admin.list_config_resources(["TOPIC"])) == {"topic"}


def test_log_directories_are_described_and_replicas_stay_where_they_are(
    admin: Any, address: str, topic: str
) -> None:
    fill(address, topic, 10)
    (broker,) = admin.describe_log_dirs([topic])
    (found,) = broker["log_dirs"] if "log_dirs" in broker else broker["results"]
    assert found["error_code"] == 0
    (described,) = found["topics"]
    (partition,) = described["partitions"]
    assert partition["partition_size"] > 0
    assert (partition["offset_lag"], partition["is_future_key"]) == (0, False)
    assert found["total_bytes"] > found["usable_bytes"] > 0
    path = found["log_dir"]
    replica = TopicPartitionReplica(topic, 0, node_id(admin))
    assert admin.alter_replica_log_dirs({replica: path}) == {replica: NoError}
    (refusal,) = admin.alter_replica_log_dirs({replica: "/nowhere/to/be/found"}).values()
    assert refusal.__name__ == "LogDirNotFoundError"


def test_records_are_deleted_up_to_an_offset(admin: Any, address: str, topic: str) -> None:
    fill(address, topic, 10)
    partition = TopicPartition(topic, 0)
    deleted = admin.delete_records({partition: 3})
    assert deleted[partition]["low_watermark"] == 3
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: 11})


def test_offsets_are_listed_by_every_spec(admin: Any, address: str, topic: str) -> None:
    fill(address, topic, 10)
    partition = TopicPartition(topic, 0)

    def offset(spec: Any) -> int:
        return int(admin.list_partition_offsets({partition: spec})[partition].offset)

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 10
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 9
    assert offset(FIRST_MS + 5) == 5


def test_a_preferred_leader_that_leads_already_needs_no_election(admin: Any, topic: str) -> None:
    answer = admin.elect_leaders(0, {topic: [0]})
    (result,) = answer.replica_election_results
    (partition,) = result.partition_result
    assert partition.error_code == ElectionNotNeededError.errno


def test_replicas_stay_where_they_are_and_go_nowhere_else(admin: Any, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    assert admin.alter_partition_reassignments({partition: [node_id(admin)]}) == {partition: None}
    nowhere = admin.alter_partition_reassignments({partition: [12345]})
    assert nowhere == {partition: InvalidReplicationAssignmentError}
    cancelled = admin.alter_partition_reassignments({partition: None})
    assert cancelled == {partition: NoReassignmentInProgressError}
    assert admin.list_partition_reassignments() == {}


def test_access_control_is_reported_as_off(admin: Any) -> None:
    everything = ACLFilter(
        principal=None,
        host="*",
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with pytest.raises(SecurityDisabledError, match="No Authorizer is configured on the broker"):
        admin.describe_acls(everything)


def test_producers_of_a_partition_are_described(admin: Any, address: str, topic: str) -> None:
    fill(address, topic, 10)
    partition = TopicPartition(topic, 0)
    (producer,) = admin.describe_producers([partition])[partition].active_producers
    assert producer.last_sequence == 9
    assert producer.producer_epoch == 0


def test_a_groups_offsets_are_altered_reset_listed_and_deleted(
    admin: Any, address: str, topic: str
) -> None:
    fill(address, topic, 10)
    group = fresh_name("group")
    partition = TopicPartition(topic, 0)
    wanted = OffsetAndMetadata(4, "four", -1)
    assert admin.alter_group_offsets(group, {partition: wanted}) == {partition: NoError}
    found = admin.list_group_offsets({group: [partition]})[group][partition]
    assert (found.offset, found.metadata) == (4, "four")
    assert admin.list_group_offsets(group)[group][partition].offset == 4
    admin.reset_group_offsets(group, {partition: OffsetSpec.LATEST})
    assert admin.list_group_offsets(group)[group][partition].offset == 10
    admin.delete_group_offsets(group, [partition])
    assert partition not in admin.list_group_offsets(group).get(group, {})


def test_groups_are_listed_described_and_deleted_and_members_removed(
    admin: Any, address: str, topic: str
) -> None:
    group = fresh_name("group")
    options = ConsumerOptions(group=group, instance_id="static-one")
    with members((LIBRARY, address, [topic], options)):
        listed = {each["group_id"]: each for each in admin.list_groups(states_filter=["Stable"])}
        assert listed[group]["group_state"] == "Stable"
        assert group in {each["group_id"] for each in admin.list_groups(types_filter=["classic"])}
        described = admin.describe_groups([group])[group]
        assert (described["error"], described["group_state"]) == (None, "Stable")
        (member,) = described["members"]
        assert member["group_instance_id"] == "static-one"
        assert admin.delete_groups([group])[group] == "NonEmptyGroupError"
    # A static member stays until its session ends or it is removed.
    removed = admin.remove_group_members(group, [MemberToRemove(group_instance_id="static-one")])
    assert list(removed.values()) == [NoError]
    assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    assert admin.delete_groups([group]) == {group: "OK"}
    assert admin.delete_groups([group]) == {group: GroupIdNotFoundError.__name__}
