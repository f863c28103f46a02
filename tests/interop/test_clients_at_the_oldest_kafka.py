"""Our clients with Kafka 2.1.1: older forms of requests where the broker needs them, and one clear
line for what it does not support.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client.admin_cases import code, member, new_name
from interop.apache import ApacheUnavailableError
from interop.missing import CACHE, give_up
from interop.old_broker import old_broker
from support.waiting import wait_for

import moldau
from moldau.admin import (
    Committed,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    CreatedTopic,
    FoundOffset,
    Group,
    ListOffsetsTimestamp,
    NewTopic,
    Operation,
)
from moldau.errors import ErrorCode, KafkaError, UnsupportedError
from moldau.types import TopicPartition

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with old_broker(CACHE, tmp_path_factory.mktemp("old")) as address:
            yield address
    except ApacheUnavailableError as reason:
        give_up(reason)


@pytest.fixture
def admin(bootstrap: str) -> Iterator[moldau.Admin]:
    with moldau.Admin(bootstrap, default_api_timeout_ms=30_000) as client:
        yield client


@pytest.fixture
def topic(admin: moldau.Admin) -> str:
    name = new_name()
    made = admin.create_topics([NewTopic(name=name, partitions=2, replication_factor=1)])[name]
    assert isinstance(made, CreatedTopic)
    assert (made.partitions, made.replication_factor) == (2, 1)
    return name


def test_topics_are_created_and_deleted(admin: moldau.Admin, topic: str) -> None:
    assert topic in admin.list_topics()
    assert admin.create_partitions({topic: 3}) == {topic: None}
    assert len(admin.list_topics()[topic].partitions) == 3
    done = admin.delete_topics([topic, "no-such-topic"])
    assert done[topic] is None
    assert code(done["no-such-topic"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_cluster_is_described(admin: moldau.Admin, topic: str) -> None:
    found = admin.describe_cluster()
    assert found.cluster_id
    assert [broker.node_id for broker in found.brokers] == [found.controller_id] == [1]
    assert admin.served_versions()["METADATA"].newest == 7
    (directory,) = admin.describe_log_dirs()
    assert TopicPartition(topic, 0) in [one.partition for one in directory.replicas]
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    rows = admin.describe_configs([resource])[resource]
    assert isinstance(rows, list)
    assert {row.name: row.value for row in rows}["cleanup.policy"] == "delete"


def test_changes_are_sent_to_the_controller(tmp_path: Path) -> None:
    """Brokers of that version did not forward requests to the controller."""
    with old_broker(CACHE, tmp_path, 2) as both:
        with moldau.Admin(both) as admin:
            wait_for(lambda: len(admin.describe_cluster().brokers) == 2, "both brokers")
            found = admin.describe_cluster()
        (other,) = [row for row in found.brokers if row.node_id != found.controller_id]
        with moldau.Admin(str(other.address)) as admin:
            name = new_name()
            made = admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=2)])
            assert isinstance(made[name], CreatedTopic)
            assert admin.create_partitions({name: 2}) == {name: None}
            assert admin.delete_topics([name]) == {name: None}


def test_settings_are_changed_although_the_broker_replaces_them_all_at_once(
    admin: moldau.Admin, topic: str
) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)

    def of_the_topic() -> dict[str, str | None]:
        rows = admin.describe_configs([resource])[resource]
        assert isinstance(rows, list)
        return {row.name: row.value for row in rows if row.source.name == "DYNAMIC_TOPIC_CONFIG"}

    def alter(*changes: ConfigChange) -> object:
        return admin.alter_configs({resource: changes})[resource]

    first = ConfigChange("retention.ms", Operation.SET, "5000")
    assert alter(first, ConfigChange("segment.ms", Operation.SET, "6000")) is None
    assert alter(ConfigChange("cleanup.policy", Operation.SET, "compact")) is None
    assert of_the_topic() == {
        "retention.ms": "5000",
        "segment.ms": "6000",
        "cleanup.policy": "compact",
    }
    assert alter(ConfigChange("segment.ms", Operation.DELETE)) is None
    assert of_the_topic() == {"retention.ms": "5000", "cleanup.policy": "compact"}
    assert isinstance(alter(ConfigChange("retention.ms", Operation.SET, "x")), KafkaError)
    brokers_all = ConfigResource(ConfigResourceType.BROKER, "")
    change = ConfigChange("log.cleaner.threads", Operation.SET, "2")
    assert admin.alter_configs({brokers_all: [change]}) == {brokers_all: None}


def test_unsupported_requests_fail_with_one_line(admin: moldau.Admin, topic: str) -> None:
    with pytest.raises(
        UnsupportedError, match="CREATE_TOPICS 0 to 3, and this client needs 4 to 7"
    ):
        admin.create_topics([new_name()])
    change = {
        ConfigResource(ConfigResourceType.TOPIC, topic): [
            ConfigChange("cleanup.policy", Operation.APPEND, "compact")
        ]
    }
    with pytest.raises(UnsupportedError, match=r"cannot append to cleanup\.policy"):
        admin.alter_configs(change)
    with pytest.raises(UnsupportedError, match="does not serve LIST_TRANSACTIONS"):
        admin.list_transactions()
    with pytest.raises(UnsupportedError, match="LIST_GROUPS 0 to 2, and this client needs 4"):
        admin.list_groups(states=["Stable"])


def test_records_are_written_found_and_read(
    bootstrap: str, admin: moldau.Admin, topic: str
) -> None:
    with moldau.Producer(bootstrap, linger_ms=0) as producer:
        sent = [producer.send(topic, b"%d" % number, partition=0) for number in range(10)]
        assert [one.result(30).offset for one in sent] == list(range(10))
    partition = TopicPartition(topic, 0)
    found = admin.list_offsets({partition: ListOffsetsTimestamp.LATEST})[partition]
    assert isinstance(found, FoundOffset)
    assert found.offset == 10
    assert admin.delete_records({partition: 4}) == {partition: 4}
    with moldau.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        values: list[bytes | None] = []
        while len(values) < 6:
            values += [record.value for record in consumer.poll(30)]
    assert values == [b"%d" % number for number in range(4, 10)]


def test_groups_and_their_offsets(bootstrap: str, admin: moldau.Admin, topic: str) -> None:
    group_id = new_name("group")
    first = TopicPartition(topic, 0)
    assert admin.alter_group_offsets(group_id, {first: 7}) == {first: None}
    assert admin.list_group_offsets([group_id]) == {group_id: {first: Committed(7)}}
    with member(bootstrap, group_id, topic):
        found = admin.describe_groups([group_id])[group_id]
        assert isinstance(found, Group)
        assert len(found.members) == 1
    assert group_id in [group.group_id for group in admin.list_groups()]
    assert admin.delete_groups([group_id]) == {group_id: None}
    gone = admin.describe_groups([group_id])[group_id]
    assert code(gone) is ErrorCode.GROUP_ID_NOT_FOUND


def test_our_consumers_share_a_group(bootstrap: str, topic: str) -> None:
    group_id = new_name("group")
    settings: dict[str, Any] = {"group_id": group_id, "auto_offset_reset": "earliest"}
    with moldau.Producer(bootstrap, linger_ms=0) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=number % 2).result(30)
    with moldau.Consumer(bootstrap, **settings) as consumer:
        consumer.subscribe([topic])
        values: set[bytes | None] = set()
        while len(values) < 20:
            values |= {record.value for record in consumer.poll(30)}
        consumer.commit()
    with moldau.Admin(bootstrap) as admin:
        committed = admin.list_group_offsets([group_id])[group_id]
        assert isinstance(committed, dict)
        assert [one.offset for one in committed.values()] == [10, 10]


def test_transactions_in_the_older_protocol(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with moldau.Producer(bootstrap, transactional_id=new_name("transactional")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        _ = producer.send(topic, b"aborted", partition=0)
        producer.abort_transaction()
        producer.begin_transaction()
        _ = producer.send(topic, b"committed", partition=0)
        producer.commit_transaction()
    settings: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
    }
    with moldau.Consumer(bootstrap, **settings) as consumer:
        consumer.assign([partition])
        values: list[bytes | None] = []
        while not values:
            values += [record.value for record in consumer.poll(30)]
    assert values == [b"committed"]
