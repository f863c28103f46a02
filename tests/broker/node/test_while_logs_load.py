"""A broker loads its logs in a thread: the cluster changes meanwhile, and a stop ends it soon."""

import asyncio
from pathlib import Path

import pytest
from broker.data_node import DataNode
from broker.quorum.test_slow_disks import SlowSync
from support.waiting import take_turns, until

from moldau.broker.node.host import Host
from moldau.broker.node.node import Node, NodeOptions
from moldau.broker.replicas.log_store import LoadingStoppedError
from moldau.cli.node.start import start_unless
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelOptions, RequestChannel
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.protocol.wire.schema import Message
from moldau.storage.directory.clean_stop_manifest import MANIFEST_FILE
from moldau.storage.directory.directory import CLEAN_STOP_FILE
from moldau.testing.simulated_disk import SimulatedDisk

FOLDER = "/data"
TOPIC_KIND, DELETE = 2, 1
RETENTION = "retention.ms"
ONE_HOUR_MS = 3_600_000


def node_on(disk: SimulatedDisk) -> Node:
    properties = standalone_properties(FOLDER, host="127.0.0.1", port=0)
    properties["moldau.reserve.bytes"] = "0"
    options = NodeOptions(formats_itself=True)
    return Node(BrokerConfig.parse(properties), options, host=Host(filesystem=disk))


async def with_topics(**configs: dict[str, str]) -> SimulatedDisk:
    """The disk of a node that was stopped cleanly."""
    disk = SimulatedDisk()
    node = node_on(disk)
    await node.start()
    for name, config in configs.items():
        await node.create_topic(name, 1, config)
    await node.stop()
    return disk


def hold_loading(disk: SimulatedDisk) -> SlowSync:
    """Loading begins with the manifest of the last clean stop."""
    return SlowSync(disk, MANIFEST_FILE, "remove")


async def ask_controller(node: Node, request: Message, answer: type[Message]) -> Message:
    clock = Clock()
    address = Address("127.0.0.1", node.ports["CONTROLLER"])
    channel = await RequestChannel.open(address, clock, ChannelOptions())
    try:
        return await channel.ask(request, answer, request.VERSIONS[1])
    finally:
        await channel.close()
        clock.close()


async def test_what_is_deleted_while_a_broker_loads_its_logs_is_gone_there() -> None:
    disk = await with_topics(kept={RETENTION: str(ONE_HOUR_MS)}, gone={})
    slow, node = hold_loading(disk), node_on(disk)
    starting = asyncio.ensure_future(node.start())
    try:
        await until(lambda: slow.reached > 0)
        deleted = await ask_controller(
            node,
            DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=30_000),
            DeleteTopicsResponse,
        )
        assert isinstance(deleted, DeleteTopicsResponse)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        unset = AlterableConfig(name=RETENTION, config_operation=DELETE, value=None)
        altered = await ask_controller(
            node,
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=TOPIC_KIND, resource_name="kept", configs=[unset]
                    )
                ]
            ),
            IncrementalAlterConfigsResponse,
        )
        assert isinstance(altered, IncrementalAlterConfigsResponse)
        assert altered.responses[0].error_code == ErrorCode.NONE
        slow.release()
        await starting
        replicas = node.services.replicas
        with pytest.raises(KafkaError):
            replicas.lookup("gone", 0)
        kept = replicas.lookup("kept", 0)
        assert kept.log.config.retention_ms != ONE_HOUR_MS
        await replicas.wait_caught_up()
        assert not disk.exists(Path(FOLDER) / "gone-0")
    finally:
        slow.release()
        await asyncio.wait([starting])
        await node.stop()


async def test_a_stop_does_not_wait_until_all_logs_are_loaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = await with_topics(**{f"topic-{number}": {} for number in range(3)})
    slow, node = hold_loading(disk), node_on(disk)
    stop = asyncio.Event()
    starting = asyncio.ensure_future(start_unless(stop, node))
    await until(lambda: slow.reached > 0)
    stop.set()
    await take_turns()
    slow.release()
    assert await starting is False
    assert f"0 of 4 logs of {FOLDER} were opened" in caplog.text
    assert not disk.exists(Path(FOLDER) / CLEAN_STOP_FILE)
    again = node_on(disk)
    assert await start_unless(asyncio.Event(), again)
    try:
        for number in range(3):
            assert again.services.replicas.lookup(f"topic-{number}", 0).has_log
    finally:
        await again.stop()
    assert disk.exists(Path(FOLDER) / CLEAN_STOP_FILE)


async def test_loading_ends_before_the_next_log(tmp_path: Path) -> None:
    node = DataNode(tmp_path)
    await node.start()
    for number in range(3):
        node.create_topic(f"topic-{number}")
    await node.stop()
    node.open()
    store, answers = node.replicas.store, iter([False, False, True])
    store.is_given_up = lambda: next(answers)
    with pytest.raises(LoadingStoppedError, match="2 of 3 logs"):
        store.load(lambda _log: False)
    assert len(list(store)) == 2
    await node.replicas.abandon()


async def test_a_start_that_fails_is_reported_although_it_could_be_stopped() -> None:
    disk = await with_topics(kept={})
    node = node_on(disk)
    quorum_state = Path(FOLDER) / "__cluster_metadata-0" / "quorum-state"
    disk.remove(quorum_state)
    disk.plant(quorum_state, b"broken")
    with pytest.raises(MoldauError, match="quorum-state"):
        await start_unless(asyncio.Event(), node)
