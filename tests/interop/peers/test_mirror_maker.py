"""MirrorMaker 2 between the server under test and Apache Kafka, in both directions: records,
headers, topic settings, and group offsets; it or the node is killed in the meantime.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin._config import ConfigResource
from interop.apache import ApacheOracle, ApacheUnavailableError
from interop.live_broker import CLIENT_TIMEOUT_S, LiveBroker, LiveNode, ServedRecord
from interop.missing import CACHE, give_up
from interop.peers.connect_worker import write_properties
from interop.peers.java_program import JavaProgram
from interop.peers.toolchains import connect_plugins

from moldau.types import TopicPartition

pytestmark = pytest.mark.interop

RECORDS = 500
RETENTION_MS = "7200000"
# Created topics have one replica, and changes are detected soon.
SETTINGS = {
    "clusters": "here,there",
    "here->there.enabled": "true",
    "there->here.enabled": "true",
    "here->there.topics": "orders",
    "there->here.topics": "invoices",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "refresh.topics.interval.seconds": "2",
    "refresh.groups.interval.seconds": "2",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "offset.lag.max": "0",
    "offset.flush.interval.ms": "1000",
}


@pytest.fixture(scope="module")
def classpath(apache: ApacheOracle) -> str:
    try:
        return f"{apache.jar_folder}/*:{connect_plugins(CACHE)}/*"
    except ApacheUnavailableError as reason:
        give_up(reason, "MirrorMaker 2 needs a JDK and Maven")


def fill(node: LiveNode, topic: str, numbers: range) -> None:
    producer = node.producer(linger_ms=20)
    for number in numbers:
        producer.produce(topic, str(number), key=f"key {number % 7}", headers={"from": b"test"})
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def read_all(node: LiveNode, topic: str) -> None:
    """A group has read it. (Short of the end, MirrorMaker translates offsets only
    approximately.)
    """
    consumer = Consumer({"bootstrap.servers": node.address, "group.id": "readers"})
    try:
        consumer.commit(offsets=[ClientPartition(topic, 0, RECORDS)], asynchronous=False)
    finally:
        consumer.close()


def records_of(node: LiveNode, topic: str) -> list[ServedRecord]:
    name = TopicPartition(topic, 0)
    if topic not in node.admin().list_topics(timeout=CLIENT_TIMEOUT_S).topics:
        return []
    return node.read([name])[name]


def committed(node: LiveNode, topic: str) -> int:
    asked = ConsumerGroupTopicPartitions("readers", [ClientPartition(topic, 0)])
    # The client must outlive its response.
    admin = node.admin()
    (answer,) = admin.list_consumer_group_offsets([asked]).values()
    (found,) = answer.result(timeout=CLIENT_TIMEOUT_S).topic_partitions
    return int(found.offset)


class Mirrored(NamedTuple):
    """A topic, and its copy on the other side."""

    source: LiveNode
    topic: str
    target: LiveNode
    copy: str

    def begin(self) -> None:
        self.source.create_topic(self.topic, retention_ms=RETENTION_MS)
        fill(self.source, self.topic, range(RECORDS // 2))

    def resume(self) -> None:
        fill(self.source, self.topic, range(RECORDS // 2, RECORDS))
        read_all(self.source, self.topic)

    def has(self, count: int) -> bool:
        return len(set(values_of(self.target, self.copy))) >= count

    def check(self, mirror: JavaProgram, *, exactly: bool) -> None:
        mirror.wait_for(lambda: self.has(RECORDS), self.copy)
        original, copied = (
            records_of(node, topic)
            for node, topic in ((self.source, self.topic), (self.target, self.copy))
        )
        if exactly:
            assert copied == original
        else:
            # Without transactions, records in flight are sent again.
            firsts = {record.value: record for record in reversed(copied)}
            assert [firsts[record.value].key for record in original] == [
                record.key for record in original
            ]
            assert len(firsts) == len(original)
        mirror.wait_for(
            lambda: committed(self.target, self.copy) >= RECORDS,
            f"the group's offset in {self.copy}",
        )
        # The client must outlive its response.
        admin = self.target.admin()
        found = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, self.copy)])
        (answer,) = found.values()
        assert answer.result(timeout=CLIENT_TIMEOUT_S)["retention.ms"].value == RETENTION_MS


def values_of(node: LiveNode, topic: str) -> list[bytes | None]:
    return [record.value for record in records_of(node, topic)]


@pytest.mark.parametrize("killed", ["none", "mirror", "node"])
def test_records_and_groups_are_mirrored_in_both_directions(
    apache: ApacheOracle,
    start_node: Callable[[], LiveNode],
    classpath: str,
    tmp_path: Path,
    killed: str,
) -> None:
    here = start_node()
    (tmp_path / "there").mkdir()
    log = tmp_path / "mirror.log"
    with LiveBroker(apache, tmp_path / "there") as there:
        there.format()
        there.start()
        pairs = [
            Mirrored(here, "orders", there, "here.orders"),
            Mirrored(there, "invoices", here, "there.invoices"),
        ]
        addresses = {
            "here.bootstrap.servers": here.address,
            "there.bootstrap.servers": there.address,
        }
        properties = write_properties(tmp_path / "mirror.properties", SETTINGS | addresses)

        def mirror_maker() -> JavaProgram:
            main_class = "org.apache.kafka.connect.mirror.MirrorMaker"
            return JavaProgram(classpath, main_class, log, str(properties))

        for pair in pairs:
            pair.begin()
        with mirror_maker() as mirror:
            for pair in pairs:
                mirror.wait_for(partial(pair.has, RECORDS // 2), f"half of {pair.copy}")
            for pair in pairs:
                pair.resume()
            if killed == "mirror":
                mirror.kill()
            else:
                if killed == "node":
                    here.kill()
                    here.start()
                finish(mirror, pairs, exactly=killed == "none")
        if killed == "mirror":
            with mirror_maker() as second:
                finish(second, pairs, exactly=False)
    if killed == "none":
        # For example, requests for ACLs.
        assert "caught exception in scheduled task" not in log.read_text()


def finish(mirror: JavaProgram, pairs: list[Mirrored], *, exactly: bool) -> None:
    for pair in pairs:
        pair.check(mirror, exactly=exactly)
    mirror.stop()
