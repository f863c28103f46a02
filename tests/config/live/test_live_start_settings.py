"""Settings that apply at the start of a node: its identity, its directories, its topics."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from config.live.live_node import LiveNode, live_node
from support.proofs import proves, proves_change
from support.waiting import wait_for
from support.wire_client import HungUpError, WireClient
from system.node.questions import config_of, create_topics, delete_topics, find_coordinator

from moldau.broker.node.event_loop import run_in_loop
from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.broker.node.node import Node, NodeOptions
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import MoldauError
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.describe_cluster import DescribeClusterRequest
from moldau.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from moldau.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.storage.disk.reserve import RESERVE_FILE
from moldau.testing import ThreadBroker

TRANSACTIONS = 1
CONTROLLERS = 2
METADATA = "__cluster_metadata-0"


# Identity


@pytest.mark.parametrize("settings", [{"node.id": "7"}, {"node.id": "7", "broker.id": "7"}])
@proves("node.id", "broker.rack", "process.roles")
def test_a_node_has_the_configured_id_rack_and_roles(
    settings: dict[str, str],
) -> None:
    named = {"broker.rack": "left", "process.roles": "controller,broker"}
    with live_node(settings | named) as node:
        answer = node.client.ask(MetadataRequest(topics=[]), 12)
        (broker,) = answer.brokers
        assert (broker.node_id, broker.rack, answer.controller_id) == (7, "left", 7)


@proves("broker.id")
def test_the_older_name_of_a_nodes_id_is_used(tmp_path: Path) -> None:
    for given, is_fine in (("1", True), ("7", False)):
        broker = ThreadBroker({"broker.id": given}, tmp_path / given)
        try:
            if is_fine:
                broker.start()
            else:
                with pytest.raises(MoldauError, match=r"broker\.id"):
                    broker.start()
        finally:
            broker.close()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"process.roles": "broker"}, "not a controller"),
        ({"controller.quorum.bootstrap.servers": ""}, "must name the controllers"),
        ({"controller.listener.names": "ELSE"}, "ELSE"),
        ({"inter.broker.listener.name": "ELSE"}, r"inter\.broker\.listener\.name: ELSE"),
        ({"security.inter.broker.protocol": "SSL"}, r"inter\.broker\.listener\.name: SSL"),
    ],
    ids=str,
)
@proves("controller.quorum.bootstrap.servers")
def test_contradicting_settings_are_refused(settings: dict[str, str], complaint: str) -> None:
    broker = ThreadBroker(settings)
    try:
        with pytest.raises(MoldauError, match=complaint):
            broker.start()
    finally:
        broker.close()


@pytest.mark.parametrize(
    "setting", ["inter.broker.listener.name", "security.inter.broker.protocol"]
)
@proves("inter.broker.listener.name", "security.inter.broker.protocol", "controller.listener.names")
def test_each_listener_serves_its_role(setting: str) -> None:
    """No listener is named PLAINTEXT, which is the default between brokers."""
    settings = {
        "listeners": "SSL://127.0.0.1:0,RULERS://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:PLAINTEXT,RULERS:PLAINTEXT",
        "controller.listener.names": "RULERS",
        setting: "SSL",
    }
    with live_node(settings) as node:
        ports = node.ports
        with WireClient(f"127.0.0.1:{ports['RULERS']}") as rulers:
            request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
            assert [each.port for each in rulers.ask(request).brokers] == [ports["RULERS"]]
            with pytest.raises(HungUpError):
                rulers.ask(MetadataRequest(topics=[]), 12)


@pytest.mark.parametrize("is_allowed", [True, False])
@proves("unstable.feature.versions.enable")
def test_levels_of_features_that_are_not_final_need_permission(
    is_allowed: bool, tmp_path: Path
) -> None:
    properties = standalone_properties(str(tmp_path), host="127.0.0.1", port=0)
    properties["unstable.feature.versions.enable"] = str(is_allowed).lower()
    options = FormatOptions(standalone=True, release_version="4.4-IV0")
    config = BrokerConfig.parse(properties)
    if is_allowed:
        format_node(DiskFileSystem(), config, options, 1)
        assert (tmp_path / "meta.properties").exists()
    else:
        with pytest.raises(MoldauError, match=r"4\.4"):
            format_node(DiskFileSystem(), config, options, 1)


# Directories


def directories(node: LiveNode) -> dict[str, bool]:
    """Whether each directory is cordoned, by path."""
    answer = node.client.ask(DescribeLogDirsRequest(topics=None))
    return {each.log_dir: each.is_cordoned for each in answer.results}


@proves("log.dirs", "metadata.log.dir")
def test_logs_and_metadata_are_in_the_configured_directories(tmp_path: Path) -> None:
    logs, metadata = tmp_path / "logs", tmp_path / "metadata"
    with live_node({"log.dirs": str(logs), "metadata.log.dir": str(metadata)}):
        assert (logs / "watched-0").is_dir()
        assert not (logs / METADATA).exists()
        assert (metadata / METADATA).is_dir()


@proves("log.dir")
def test_the_older_name_of_the_directory_works_alone(tmp_path: Path) -> None:
    properties = standalone_properties("", host="127.0.0.1", port=0)
    del properties["log.dirs"]
    config = BrokerConfig.parse(properties | {"log.dir": str(tmp_path / "here")})

    async def start_and_stop() -> None:
        node = Node(config, NodeOptions(formats_itself=True))
        await node.start()
        await node.stop()

    run_in_loop(start_and_stop())
    assert (tmp_path / "here" / METADATA).is_dir()


@pytest.fixture
def two_directories(tmp_path: Path) -> Iterator[LiveNode]:
    paths = f"{tmp_path}/a,{tmp_path}/b"
    with live_node({"log.dirs": paths, "cordoned.log.dirs": f"{tmp_path}/a"}) as node:
        yield node


@proves("cordoned.log.dirs")
@proves_change("cordoned.log.dirs")
def test_cordoned_directories_get_no_new_replicas(
    two_directories: LiveNode, tmp_path: Path
) -> None:
    node, (a, b) = two_directories, (tmp_path / "a", tmp_path / "b")
    assert directories(node) == {str(a): True, str(b): False}
    node.create_topic("first", partitions=4)
    assert len(list(b.glob("first-*"))) == 4
    node.change("cordoned.log.dirs", str(b), node="1")
    node.create_topic("second", partitions=4)
    assert len(list(a.glob("second-*"))) == 4
    node.change("cordoned.log.dirs", "*", node="1")
    assert set(directories(node).values()) == {True}
    # The controller learns of it from the next heartbeat.
    refused = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE)
    numbers = iter(range(1000))

    def creation() -> int:
        name = f"third-{next(numbers)}"
        return create_topics(node.client, {name: 1})[name][0]

    wait_for(lambda: creation() == refused[0], "the cordon")
    node.change("cordoned.log.dirs", None, node="1")
    wait_for(lambda: creation() == refused[1], "the end of the cordon")


@proves("moldau.reserve.bytes")
def test_a_node_reserves_disk_space() -> None:
    with live_node({"moldau.reserve.bytes": "123456"}) as node:
        reserve = node.broker.directory / RESERVE_FILE
        node.advance_until(lambda: reserve.exists() and reserve.stat().st_size == 123_456)


# Topics


def partition_count(node: LiveNode, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    (answer,) = node.client.ask(request, 12).topics
    return len(answer.partitions)


@proves("num.partitions", "auto.create.topics.enable", "default.replication.factor")
def test_topics_are_created_with_the_configured_defaults() -> None:
    with live_node({"num.partitions": "3"}) as node:
        assert partition_count(node, "made") == 3
        default = CreatableTopic(name="plain", num_partitions=-1, replication_factor=-1)
        (made,) = node.client.ask(CreateTopicsRequest(topics=[default], timeout_ms=9_000)).topics
        assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 3, 1)
    with live_node({"auto.create.topics.enable": "false"}) as node:
        assert partition_count(node, "made") == 0
    with live_node({"default.replication.factor": "2"}) as node:
        assert partition_count(node, "made") == 0
        (made,) = node.client.ask(CreateTopicsRequest(topics=[default], timeout_ms=9_000)).topics
        assert made.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


@proves("delete.topic.enable")
def test_topics_stay_if_deletion_is_disabled() -> None:
    with live_node({"delete.topic.enable": "false"}) as node:
        refused = {"watched": ErrorCode.TOPIC_DELETION_DISABLED}
        assert delete_topics(node.client, "watched") == refused
        assert partition_count(node, "watched") == 1


@proves("max.request.partition.size.limit")
def test_one_response_describes_a_limited_number_of_partitions() -> None:
    with live_node({"max.request.partition.size.limit": "5"}) as node:
        node.create_topic("wide", partitions=9)
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="wide")], response_partition_limit=100
        )
        answer = node.client.ask(request)
        assert len(answer.topics[0].partitions) == 5
        assert answer.next_cursor.partition_index == 5


INTERNAL = {
    "__consumer_offsets": "offsets.topic",
    "__transaction_state": "transaction.state.log",
    "__share_group_state": "share.coordinator.state.topic",
}


@proves(
    "offsets.topic.num.partitions",
    "offsets.topic.segment.bytes",
    "transaction.state.log.num.partitions",
    "transaction.state.log.segment.bytes",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.segment.bytes",
    "share.coordinator.state.topic.min.isr",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
def test_internal_topics_are_created_as_configured() -> None:
    """With one replica, as a single node needs; the default is three."""
    settings = {
        f"{prefix}.{name}": value
        for prefix in INTERNAL.values()
        for name, value in {
            "num.partitions": "3",
            "segment.bytes": "2000000",
            "min.isr": "3",
        }.items()
        if (prefix, name) != ("offsets.topic", "min.isr")
    }
    with live_node(settings) as node:
        for topic, prefix in INTERNAL.items():
            assert partition_count(node, topic) == 3
            assert config_of(node.client, topic, "segment.bytes") == "2000000"
            if f"{prefix}.min.isr" in settings:
                assert config_of(node.client, topic, "min.insync.replicas") == "3"


def test_internal_topics_are_not_created_without_enough_brokers() -> None:
    with live_node({f"{each}.replication.factor": "2" for each in INTERNAL.values()}) as node:
        assert find_coordinator(node.client, "g") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        request = FindCoordinatorRequest(key_type=TRANSACTIONS, coordinator_keys=["t"])
        (answer,) = node.client.ask(request).coordinators
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        for topic in INTERNAL:
            assert partition_count(node, topic) == 0
