"""Every admin call of confluent-kafka that one node without accounts can answer.

Left to later issues: alter_user_scram_credentials and describe_user_scram_credentials,
set_sasl_credentials; describe_consumer_groups and
list_consumer_groups for groups of the newer kind (KIP-848). The library's list_groups, which it
calls deprecated, fails before it sends a request.
"""

from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import admin as confluent_admin
from support.running_node import fresh_name
from support.waiting import wait_for
from support.wire_client import create_topic
from third_party.confluent_library import ConfluentLibrary
from third_party.libraries import ConsumerOptions, ProducerOptions, Sent
from third_party.members import members, wait_until_shared
from third_party.reading import read_topic

TIMEOUT_S = 30.0
FIRST_MS = 1_700_000_000_000
LIBRARY = ConfluentLibrary()
# The package does not declare its documented names as exported.
api: Any = confluent_admin


@pytest.fixture
def admin(address: str) -> Any:
    return api.AdminClient({"bootstrap.servers": address, "log_level": 0})


def result(futures: dict[Any, Any]) -> Any:
    """The only result of a call about one item."""
    (future,) = futures.values()
    return future.result(timeout=TIMEOUT_S)


def refused(futures: dict[Any, Any]) -> str:
    """The name of the error in the only result."""
    with pytest.raises(KafkaException) as caught:
        result(futures)
    return str(caught.value.args[0].name())


def node_id(admin: Any) -> int:
    (broker,) = admin.list_topics(timeout=TIMEOUT_S).brokers
    return int(broker)


def fill(address: str, topic: str, count: int) -> None:
    records = [
        Sent(value=b"%d" % number, partition=0, timestamp=FIRST_MS + number)
        for number in range(count)
    ]
    LIBRARY.produce(address, topic, records, ProducerOptions(is_idempotent=True))


def commit(admin: Any, group: str, topic: str, offset: int) -> None:
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
    result(admin.alter_consumer_group_offsets([wanted]))


def test_a_topic_is_created_described_grown_and_deleted(admin: Any) -> None:
    name = fresh_name("made")
    new = api.NewTopic(
        name, 3, 1, config={"retention.ms": "123456789", "cleanup.policy": "compact"}
    )
    result(admin.create_topics([new]))
    assert refused(admin.create_topics([new])) == "TOPIC_ALREADY_EXISTS"

    described = result(admin.describe_topics(TopicCollection([name])))
    assert (described.name, described.is_internal) == (name, False)
    assert [each.id for each in described.partitions] == [0, 1, 2]
    own_id = node_id(admin)
    for each in described.partitions:
        assert each.leader.id == own_id
        assert [replica.id for replica in each.replicas] == [own_id]
        assert [replica.id for replica in each.isr] == [own_id]
    assert str(described.topic_id) not in {"", "AAAAAAAAAAAAAAAAAAAAAA"}
    listed = admin.list_topics(timeout=TIMEOUT_S).topics[name]
    assert sorted(listed.partitions) == [0, 1, 2]

    result(admin.create_partitions([api.NewPartitions(name, 5)]))
    wait_for(
        lambda: len(admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions) == 5,
        "the new partitions",
    )
    assert refused(admin.create_partitions([api.NewPartitions(name, 4)])) == "INVALID_PARTITIONS"

    result(admin.delete_topics([name]))
    wait_for(lambda: name not in admin.list_topics(timeout=TIMEOUT_S).topics, "the deletion")
    assert refused(admin.delete_topics([name])) == "UNKNOWN_TOPIC_OR_PART"


