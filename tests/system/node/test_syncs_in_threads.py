"""No sync blocks the event loop, for any request."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import wait_for
from system.node.disk_watch import DiskWatch, disk_watch

from moldau import Admin, Consumer, Producer
from moldau.admin import FoundOffset, NewTopic
from moldau.errors import KafkaError
from moldau.testing.thread_broker import ThreadBroker
from moldau.types import TopicPartition

__all__ = ["disk_watch"]

PLAIN = TopicPartition("plain", 0)
LOOP_THREAD = "moldau-broker"
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "600000",
}


def two_directories(tmp_path: Path, **settings: str) -> ThreadBroker:
    (tmp_path / "a").mkdir()
    return ThreadBroker(
        {
            "log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}",
            "moldau.flush.policy": "group",
            "log.cleaner.backoff.ms": "20",
            "log.segment.delete.delay.ms": "0",
            "replica.high.watermark.checkpoint.interval.ms": "20",
            "log.flush.offset.checkpoint.interval.ms": "20",
            "log.flush.start.offset.checkpoint.interval.ms": "20",
            "log.retention.check.interval.ms": "50",
            "metadata.log.max.record.bytes.between.snapshots": "1000",
            **settings,
        },
        tmp_path / "a",
    )


def fill(producer: Producer, topic: str, count: int = 300) -> None:
    for number in range(count):
        producer.send(topic, b"x" * 400, key=b"key-%d" % (number % 5))
    producer.flush()


def test_no_sync_happens_in_the_event_loop(tmp_path: Path, disk_watch: DiskWatch) -> None:
    broker = two_directories(tmp_path)
    broker.start()
    try:
        disk_watch.syncs.clear()
        with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
            _work(broker, admin, producer, disk_watch)
        assert disk_watch.syncs
        assert disk_watch.of_thread(LOOP_THREAD) == []
    finally:
        broker.close()


def _work(broker: ThreadBroker, admin: Admin, producer: Producer, watch: DiskWatch) -> None:
    """Rolls, compaction, checkpoints, deletion, snapshots, a move, offsets of a group."""
    made = admin.create_topics(
        [
            NewTopic(name="compacted", configs=COMPACTED),
            NewTopic(name="plain", configs={"internal.segment.bytes": "20000"}),
            NewTopic(name="strict", configs={"flush.messages": "1"}),
        ]
    )
    assert not [each for each in made.values() if isinstance(each, KafkaError)], made
    for _ in range(3):
        fill(producer, "compacted")
    fill(producer, "plain")
    fill(producer, "strict", 5)
    watch.until_synced("cleaner-offset-checkpoint")
    assert admin.delete_records({PLAIN: 200}) == {PLAIN: 200}
    watch.until_synced("log-start-offset-checkpoint")
    _consume(broker.bootstrap)
    _move(admin)
    fill(producer, "compacted", 100)
    admin.delete_topics(["plain"])
    admin.create_topics(["plain"])
    fill(producer, "plain", 10)
    watch.until_synced("replication-offset-checkpoint")
    watch.until_synced(".checkpoint.part")
    # The metadata log is cleaned up once a minute.
    broker.clock.advance(seconds=70)
    watch.until_synced("__cluster_metadata-0/recovery-point-offset-checkpoint")
    fill(producer, "compacted", 10)


def _consume(bootstrap: str) -> None:
    with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("plain")
        next(iter(consumer))
        consumer.commit()


def _move(admin: Admin) -> None:
    """To the other directory, with a start that is not 0."""
    homes = _homes(admin)
    here = next(path for path, replicas in homes.items() if replicas.get(PLAIN) is False)
    (there,) = set(homes) - {here}
    admin.alter_replica_log_dirs(1, {PLAIN: there})

    def is_there() -> bool:
        found = _homes(admin)
        return PLAIN not in found[here] and found[there].get(PLAIN) is False

    wait_for(is_there, "the move")


def _homes(admin: Admin) -> dict[str, dict[TopicPartition, bool]]:
    """The contents of each directory, and whether a log is an unfinished copy."""
    return {
        each.path: {one.partition: one.is_future for one in each.replicas}
        for each in admin.describe_log_dirs()
    }


@pytest.mark.parametrize("what", ["topics", "rolls", "deletions", "checkpoints"])
def test_a_hanging_disk_delays_only_clients_that_need_it(
    tmp_path: Path, disk_watch: DiskWatch, what: str
) -> None:
    broker = two_directories(tmp_path, **{"moldau.flush.policy": "os"})
    broker.start()
    try:
        with (
            Admin(broker.bootstrap) as admin,
            Admin(broker.bootstrap) as other,
            Producer(broker.bootstrap, acks=1) as producer,
            ThreadPoolExecutor(1) as threads,
        ):
            admin.create_topics([NewTopic(name="compacted", configs=COMPACTED), "plain"])
            fill(producer, "plain", 10)
            disk_watch.block()
            slow = {
                "topics": lambda: admin.create_topics(["new"]),
                "rolls": lambda: fill(producer, "compacted", 200),
                "deletions": lambda: admin.delete_records({PLAIN: 5}),
                "checkpoints": lambda: fill(producer, "plain", 10),
            }[what]
            running = threads.submit(slow)
            assert disk_watch.waiting.acquire(timeout=60)
            # The node answers, reads and accepts records while its disk hangs.
            assert "plain" in other.list_topics()
            found = other.list_offsets({PLAIN: -1})[PLAIN]
            assert isinstance(found, FoundOffset)
            assert found.offset >= 10
            disk_watch.release()
            running.result(60)
    finally:
        disk_watch.release()
        broker.close()
