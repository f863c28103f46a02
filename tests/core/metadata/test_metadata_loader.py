"""Committed batches become images; transactions of records are all or nothing."""

import pytest

from moldau.core.metadata.loader import CommittedBatch, MetadataLoader
from moldau.core.metadata.replay_errors import MetadataReplayError
from moldau.protocol.log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from moldau.protocol.wire.schema import Message
from moldau.types import LeaderEpoch, Offset, Uuid


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=Uuid(name.encode().ljust(16)))


class Story:
    """Loads batches one after the other, each at the end of the last."""

    def __init__(self) -> None:
        self.loader = MetadataLoader()
        self.end = 0

    def load(self, *records: Message) -> None:
        count = max(len(records), 1)
        batch = CommittedBatch(
            Offset(self.end), Offset(self.end + count - 1), LeaderEpoch(3), 1000 + self.end, records
        )
        self.end += count
        self.loader.load(batch)

    def topics(self) -> list[str]:
        """The topics of the image after a flush."""
        self.loader.flush()
        return sorted(self.loader.image.topics)


def test_batches_that_arrive_together_make_one_delta() -> None:
    story = Story()
    story.load(topic("a"))
    story.load()  # a control batch
    story.load(topic("b"), NoOpRecord())

    loaded = story.loader.flush()
    assert loaded is not None
    assert loaded.delta.changed_topics == {"a", "b"}
    assert (loaded.image.offset, loaded.image.epoch, loaded.image.timestamp_ms) == (3, 3, 1002)
    assert story.loader.flush() is None


def test_a_transaction_is_visible_when_it_ends() -> None:
    story = Story()
    story.load(topic("a"))
    story.load(BeginTransactionRecord(), topic("b"))
    assert story.topics() == ["a"]
    assert story.loader.image.offset == 0
    assert story.loader.transaction_start == 1

    story.load(topic("c"), EndTransactionRecord(), topic("d"))
    assert story.topics() == ["a", "b", "c", "d"]
    assert story.loader.image.offset == 5
    assert story.loader.transaction_start is None


def test_an_aborted_transaction_is_never_visible_but_its_offsets_are_used() -> None:
    story = Story()
    story.load(topic("a"))
    story.load(BeginTransactionRecord(), RemoveTopicRecord(topic_id=topic("a").topic_id))
    story.load(AbortTransactionRecord(), BeginTransactionRecord(), topic("b"))
    assert story.topics() == ["a"]
    assert story.loader.image.offset == 3  # inside a batch: up to the second transaction

    story.load(EndTransactionRecord())
    assert story.topics() == ["a", "b"]
    assert story.loader.image.offset == 6


@pytest.mark.parametrize(
    "records",
    [
        [EndTransactionRecord()],
        [AbortTransactionRecord()],
        [BeginTransactionRecord(), BeginTransactionRecord()],
        [BeginTransactionRecord(), EndTransactionRecord(), EndTransactionRecord()],
        [RemoveTopicRecord(topic_id=topic("a").topic_id)],
    ],
    ids=repr,
)
def test_inconsistent_records_are_refused_with_their_offset(records: list[Message]) -> None:
    story = Story()
    story.load(NoOpRecord())
    with pytest.raises(MetadataReplayError, match=f"at offset {len(records)} of the metadata log"):
        story.load(*records)