def test_a_request_that_only_validates_changes_nothing(admin: Any, topic: str) -> None:
    name = fresh_name("imagined")
    result(admin.create_topics([api.NewTopic(name, 1, 1)], validate_only=True))
    result(admin.create_partitions([api.NewPartitions(topic, 9)], validate_only=True))
    listed = admin.list_topics(timeout=TIMEOUT_S).topics
    assert name not in listed
    assert len(listed[topic].partitions) == 1


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (api.NewTopic("no/slash", 1, 1), "TOPIC_EXCEPTION"),
        (api.NewTopic("..", 1, 1), "TOPIC_EXCEPTION"),
        (api.NewTopic("x" * 250, 1, 1), "TOPIC_EXCEPTION"),
        (api.NewTopic("none-zero", 0, 1), "INVALID_PARTITIONS"),
        (api.NewTopic("too-many-copies", 1, 3), "INVALID_REPLICATION_FACTOR"),
        (api.NewTopic("bad-setting", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
        (api.NewTopic("no-such-setting", 1, 1, config={"retention.mz": "1"}), "INVALID_CONFIG"),
        (
            api.NewTopic("elsewhere", 1, replica_assignment=[[77]]),
            "INVALID_REPLICA_ASSIGNMENT",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.topic[:20],
)
def test_an_impossible_topic_is_refused_with_the_reason(admin: Any, new: Any, error: str) -> None:
    assert refused(admin.create_topics([new])) == error


def test_an_unknown_topic_is_described_as_such(admin: Any) -> None:
    futures = admin.describe_topics(TopicCollection([fresh_name("missing")]))
    assert refused(futures) == "UNKNOWN_TOPIC_OR_PART"


def test_the_cluster_describes_itself(admin: Any, address: str) -> None:
    described = admin.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    own_id = node_id(admin)
    assert described.cluster_id == admin.list_topics(timeout=TIMEOUT_S).cluster_id
    assert [node.id for node in described.nodes] == [own_id]
    assert f"{described.nodes[0].host}:{described.nodes[0].port}" == address
    assert described.controller.id == own_id
    assert described.authorized_operations


def entry(name: str, value: str | None, operation: Any = None) -> Any:
    if operation is None:
        return api.ConfigEntry(name, value)
    return api.ConfigEntry(name, value, incremental_operation=operation)


def configs_of(admin: Any, kind: Any, name: str) -> Any:
    return result(admin.describe_configs([api.ConfigResource(kind, name)]))


def test_topic_settings_are_described_and_changed_one_by_one(admin: Any, topic: str) -> None:
    kind = api.ResourceType.TOPIC
    before = configs_of(admin, kind, topic)
    assert before["segment.bytes"].value == "1073741824"
    assert before["segment.bytes"].is_default
    assert (before["retention.ms"].value, before["retention.ms"].is_default) == ("-1", False)
    assert "log.segment.bytes" in before["segment.bytes"].synonyms

    def change(*entries: Any) -> None:
        resource = api.ConfigResource(kind, topic, incremental_configs=list(entries))
        result(admin.incremental_alter_configs([resource]))

    change(
        entry("retention.ms", "5000", api.AlterConfigOpType.SET),
        entry("cleanup.policy", "compact", api.AlterConfigOpType.APPEND),
    )
    wait_for(lambda: configs_of(admin, kind, topic)["retention.ms"].value == "5000", "the change")
    after = configs_of(admin, kind, topic)
    assert sorted(after["cleanup.policy"].value.split(",")) == ["compact", "delete"]
    change(
        entry("retention.ms", None, api.AlterConfigOpType.DELETE),
        entry("cleanup.policy", "delete", api.AlterConfigOpType.SUBTRACT),
    )
    wait_for(lambda: configs_of(admin, kind, topic)["retention.ms"].is_default, "the default")
    after = configs_of(admin, kind, topic)
    assert after["retention.ms"].value == "604800000"
    assert after["cleanup.policy"].value == "compact"


def test_topic_settings_may_be_replaced_as_a_whole(admin: Any, topic: str) -> None:
    kind = api.ResourceType.TOPIC
    resource = api.ConfigResource(kind, topic, set_config={"max.message.bytes": "70000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        futures = admin.alter_configs([resource])
    result(futures)
    wait_for(lambda: configs_of(admin, kind, topic)["retention.ms"].is_default, "the default")
    assert configs_of(admin, kind, topic)["max.message.bytes"].value == "70000"


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("retention.ms", "soon", "INVALID_CONFIG"),
        ("no.such.setting", "1", "INVALID_CONFIG"),
        ("cleanup.policy", "shred", "INVALID_CONFIG"),
    ],
)
def test_a_wrong_setting_is_refused(
    admin: Any, topic: str, name: str, value: str, error: str
) -> None:
    change = [entry(name, value, api.AlterConfigOpType.SET)]
    resource = api.ConfigResource(api.ResourceType.TOPIC, topic, incremental_configs=change)
    assert refused(admin.incremental_alter_configs([resource])) == error


def test_settings_of_an_unknown_topic_are_refused(admin: Any) -> None:
    unknown = api.ConfigResource(api.ResourceType.TOPIC, fresh_name("missing"))
    assert refused(admin.describe_configs([unknown])) == "UNKNOWN_TOPIC_OR_PART"


def test_broker_settings_are_described_and_changed(admin: Any) -> None:
    kind, name = api.ResourceType.BROKER, str(node_id(admin))
    before = configs_of(admin, kind, name)
    assert before["node.id"].value == name
    assert before["node.id"].is_read_only
    assert before["log.segment.bytes"].value == "1073741824"
    assert before["group.initial.rebalance.delay.ms"].value == "0"
    assert not before["background.threads"].is_read_only

    change = [entry("background.threads", "12", api.AlterConfigOpType.SET)]
    result(
        admin.incremental_alter_configs(
            [api.ConfigResource(kind, name, incremental_configs=change)]
        )
    )
    wait_for(
        lambda: configs_of(admin, kind, name)["background.threads"].value == "12", "the new value"
    )
    change = [entry("background.threads", None, api.AlterConfigOpType.DELETE)]
    result(
        admin.incremental_alter_configs(
            [api.ConfigResource(kind, name, incremental_configs=change)]
        )
    )
    wait_for(
        lambda: configs_of(admin, kind, name)["background.threads"].value == "10", "the old value"
    )
    change = [entry("node.id", "9", api.AlterConfigOpType.SET)]
    resource = api.ConfigResource(kind, name, incremental_configs=change)
    assert refused(admin.incremental_alter_configs([resource])) == "INVALID_REQUEST"


def test_group_settings_are_described_and_changed(admin: Any) -> None:
    kind, name = api.ResourceType.GROUP, fresh_name("group")
    change = [entry("consumer.session.timeout.ms", "50000", api.AlterConfigOpType.SET)]
    result(
        admin.incremental_alter_configs(
            [api.ConfigResource(kind, name, incremental_configs=change)]
        )
    )
    wait_for(
        lambda: configs_of(admin, kind, name)["consumer.session.timeout.ms"].value == "50000",
        "the group's setting",
    )


def test_offsets_are_listed_by_every_spec(admin: Any, address: str, topic: str) -> None:
    fill(address, topic, 10)
    partition = TopicPartition(topic, 0)

    def offset(spec: Any) -> int:
        futures = admin.list_offsets(
            {partition: spec}, isolation_level=IsolationLevel.READ_COMMITTED
        )
        return int(result(futures).offset)

    assert offset(api.OffsetSpec.earliest()) == 0
    assert offset(api.OffsetSpec.latest()) == 10
    assert offset(api.OffsetSpec.max_timestamp()) == 9
    assert offset(api.OffsetSpec.for_timestamp(FIRST_MS + 4)) == 4
    assert offset(api.OffsetSpec.for_timestamp(FIRST_MS + 400)) == -1


def test_records_are_deleted_up_to_an_offset(admin: Any, address: str, topic: str) -> None:
    fill(address, topic, 10)
    deleted = result(admin.delete_records([TopicPartition(topic, 0, 4)]))
    assert deleted.low_watermark == 4
    assert [one.offset for one in read_topic(LIBRARY, address, topic, 6)] == list(range(4, 10))
    assert refused(admin.delete_records([TopicPartition(topic, 0, 99)])) == "OFFSET_OUT_OF_RANGE"
    everything = TopicPartition(topic, 0, -1)
    assert result(admin.delete_records([everything])).low_watermark == 10


def test_a_preferred_leader_that_leads_already_needs_no_election(admin: Any, topic: str) -> None:
    future = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)])
    ((_, error),) = future.result(TIMEOUT_S).items()
    assert error is not None
    assert error.name() == "ELECTION_NOT_NEEDED"


