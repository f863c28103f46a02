"""The cases of the admin client for any broker: Moldau here, Apache Kafka in tests/interop. The
fixture `bootstrap` has the address.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from support.waiting import wait_for

import moldau
import moldau.aio
from moldau.admin import (
    Committed,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    CreatedTopic,
    ElectionType,
    FoundOffset,
    Group,
    Leaver,
    ListOffsetsTimestamp,
    NewTopic,
    Operation,
    Topic,
    Transaction,
    TransactionFilter,
    UpgradeType,
)
from moldau.client.admin.features import FeatureUpdate
from moldau.client.admin.topic_descriptions import describe_topics
from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.settings import client_settings
from moldau.errors import ErrorCode, KafkaError, UnknownTopicError
from moldau.types import TopicPartition

_numbers = itertools.count()


def new_name(kind: str = "admin") -> str:
    return f"{kind}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def admin(bootstrap: str) -> Iterator[moldau.Admin]:
    with moldau.Admin(bootstrap, default_api_timeout_ms=30_000) as client:
        yield client


@pytest.fixture
def topic(admin: moldau.Admin) -> str:
    name = new_name()
    made = admin.create_topics([NewTopic(name=name, partitions=2)])
    assert isinstance(made[name], CreatedTopic)
    return name


def code(value: object) -> ErrorCode:
    assert isinstance(value, KafkaError), value
    return value.code


@contextmanager
def member(bootstrap: str, group_id: str, topic: str, **settings: Any) -> Iterator[Any]:
    """A member of another library, with its partitions of the topic."""
    config = {key.replace("_", "."): value for key, value in settings.items()}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group_id, "log_level": 0} | config
    )
    consumer.subscribe([topic])
    for _ in range(300):
        consumer.poll(0.1)
        if consumer.assignment():
            break
    try:
        yield consumer
    finally:
        consumer.close()


def write(bootstrap: str, topic: str, count: int) -> None:
    with moldau.Producer(bootstrap) as producer:
        for number in range(count):
            _ = producer.send(topic, b"%d" % number, partition=0)


async def test_the_blocking_and_the_asyncio_admin_agree(
    bootstrap: str, admin: moldau.Admin, topic: str
) -> None:
    async with moldau.aio.Admin(bootstrap) as other:
        assert (await other.list_topics())[topic] == admin.list_topics()[topic]
        assert await other.describe_cluster() == admin.describe_cluster()
        assert (await other.describe_groups(["missing"])).keys() == {"missing"}


def test_topics_come_and_go(admin: moldau.Admin) -> None:
    name, other = new_name(), new_name()
    made = admin.create_topics([NewTopic(name=name, partitions=3), other, "not/a/name"])
    first, second = made[name], made[other]
    assert isinstance(first, CreatedTopic)
    assert isinstance(second, CreatedTopic)
    assert code(made["not/a/name"]) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code(admin.create_topics([name])[name]) is ErrorCode.TOPIC_ALREADY_EXISTS
    described = admin.describe_topics([name, "no-such-topic"])
    found = described[name]
    assert isinstance(found, Topic)
    assert (len(found.partitions), found.topic_id) == (3, first.topic_id)
    assert isinstance(described["no-such-topic"], UnknownTopicError)
    assert name in admin.list_topics()
    done = admin.delete_topics([name, "no-such-topic"])
    assert done[name] is None
    assert code(done["no-such-topic"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.delete_topics_by_id([second.topic_id]) == {second.topic_id: None}


async def test_descriptions_come_in_pages(bootstrap: str, admin: moldau.Admin, topic: str) -> None:
    admin.create_partitions({topic: 5})
    names = [topic, new_name("missing"), "not/a/name"]
    async with Cluster(client_settings(bootstrap)) as cluster:
        whole = await describe_topics(cluster, names)
        by_two = await describe_topics(cluster, names, page=2)
        metadata = await cluster.metadata([topic])
    assert whole[topic] == by_two[topic] == metadata.topics[topic]
    assert isinstance(by_two[names[1]], UnknownTopicError)
    assert "cannot be the name of a topic" in str(by_two["not/a/name"])


def test_validate_only_changes_nothing(admin: moldau.Admin, topic: str) -> None:
    name = new_name()
    assert isinstance(admin.create_topics([name], validate_only=True)[name], CreatedTopic)
    assert admin.create_partitions({topic: 5}, validate_only=True) == {topic: None}
    assert name not in admin.list_topics()
    assert len(admin.list_topics()[topic].partitions) == 2


def test_partitions_are_added(admin: moldau.Admin, topic: str) -> None:
    done = admin.create_partitions({topic: 4, "no-such-topic": 2})
    assert done[topic] is None
    assert code(done["no-such-topic"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(admin.list_topics()[topic].partitions) == 4
    assert code(admin.create_partitions({topic: 1})[topic]) is ErrorCode.INVALID_PARTITIONS


def test_offsets_are_found_and_records_deleted(
    bootstrap: str, admin: moldau.Admin, topic: str
) -> None:
    write(bootstrap, topic, 10)
    partition = TopicPartition(topic, 0)

    def offset(wanted: int) -> int:
        found = admin.list_offsets({partition: wanted})[partition]
        assert isinstance(found, FoundOffset)
        return found.offset

    assert (offset(ListOffsetsTimestamp.EARLIEST), offset(ListOffsetsTimestamp.LATEST)) == (0, 10)
    assert (offset(0), offset(2**62)) == (0, -1)
    assert admin.delete_records({partition: 4}) == {partition: 4}
    assert offset(ListOffsetsTimestamp.EARLIEST) == 4
    nowhere, no_such = TopicPartition(new_name("missing"), 0), TopicPartition(topic, 77)
    done = admin.delete_records({partition: 99, nowhere: 0, no_such: 0})
    assert code(done[partition]) is ErrorCode.OFFSET_OUT_OF_RANGE
    for refused in (done, admin.list_offsets({partition: 0, nowhere: 0, no_such: 0})):
        assert isinstance(refused[nowhere], UnknownTopicError)
        assert "has no partition 77" in str(refused[no_such])


def test_settings_are_read_and_changed(admin: moldau.Admin, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    missing = ConfigResource(ConfigResourceType.TOPIC, "no-such-topic")
    changes = [
        ConfigChange("retention.ms", Operation.SET, "1234"),
        ConfigChange("cleanup.policy", Operation.APPEND, "compact"),
    ]
    done = admin.alter_configs({resource: changes, missing: changes[:1]})
    assert done[resource] is None
    assert code(done[missing]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def value() -> str | None:
        (row,) = admin.describe_configs([resource], names=["retention.ms"])[resource]  # type: ignore[misc]
        return row.value

    # The controller responds before the brokers know.
    wait_for(lambda: value() == "1234", "the new value")
    found = admin.describe_configs([resource, missing], documentation=True)
    assert code(found[missing]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = found[resource]
    assert isinstance(rows, list)
    by_name = {row.name: row for row in rows}
    assert by_name["retention.ms"].value == "1234"
    assert by_name["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert by_name["cleanup.policy"].value == "delete,compact"
    assert by_name["retention.ms"].documentation
    some = admin.describe_configs([resource], names=["retention.ms"])[resource]
    assert isinstance(some, list)
    assert [row.name for row in some] == ["retention.ms"]
    wrong = admin.alter_configs({resource: [ConfigChange("retention.ms", Operation.SET, "soon")]})
    assert code(wrong[resource]) is ErrorCode.INVALID_CONFIG


def test_a_brokers_settings_are_its_own(admin: moldau.Admin) -> None:
    (broker,) = admin.describe_cluster().brokers
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker.node_id))
    rows = admin.describe_configs([resource])[resource]
    assert isinstance(rows, list)
    assert {row.name: row.value for row in rows}["node.id"] == str(broker.node_id)
    assert str(broker.node_id) in admin.list_config_resources(ConfigResourceType.BROKER)


def test_committed_offsets_are_changed(admin: moldau.Admin, topic: str) -> None:
    group_id = new_name("group")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    wanted: dict[TopicPartition, Committed | int] = {first: 7, second: Committed(8, metadata="why")}
    assert admin.alter_group_offsets(group_id, wanted) == {first: None, second: None}
    assert admin.list_group_offsets([group_id]) == {
        group_id: {first: Committed(7), second: Committed(8, metadata="why")}
    }
    assert admin.delete_group_offsets(group_id, [first]) == {first: None}
    assert admin.list_group_offsets([group_id])[group_id] == {second: Committed(8, metadata="why")}
    assert group_id in [group.group_id for group in admin.list_groups()]
    done = admin.delete_groups([group_id, "no-such-group"])
    assert done[group_id] is None
    assert code(done["no-such-group"]) is ErrorCode.GROUP_ID_NOT_FOUND
    described = admin.describe_groups([group_id])[group_id]
    assert code(described) is ErrorCode.GROUP_ID_NOT_FOUND


def test_members_are_listed_and_removed(bootstrap: str, admin: moldau.Admin, topic: str) -> None:
    group_id = new_name("group")
    with member(bootstrap, group_id, topic, group_instance_id="static-1") as consumer:
        found = admin.describe_groups([group_id])[group_id]
        assert isinstance(found, Group)
        (one,) = found.members
        assert one.instance_id == "static-1"
        assert list(one.assignment) == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        assert group_id in [group.group_id for group in admin.list_groups(states=["Stable"])]
        assert group_id not in [group.group_id for group in admin.list_groups(states=["Empty"])]
        assert code(admin.delete_groups([group_id])[group_id]) is ErrorCode.NON_EMPTY_GROUP
        refused = admin.remove_members(group_id, [Leaver(instance_id="missing")])
        assert code(refused[Leaver(instance_id="missing")]) is ErrorCode.UNKNOWN_MEMBER_ID
        assert admin.remove_members(group_id, reason="a test") == {
            Leaver(instance_id="static-1"): None
        }
        empty = admin.describe_groups([group_id])[group_id]
        assert isinstance(empty, Group)
        assert empty.members == ()
        consumer.unsubscribe()


def test_transactions_are_seen_and_fenced(bootstrap: str, admin: moldau.Admin, topic: str) -> None:
    name = new_name("transactional")
    with moldau.Producer(bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0).result(30)
        found = admin.describe_transactions([name, "missing"])
        assert code(found["missing"]) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        one = found[name]
        assert isinstance(one, Transaction)
        assert (one.state, one.partitions) == ("Ongoing", (TopicPartition(topic, 0),))
        listed = admin.list_transactions(TransactionFilter(states=["Ongoing"]))
        assert name in [row.transactional_id for row in listed]
        (seen,) = admin.describe_producers([TopicPartition(topic, 0)])
        assert (seen.producer_id, seen.start_offset) == (one.producer_id, 0)
        assert admin.find_hanging_transactions([seen.partition], longer_than_ms=60_000) == []
        assert admin.fence_producers([name]) == {name: None}
        with pytest.raises(KafkaError):
            producer.commit_transaction()


def test_the_cluster_is_described(admin: moldau.Admin, topic: str) -> None:
    described = admin.describe_cluster()
    (broker,) = described.brokers
    assert described.cluster_id
    quorum = admin.describe_quorum()
    assert quorum.leader_id in [voter.node_id for voter in quorum.voters]
    assert admin.served_versions()["METADATA"].newest >= 13

    def replicas() -> list[TopicPartition]:
        (directory,) = admin.describe_log_dirs()
        assert directory.node_id == broker.node_id
        return [one.partition for one in directory.replicas]

    # A broker creates its logs after it has learned about a topic.
    wait_for(lambda: TopicPartition(topic, 1) in replicas(), "the replica")
    moved = admin.alter_replica_log_dirs(broker.node_id, {TopicPartition(topic, 0): "/no/such"})
    assert code(moved[TopicPartition(topic, 0)]) is ErrorCode.LOG_DIR_NOT_FOUND


def test_features_are_described_and_checked(admin: moldau.Admin) -> None:
    features = admin.describe_features()
    level = features.finalized["metadata.version"].newest
    assert level <= features.supported["metadata.version"].newest
    update = {"metadata.version": FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)}
    with pytest.raises(KafkaError):
        admin.update_features(update, validate_only=True)


def test_leaders_are_elected(admin: moldau.Admin, topic: str) -> None:
    partition, missing = TopicPartition(topic, 0), TopicPartition("no-such-topic", 0)
    done = admin.elect_leaders([partition, missing], kind=ElectionType.PREFERRED)
    assert code(done[partition]) is ErrorCode.ELECTION_NOT_NEEDED
    assert code(done[missing]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.elect_leaders(None) == {}


def test_a_running_broker_is_not_unregistered(admin: moldau.Admin) -> None:
    with pytest.raises(KafkaError):
        admin.unregister_broker(4711)
