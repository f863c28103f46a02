"""From records to images, and from images to snapshot records."""

import contextlib

import pytest
from core.metadata.metadata_records import LATEST, histories
from hypothesis import given
from hypothesis import strategies as st

from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import (
    EMPTY_IMAGE,
    MIGRATING_DIRECTORY,
    ConfigResource,
    MetadataImage,
    PartitionImage,
)
from moldau.core.metadata.levels import record_version
from moldau.core.metadata.replay_errors import MetadataReplayError
from moldau.core.metadata.snapshot_records import snapshot_records
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    metadata_record_class,
)
from moldau.protocol.records.stored_records import decode_metadata_record, encode_metadata_record
from moldau.protocol.wire.schema import Message
from moldau.types import TopicPartition, Uuid

TOPIC_ID = Uuid(b"t" * 16)
OTHER_ID = Uuid(b"o" * 16)
DIRECTORY = Uuid(b"d" * 16)
LEVEL = 30


def image_of(records: list[Message], start: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(start)
    for record in records:
        delta.replay(record)
    return delta.finish(len(records) - 1, 1, 0)


@given(histories())
def test_a_snapshot_of_an_image_is_that_image(records: list[Message]) -> None:
    image = image_of(records)
    stored = [
        encode_metadata_record(record, record_version(record, LEVEL))
        for record in snapshot_records(image)
    ]
    delta = MetadataDelta()
    for content in stored:
        delta.replay(decode_metadata_record(content).message)

    assert delta.finish(image.offset, image.epoch, image.timestamp_ms) == image


@given(histories(), st.data())
def test_the_boundaries_of_deltas_do_not_matter(
    records: list[Message], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(records)))
    first = image_of(records[:cut])
    again = image_of(records[:cut])
    second = image_of(records[cut:], first)

    assert first == again  # the next delta left it alone
    delta = MetadataDelta(second)
    assert delta.finish(len(records) - 1, 1, 0) == image_of(records)


@given(histories(), st.data())
def test_a_delta_names_everything_that_differs(records: list[Message], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(records)))
    before = image_of(records[:cut])
    delta = MetadataDelta(before)
    for record in records[cut:]:
        delta.replay(record)
    after = delta.finish(len(records) - 1, 1, 0)
    compared = MetadataDelta.between(before, after)

    # Replayed records may also name objects that changed and changed back.
    assert compared.changed_topics <= delta.changed_topics
    assert compared.deleted_topics == delta.deleted_topics
    assert compared.changed_configs <= delta.changed_configs
    assert compared.changed_brokers <= delta.changed_brokers
    assert compared.changed_controllers <= delta.changed_controllers
    assert compared.changed_acls <= delta.changed_acls
    assert compared.changed_quotas <= delta.changed_quotas
    assert compared.changed_scram_users <= delta.changed_scram_users
    assert compared.changed_tokens <= delta.changed_tokens
    assert compared.features_changed <= delta.features_changed
    assert delta.changed_topics <= after.topics.keys()
    assert compared.finish(after.offset, after.epoch, after.timestamp_ms) == after


def test_every_kind_of_record_has_its_replay() -> None:
    for record_type in range(29):
        try:
            kind = metadata_record_class(record_type)
        except KeyError:
            continue
        # Some are refused because the image is empty; none is unknown.
        with contextlib.suppress(MetadataReplayError, KafkaError):
            MetadataDelta().replay(kind())


def one_topic() -> list[Message]:
    return [
        TopicRecord(name="orders", topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[1, 2],
            isr=[1, 2],
            leader=1,
            leader_epoch=5,
            partition_epoch=9,
            directories=[DIRECTORY, OTHER_ID],
        ),
    ]


def partition_after(change: PartitionChangeRecord) -> PartitionImage:
    image = image_of([*one_topic(), change])
    found = image.partition(TopicPartition("orders", 0))
    assert found is not None
    return found


def test_changes_raise_the_partition_epoch_and_a_leader_the_leader_epoch() -> None:
    shrunk = partition_after(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1]))
    assert (shrunk.isr, shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch) == (
        (1,), 1, 5, 10,
    )  # fmt: skip
    assert shrunk.directories == (DIRECTORY, OTHER_ID)

    elected = partition_after(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
    assert (elected.leader, elected.leader_epoch, elected.partition_epoch) == (1, 6, 10)


def test_partitions_without_directory_ids_have_no_directory() -> None:
    old = PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2, 3], isr=[1])
    image = image_of([TopicRecord(name="orders", topic_id=TOPIC_ID), old])

    partition = image.partition(TopicPartition("orders", 0))
    assert partition is not None
    assert partition.directories == (MIGRATING_DIRECTORY,) * 3


