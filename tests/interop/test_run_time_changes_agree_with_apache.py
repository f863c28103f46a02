"""Changes at run time: the same steps and responses on Apache Kafka 4.3.1 and on Moldau."""

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from interop.live_broker import NODE_ID, LiveBroker, LiveMoldau, LiveNode, free_ports
from support.waiting import wait_for
from support.wire_client import HungUpError, WireClient

from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest

PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"
MAP = "listener.security.protocol.map"
pytestmark = pytest.mark.interop


@pytest.fixture(params=["apache", "moldau"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    folders = {"log.dirs": f"{tmp_path / 'logs'},{tmp_path / 'more'}"}
    if request.param == "apache":
        live: LiveNode = LiveBroker(request.getfixturevalue("apache"), tmp_path, folders)
    else:
        live = LiveMoldau(tmp_path, folders)
    with live:
        live.format()
        live.start()
        yield live


def change(client: WireClient, **settings: str) -> int:
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER,
        resource_name=str(NODE_ID),
        configs=[
            AlterableConfig(name=name, value=value, config_operation=0)
            for name, value in settings.items()
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    code: int = client.ask(request).responses[0].error_code
    return code


def answers(port: int) -> bool:
    with suppress(OSError, HungUpError), WireClient(f"127.0.0.1:{port}") as client:
        return bool(client.ask(ApiVersionsRequest(), 0).error_code == 0)
    return False


def is_closed(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return False
    return True


def test_listeners_are_added_and_removed(node: LiveNode) -> None:
    (port,) = free_ports(1)
    before = f"PLAINTEXT://{node.address},CONTROLLER://{node.controller_address}"
    after = f"{before},EXTRA://127.0.0.1:{port}"
    with WireClient(node.address) as client:
        assert change(client, listeners=after) == 42, "its protocol is unknown"
        assert change(client, **{"listeners": after, MAP: PROTOCOLS}) == 0
        wait_for(lambda: answers(port), "the new listener")
        with WireClient(f"127.0.0.1:{port}") as through_extra:
            # advertised.listeners does not name it, and does not change at run time.
            assert through_extra.ask(MetadataRequest(topics=[])).brokers == []
            assert change(client, **{"advertised.listeners": after}) == 42
            assert (
                change(client, **{MAP: PROTOCOLS.replace("EXTRA:PLAIN", "EXTRA:SASL_PLAIN")}) == 42
            )
            assert change(client, listeners=f"EXTRA://127.0.0.1:{port}") == 42
            assert change(client, listeners=after.replace("PLAINTEXT://", "OTHER://")) == 42
            assert change(client, listeners=before) == 0
            assert through_extra.hangs_up()
        wait_for(lambda: is_closed(port), "the listener to go")


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_without_time_changes_nothing(node: LiveNode, timeout_ms: int) -> None:
    node.create_topic("there")
    with WireClient(node.address) as client:
        topic = CreatableTopic(name="absent", num_partitions=1, replication_factor=1)
        made = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms))
        more = CreatePartitionsTopic(name="there", count=2, assignments=None)
        grown = client.ask(CreatePartitionsRequest(topics=[more], timeout_ms=timeout_ms))
        gone = client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name="there")], timeout_ms=timeout_ms)
        )
        request = ElectLeadersRequest(topic_partitions=None, timeout_ms=timeout_ms)
        elected = client.ask(request).error_code
        codes = [made.topics[0], grown.results[0], gone.responses[0]]
        assert [one.error_code for one in codes] == [7, 7, 7]
        assert elected == 7
        known = client.ask(MetadataRequest(topics=None)).topics
        assert {one.name: len(one.partitions) for one in known} == {"there": 1}


def test_a_partition_is_created_in_the_directory_requested_before(
    node: LiveNode, tmp_path: Path
) -> None:
    def move(client: WireClient, path: Path, topic: str) -> int:
        asked = AlterReplicaLogDirTopic(name=topic, partitions=[0])
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path=str(path), topics=[asked])]
        )
        code: int = client.ask(request).results[0].partitions[0].error_code
        return code

    with WireClient(node.address) as client:
        for name in ("t0", "t1", "t2"):
            assert move(client, tmp_path / "more", name) == 3
        assert move(client, tmp_path / "elsewhere", "t0") == 57
        assert move(client, tmp_path / "more", "x" * 249) == 17
    for name in ("t0", "t1", "t2"):
        node.create_topic(name)
    wait_for(lambda: len(list(tmp_path.glob("*/t?-0"))) == 3, "the logs")
    assert len(list(tmp_path.glob("more/t?-0"))) == 3
