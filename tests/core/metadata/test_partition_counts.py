from core.metadata.metadata_records import counted, histories
from hypothesis import given

from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE
from moldau.protocol.log_records import PartitionRecord, TopicRecord
from moldau.protocol.wire.schema import Message
from moldau.types import NO_LEADER, LeaderEpoch, Offset, Uuid

TOPIC = Uuid(b"t" * 16)


@given(histories())
def test_the_counts_are_those_of_the_partitions(records: list[Message]) -> None:
    image = EMPTY_IMAGE
    for offset, record in enumerate(records):
        delta = MetadataDelta(image)
        delta.replay(record)
        image = delta.finish(Offset(offset), LeaderEpoch(1), 0)
        assert image.partition_counts == counted(image)
    loaded = MetadataDelta.between(EMPTY_IMAGE, image).finish(image.offset, LeaderEpoch(1), 0)
    assert loaded.partition_counts == image.partition_counts


def test_a_topic_that_is_replaced_by_one_of_the_same_id_does_not_count_any_more() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in (
        TopicRecord(name="t", topic_id=TOPIC),
        PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=[1, 2], isr=[1], leader=NO_LEADER),
        TopicRecord(name="t", topic_id=TOPIC),
    ):
        delta.replay(record)
    image = delta.finish(Offset(2), LeaderEpoch(1), 0)
    assert image.partition_counts == counted(image) == EMPTY_IMAGE.partition_counts