def test_access_control_is_reported_as_off(admin: Any) -> None:
    binding = [api.ResourceType.TOPIC, "t", api.ResourcePatternType.LITERAL, "User:ann", "*"]
    entry = [api.AclOperation.READ, api.AclPermissionType.ALLOW]
    everything = api.AclBindingFilter(*binding, *entry)
    new = api.AclBinding(*binding, *entry)
    (created,) = admin.create_acls([new]).values()
    (deleted,) = admin.delete_acls([everything]).values()
    # confluent-kafka 2.16 returns an empty list for the error of describe_acls.
    for answer in (created, deleted):
        with pytest.raises(KafkaException) as refused:
            answer.result(TIMEOUT_S)
        error: Any = refused.value.args[0]
        assert error.name() == "SECURITY_DISABLED"
        assert "No Authorizer is configured" in error.str()


def test_offsets_of_a_group_are_altered_and_listed(admin: Any, topic: str) -> None:
    group = fresh_name("group")
    commit(admin, group, topic, 7)
    listed = result(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    (found,) = listed.topic_partitions
    assert (found.topic, found.partition, found.offset) == (topic, 0, 7)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (found,) = result(admin.list_consumer_group_offsets([wanted])).topic_partitions
    assert found.offset == 7
    missing = ConsumerGroupTopicPartitions(fresh_name("missing"), [TopicPartition(topic, 0)])
    (found,) = result(admin.list_consumer_group_offsets([missing])).topic_partitions
    assert found.offset == -1001


def test_groups_are_listed_and_described_and_deleted(admin: Any, address: str, topic: str) -> None:
    group = fresh_name("group")
    options = ConsumerOptions(group=group, assignor="roundrobin")
    with members((LIBRARY, address, [topic], options)) as (member,):
        wait_until_shared([member], {topic: 1})
        listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(TIMEOUT_S)
        assert group in {each.group_id for each in listed.valid}
        described = result(admin.describe_consumer_groups([group]))
        assert (described.group_id, described.state) == (group, ConsumerGroupState.STABLE)
        assert (described.partition_assignor, described.is_simple_consumer_group) == (
            "roundrobin",
            False,
        )
        (one,) = described.members
        assert one.client_id == "rdkafka"
        assert one.host.lstrip("/") == "127.0.0.1"
        (assigned,) = one.assignment.topic_partitions
        assert (assigned.topic, assigned.partition) == (topic, 0)
        assert refused(admin.delete_consumer_groups([group])) == "NON_EMPTY_GROUP"
    described = result(admin.describe_consumer_groups([group]))
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])
    result(admin.delete_consumer_groups([group]))
    assert refused(admin.delete_consumer_groups([group])) == "GROUP_ID_NOT_FOUND"
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert group not in {each.group_id for each in listed.valid}


def test_offsets_of_a_group_with_members_are_not_altered_by_an_admin(
    admin: Any, address: str, topic: str
) -> None:
    group = fresh_name("group")
    with members((LIBRARY, address, [topic], ConsumerOptions(group=group))) as (member,):
        wait_until_shared([member], {topic: 1})
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
        (answer,) = result(admin.alter_consumer_group_offsets([wanted])).topic_partitions
        assert answer.error.name() == "UNKNOWN_MEMBER_ID"


def test_several_topics_in_one_call_are_answered_one_by_one(admin: Any, address: str) -> None:
    good, taken = fresh_name("good"), fresh_name("taken")
    create_topic(address, taken)
    futures = admin.create_topics([api.NewTopic(good, 1, 1), api.NewTopic(taken, 1, 1)])
    futures[good].result(timeout=TIMEOUT_S)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        futures[taken].result(timeout=TIMEOUT_S)
