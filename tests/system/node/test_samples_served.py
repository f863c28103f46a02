"""Moldau starts on the directories that Apache Kafka 4.3.1 wrote, after a clean stop and after
SIGKILL, and serves what Apache's clients read from them. Data of features that are not served
yet stays on the disk unchanged.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from core.metadata.test_metadata_samples import image_of
from storage.samples import SAMPLES, ExpectedRecord, expected_topics, unpack
from support.running_node import RunningNode, free_port
from support.waiting import wait_for
from support.wire_client import WireClient

from moldau.core.metadata.image import MetadataImage
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.types import METADATA_PARTITION

EXPECTED = json.loads((SAMPLES / "expected.json").read_text())
TOPIC, BROKER, GROUP = 2, 4, 32
DYNAMIC_SOURCES = {1, 2, 3, 8}
EARLIEST, LATEST = -2, -1
DEADLINE_S = 60
# The open transaction is over its time: on a busy machine it would be aborted before it is seen.
LEFT_OPEN = f"transaction.abort.timed.out.transaction.cleanup.interval.ms={2**31 - 1}"
# The dirty copy was made earlier: some of this was written later, or not cleaned yet.
Which = Literal["clean", "dirty"]


def properties_for(folder: Path, log_dir: Path) -> tuple[Path, int]:
    port, controller_port = free_port(), free_port()
    text = (SAMPLES / "server.properties").read_text()
    text = text.replace("49092", str(port)).replace("49093", str(controller_port))
    target = folder / "server.properties"
    target.write_text(f"{text}\nlog.dirs={log_dir}\n{LEFT_OPEN}\n")
    return target, port


class Sample:
    def __init__(self, which: Which, folder: Path) -> None:
        self.which = which
        self.folder = folder
        self.log_dir = unpack(which, folder / "logs")
        config, port = properties_for(folder, self.log_dir)
        self.node = RunningNode(folder, {}, config, port)


@pytest.fixture(scope="module", params=["clean", "dirty"])
def sample(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sample]:
    made = Sample(request.param, tmp_path_factory.mktemp(request.param))
    with made.node:
        made.node.start()
        yield made


@pytest.fixture
def client(sample: Sample) -> Iterator[WireClient]:
    with WireClient(sample.node.address) as connected:
        yield connected


def read(address: str, topic: str, partitions: list[int], *, committed: bool) -> dict[int, Any]:
    """Everything that a librdkafka consumer receives, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    found: dict[int, list[Any]] = {number: [] for number in partitions}
    at_end: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in partitions])
        while len(at_end) < len(partitions):
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"{topic} was not read to its end: {at_end}"
            number = message.partition()
            assert number is not None
            if message.error() is not None:
                at_end.add(number)
            else:
                found[number].append(message)
    finally:
        consumer.close()
    return found


def as_expected(message: Any) -> ExpectedRecord:
    value = message.value()
    return ExpectedRecord(
        message.offset(),
        message.timestamp()[1],
        None if message.key() is None else message.key().decode(),
        None if value is None else hashlib.sha256(value).hexdigest()[:16],
        None if value is None else len(value),
        tuple((k, None if v is None else v.decode()) for k, v in message.headers() or ()),
    )


@pytest.mark.parametrize("topic", EXPECTED["topics"])
def test_every_record_is_served_as_apache_served_it(sample: Sample, topic: str) -> None:
    expected = expected_topics()[topic]
    found = read(sample.node.address, topic, list(expected.partitions), committed=False)
    for number, partition in expected.partitions.items():
        records = [as_expected(message) for message in found[number]]
        if topic == "compacted":
            # Cleaned at another time, or not yet: the last value of each key is the same.
            assert _last(records) == _last(partition.records)
        else:
            assert records == list(partition.records)


def _last(records: Any) -> dict[str | None, str | None]:
    values = {record.key: record.value_digest for record in records}
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize("topic", ["txns", "codecs"])
def test_read_committed_sees_committed_records(sample: Sample, topic: str) -> None:
    expected = expected_topics()[topic]
    found = read(sample.node.address, topic, list(expected.partitions), committed=True)
    for number, partition in expected.partitions.items():
        wanted = partition.committed_offsets
        if wanted is None:
            wanted = tuple(record.offset for record in partition.records)
        assert [message.offset() for message in found[number]] == list(wanted)


def test_offsets_are_where_apache_left_them(client: WireClient) -> None:
    def ask(timestamp: int, isolation: int) -> dict[tuple[str, int], int]:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=timestamp)
                    for number in topic.partitions
                ],
            )
            for name, topic in expected_topics().items()
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        return {
            (topic.name, part.partition_index): part.offset
            for topic in client.ask(request, 7).topics
            for part in topic.partitions
        }

    places = {
        (name, number): part
        for name, topic in expected_topics().items()
        for number, part in topic.partitions.items()
    }
    assert ask(EARLIEST, 0) == {place: part.log_start for place, part in places.items()}
    assert ask(LATEST, 0) == {place: part.high_watermark for place, part in places.items()}
    assert ask(LATEST, 1) == {place: part.last_stable for place, part in places.items()}


def test_topics_have_their_ids_and_settings(client: WireClient) -> None:
    response = client.ask(MetadataRequest(topics=None), 12)
    assert response.cluster_id == EXPECTED["cluster_id"]
    ids = {topic.name: topic.topic_id for topic in response.topics}
    expected = expected_topics()
    assert {name: ids.get(name) for name in expected} == {
        name: topic.topic_id for name, topic in expected.items()
    }
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
        for name in expected
    ]
    for result in client.ask(DescribeConfigsRequest(resources=resources), 4).results:
        own = {each.name: each.value for each in result.configs if each.config_source == 1}
        assert own == expected[result.resource_name].configs


@pytest.mark.parametrize("group", EXPECTED["groups"])
def test_committed_offsets_of_every_kind_of_group_are_there(client: WireClient, group: str) -> None:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    wait_for(lambda: client.ask(find, 4).coordinators[0].error_code == 0, "the coordinator")
    wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    wait_for(lambda: client.ask(wanted, 9).groups[0].error_code == 0, "the group to be loaded")
    found = [
        # librdkafka stores the zero byte after a C string, and strips it again.
        [
            topic.name,
            part.partition_index,
            part.committed_offset,
            part.metadata.rstrip("\0") or None,
        ]
        for topic in client.ask(wanted, 9).groups[0].topics
        for part in topic.partitions
    ]
    assert sorted(found) == sorted(EXPECTED["groups"][group])


def test_data_that_is_not_served_yet_stays_in_the_metadata_and_on_the_disk(
    tmp_path: Path,
) -> None:
    made = Sample("clean", tmp_path)
    kept = ("__transaction_state-0", "__transaction_state-1", "__share_group_state-0")
    before = {name: _batches(made.log_dir / name) for name in kept}
    first = _metadata(made.log_dir)
    with made.node:
        made.node.start()
        assert made.node.stop() == 0
    after = _metadata(made.log_dir)
    assert {name: _batches(made.log_dir / name) for name in kept} == before
    for what in ("acls", "scram_credentials", "client_quotas", "delegation_tokens", "configs"):
        assert getattr(after, what) == getattr(first, what), what
    assert len(after.acls) == len(EXPECTED["acls"])
    assert {name: topic.topic_id for name, topic in after.topics.items()} == {
        name: topic.topic_id for name, topic in first.topics.items()
    }


def _batches(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.log"))]


def _metadata(log_dir: Path) -> MetadataImage:
    """The result of replaying the whole metadata log, without a running node."""
    return image_of(sorted((log_dir / str(METADATA_PARTITION)).glob("*.log")))
