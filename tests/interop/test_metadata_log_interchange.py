"""One metadata log, written in turns by Apache Kafka and by our quorum: each continues where the
other stopped, from the log or from a snapshot.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from broker.metadata_node import RunningNode, running
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from interop.apache import ApacheOracle
from interop.dump import dump, faults
from interop.live_broker import CLUSTER_ID, LiveBroker, LiveMoldau
from interop.peers.java_tools import FEATURES
from support.waiting import wait_for

from moldau.cli.shared.server_properties import read_server_properties
from moldau.core.metadata.image import UNASSIGNED_DIRECTORY
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.log_records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionRecord,
    TopicRecord,
)
from moldau.protocol.wire.schema import Message
from moldau.types import Uuid, parse_uuid

pytestmark = pytest.mark.interop

METADATA = "__cluster_metadata-0"
TOPIC_ID = parse_uuid("AQIDBAUGBwgJCgsMDQ4PEA")
OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "internal.metadata.log.segment.bytes": "3000",
    "metadata.max.retention.bytes": "9000",
    "internal.metadata.delete.delay.millis": "0",
}


@asynccontextmanager
async def our_quorum(
    node: LiveBroker, settings: dict[str, str] | None = None
) -> AsyncIterator[RunningNode]:
    """Runs over the directory and the settings of a node that is stopped."""
    given = read_server_properties(node.properties) | (settings or {})
    async with running(node.log_folder, given, cluster_id=CLUSTER_ID) as ours:
        yield ours


def new_topic(name: str, topic_id: Uuid) -> list[Message]:
    """The records of a controller that creates a topic while its broker is away."""
    return [
        TopicRecord(name=name, topic_id=topic_id),
        ConfigRecord(
            resource_type=ConfigResourceType.TOPIC,
            resource_name=name,
            name="retention.ms",
            value="1234567",
        ),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1],
            # An unregistered broker counts as one that was killed: it is in no in-sync set, but it
            # may lead as the last known leader.
            isr=[],
            last_known_elr=[1],
            leader=-1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[UNASSIGNED_DIRECTORY],
        ),
    ]


def retention_of(node: LiveBroker, topic: str) -> str:
    admin = node.admin()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (answer,) = admin.describe_configs([resource]).values()
    return str(answer.result(timeout=30)["retention.ms"].value)


def wait_for_leader(node: LiveBroker, topic: str) -> None:
    admin = node.admin()

    def has_leader() -> bool:
        found = admin.list_topics(timeout=5).topics[topic].partitions
        return bool(found[0].leader == 1)

    wait_for(has_leader, f"a leader of {topic}")


async def begin(node: LiveBroker, settings: dict[str, str] | None = None) -> None:
    """Our quorum writes the first records of a new cluster, and a topic."""
    async with our_quorum(node, settings) as ours:
        await ours.commit(
            BeginTransactionRecord(name="Bootstrap records"),
            *ours.quorum.bootstrap_records(),
            EndTransactionRecord(),
        )
        await ours.commit(*new_topic("from-moldau", TOPIC_ID))


async def test_apache_continues_a_log_that_we_began(apache: ApacheOracle, tmp_path: Path) -> None:
    with LiveBroker(apache, tmp_path) as node:
        LiveMoldau(tmp_path, read_server_properties(node.properties)).format()
        await begin(node)
        assert faults(apache, node.log_folder / METADATA) == []
        node.start()
        wait_for_leader(node, "from-moldau")
        assert retention_of(node, "from-moldau") == "1234567"
        node.create_topic("from-apache")
        node.stop()
        async with our_quorum(node) as ours:
            assert ours.image.topics["from-moldau"].topic_id == TOPIC_ID
            stopped = ours.image.topics["from-moldau"].partitions[0]
            assert (stopped.leader, stopped.eligible_leader_replicas) == (-1, (1,))
            assert "from-apache" in ours.image.topics
            assert ours.quorum.leader_epoch == 3
            await ours.commit(*new_topic("again", Uuid(b"again-again-agai")))
        node.start()
        wait_for_leader(node, "again")
        node.kill()
        async with our_quorum(node) as ours:
            assert {"from-moldau", "from-apache", "again"} <= ours.image.topics.keys()
            assert ours.quorum.leader_epoch == 5


async def test_apache_continues_from_our_snapshot(apache: ApacheOracle, tmp_path: Path) -> None:
    with LiveBroker(apache, tmp_path) as node:
        node.format()
        await begin(node, OFTEN)
        async with our_quorum(node, OFTEN) as ours:
            for number in range(150):
                record = ConfigRecord(
                    resource_type=ConfigResourceType.TOPIC,
                    resource_name="from-moldau",
                    name="retention.bytes",
                    value=str(number),
                )
                await ours.commit(record)
            assert ours.quorum.log.log.log_start_offset > 0
        metadata = node.log_folder / METADATA
        assert not (metadata / "00000000000000000000.log").exists()
        snapshots = sorted(metadata.glob("*.checkpoint"))
        printed = dump(apache, *snapshots, options=["--cluster-metadata-decoder"])
        assert all(batch["isvalid"] == "true" for batch in printed.batches)
        assert faults(apache, metadata) == []
        node.start()
        wait_for_leader(node, "from-moldau")
        assert retention_of(node, "from-moldau") == "1234567"
        node.stop()
        async with our_quorum(node, OFTEN) as ours:
            resource = ours.image.config_of(ConfigResourceType.TOPIC, "from-moldau")
            assert resource == {"retention.ms": "1234567", "retention.bytes": "149"}
            assert len(ours.image.brokers) == 1


def finalized(apache: ApacheOracle, node: LiveBroker, *command: str) -> str:
    run = apache.run_tool(FEATURES, "--bootstrap-server", node.address, *command)
    assert run.status == 0, run
    return run.output


async def test_static_voters_that_apache_stored_are_read(
    apache: ApacheOracle, tmp_path: Path
) -> None:
    with LiveBroker(apache, tmp_path) as node:
        node.name_voters_in_settings()
        node.format()
        node.start()
        finalized(apache, node, "upgrade", "--release-version", "4.3")
        node.stop()
        async with our_quorum(node) as ours:
            assert ours.quorum.kraft_version == 1
            (voter,) = ours.quorum.describe().voters
            assert voter.key.directory_id == ours.directory.meta.directory_id


async def test_static_voters_that_we_stored_are_read_by_apache(
    apache: ApacheOracle, tmp_path: Path
) -> None:
    with LiveBroker(apache, tmp_path) as node:
        node.name_voters_in_settings()
        node.format()
        node.start()
        node.create_topic("from-apache")
        node.stop()
        async with our_quorum(node) as ours:
            ours.quorum.raise_kraft_version(1)
            await ours.commit(*new_topic("from-moldau", TOPIC_ID))
        node.start()
        wait_for_leader(node, "from-moldau")
        (line,) = [
            each
            for each in finalized(apache, node, "describe").splitlines()
            if "kraft.version" in each
        ]
        assert "FinalizedVersionLevel: 1" in line
        node.stop()
        async with our_quorum(node) as ours:
            assert ours.quorum.kraft_version == 1


async def test_static_voters_are_shared_too(apache: ApacheOracle, tmp_path: Path) -> None:
    """kraft.version 0: directory ids are not used, and the file of the election has its older
    format.
    """
    with LiveBroker(apache, tmp_path) as node:
        node.name_voters_in_settings()
        node.format()
        node.start()
        node.create_topic("from-apache")
        node.stop()
        stored = node.log_folder / METADATA / "quorum-state"
        apaches = stored.read_bytes()
        async with our_quorum(node) as ours:
            assert ours.quorum.kraft_version == 0
            assert "from-apache" in ours.image.topics
            # The same except for the epoch.
            assert stored.read_bytes() == apaches.replace(
                b'"leaderEpoch":1', b'"leaderEpoch":%d' % ours.quorum.leader_epoch
            )
            await ours.commit(*new_topic("from-moldau", TOPIC_ID))
        node.start()
        wait_for_leader(node, "from-moldau")