def test_a_deleted_topic_takes_its_configs_with_it() -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, "orders")
    config = ConfigRecord(
        resource_type=ConfigResourceType.TOPIC,
        resource_name="orders",
        name="retention.ms",
        value="1",
    )
    before = image_of([*one_topic(), config])
    assert before.configs == {resource: {"retention.ms": "1"}}

    delta = MetadataDelta(before)
    delta.replay(RemoveTopicRecord(topic_id=TOPIC_ID))
    after = delta.finish(4, 1, 0)
    assert (after.topics, after.topics_by_id, after.configs) == ({}, {}, {})
    assert delta.deleted_topics == {"orders": TOPIC_ID}
    assert delta.changed_configs == {resource}
    assert delta.changed_topics == set()


def test_a_recreated_topic_is_deleted_and_changed() -> None:
    delta = MetadataDelta(image_of(one_topic()))
    delta.replay(RemoveTopicRecord(topic_id=TOPIC_ID))
    delta.replay(TopicRecord(name="orders", topic_id=OTHER_ID))
    after = delta.finish(4, 1, 0)

    assert delta.deleted_topics == {"orders": TOPIC_ID}
    assert delta.changed_topics == {"orders"}
    assert after.topics["orders"].topic_id == OTHER_ID


def test_a_topic_created_and_deleted_in_a_delta_leaves_no_trace() -> None:
    delta = MetadataDelta()
    for record in (*one_topic(), RemoveTopicRecord(topic_id=TOPIC_ID)):
        delta.replay(record)

    assert delta.finish(2, 1, 0).topics == {}
    assert (delta.changed_topics, delta.deleted_topics) == (set(), {})


@pytest.mark.parametrize(
    "record",
    [
        PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID),
        PartitionChangeRecord(partition_id=7, topic_id=TOPIC_ID),
        PartitionRecord(partition_id=0, topic_id=OTHER_ID),
        RemoveTopicRecord(topic_id=OTHER_ID),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=4),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=2),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader_recovery_state=9),
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, directories=[DIRECTORY]),
    ],
    ids=repr,
)
def test_inconsistent_records_are_refused(record: Message) -> None:
    start = [*one_topic(), RegisterBrokerRecord(broker_id=1, broker_epoch=4)]
    with pytest.raises(MetadataReplayError):
        image_of([*start, record])


@pytest.mark.parametrize("level", [0, 6, 32])
def test_unknown_levels_of_metadata_version_are_refused(level: int) -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=level)
    with pytest.raises(KafkaError, match=r"metadata\.version"):
        MetadataDelta().replay(record)


def test_features_at_level_zero_are_gone_and_the_quorum_keeps_its_own() -> None:
    image = image_of(
        [
            LATEST,
            FeatureLevelRecord(name="group.version", feature_level=1),
            FeatureLevelRecord(name="share.version", feature_level=1),
            FeatureLevelRecord(name="group.version", feature_level=0),
            FeatureLevelRecord(name="kraft.version", feature_level=1),
        ]
    )
    assert image.features == {"metadata.version": 30, "share.version": 1}


def test_directories_are_in_kafkas_order() -> None:
    low, high = Uuid(b"\x80" + bytes(15)), Uuid(b"\x10" + bytes(15))
    image = image_of([RegisterBrokerRecord(broker_id=1, log_dirs=[high, low])])
    assert image.brokers[1].log_directories == (low, high)


@pytest.mark.parametrize(
    ("record", "level", "version"),
    [
        (PartitionRecord(), 30, 2),
        (PartitionRecord(), 17, 1),
        (PartitionChangeRecord(), 16, 0),
        (RegisterBrokerRecord(), 30, 4),
        (RegisterBrokerRecord(), 29, 3),
        (RegisterBrokerRecord(), 16, 2),
        (RegisterBrokerRecord(), 7, 1),
        (BrokerRegistrationChangeRecord(fenced=1), 30, 0),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 30, 1),
        (BrokerRegistrationChangeRecord(log_dirs=[DIRECTORY]), 30, 2),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), 30, 3),
        (ConfigRecord(), 30, 0),
    ],
    ids=repr,
)
def test_records_are_written_in_the_version_that_kafka_writes(
    record: Message, level: int, version: int
) -> None:
    assert record_version(record, level) == version
