"""The broker's view of the cluster, and what its subscribers are called with."""

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.core.metadata.loader import CommittedBatch
from moldau.protocol.log_records import TopicRecord
from moldau.types import LeaderEpoch, Offset, Uuid

EPOCH = LeaderEpoch(1)


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=Uuid(name.encode().ljust(16)))


def image_with(*names: str, before: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(before)
    for name in names:
        delta.replay(topic(name))
    return delta.finish(Offset(before.offset + len(names)), EPOCH, 1_000)


class Recording:
    def __init__(self) -> None:
        self.changed: list[set[str]] = []
        self.deleted: list[set[str]] = []

    def __call__(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        self.changed.append(delta.changed_topics)
        self.deleted.append(set(delta.deleted_topics))


def test_a_late_subscriber_gets_everything_it_does_not_know() -> None:
    feed, everything, some, nothing = MetadataFeed(), Recording(), Recording(), Recording()
    known = image_with("a", "b")
    feed.on_snapshot(known)
    feed.on_snapshot(image_with("b", "c", "d"))
    feed.subscribe(everything)
    feed.subscribe(some, known)
    feed.subscribe(nothing, feed.image)
    assert everything.changed == [{"b", "c", "d"}]
    assert (some.changed, some.deleted) == ([{"c", "d"}], [{"a"}])
    assert nothing.changed == []


def test_a_snapshot_that_was_prepared_is_published_as_any_other() -> None:
    feed, seen = MetadataFeed(), Recording()
    feed.subscribe(seen)
    image = image_with("a")
    feed.prepare_snapshot(image)
    feed.on_snapshot(image)
    assert seen.changed == [{"a"}]
    assert feed.image is image


def test_batches_that_come_while_a_snapshot_is_prepared_count() -> None:
    """The difference is the one to what subscribers know by then."""
    feed, seen = MetadataFeed(), Recording()
    feed.subscribe(seen)
    image = image_with("a", "b", "c")
    feed.prepare_snapshot(image)
    feed.on_committed(CommittedBatch(Offset(0), Offset(0), EPOCH, 1_000, [topic("a")]))
    feed.on_commits_end()
    feed.on_snapshot(image)
    assert seen.changed == [{"a"}, {"b", "c"}]
    feed.on_committed(CommittedBatch(Offset(3), Offset(3), EPOCH, 1_000, [topic("d")]))
    feed.on_commits_end()
    assert feed.image.topics.keys() == {"a", "b", "c", "d"}
