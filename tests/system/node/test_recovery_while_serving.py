"""A node recovers its logs after a crash, and still serves its controller listener: votes and the
heartbeats of other brokers are among the requests there.
"""

import asyncio
from pathlib import Path

import pytest
from broker.data_node import batch
from broker.node.test_node import node_with

from moldau.broker.node.node import Node
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelError, ChannelOptions, RequestChannel
from moldau.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from moldau.storage.directory.checkpoints import RECOVERY_POINT_FILE
from moldau.storage.directory.clean_stop_manifest import MANIFEST_FILE
from moldau.storage.directory.directory import CLEAN_STOP_FILE

MIB = 1 << 20
BATCH_BYTES = MIB - 1024
LAG_MS_MAX = 100
CONTROLLERS = 2


async def write_dirty_logs(folder: Path, size: int) -> None:
    """Logs that the next start must read from the first to the last byte."""
    node = node_with(folder, moldau_flush_policy="os")
    await node.start()
    await node.create_topic(
        "t", 2, {"max.message.bytes": str(MIB), "segment.bytes": str(256 * MIB)}
    )
    content = batch(*[b"v" * 1024] * (BATCH_BYTES // 1100))
    for number in range(size // len(content)):
        partition = node.services.replicas.lookup("t", number % 2)
        partition.append(bytearray(content))
        await asyncio.sleep(0)
    await node.stop()
    for name in (CLEAN_STOP_FILE, MANIFEST_FILE, RECOVERY_POINT_FILE):
        (folder / name).unlink()


class Observer:
    """Asks a controller listener again and again."""

    def __init__(self) -> None:
        self.answers = 0
        self.longest_ms = 0.0
        """The longest time without an answer, after the first one."""
        self.total_ms = 0.0

    async def observe(self, node: Node, starting: "asyncio.Task[None]") -> None:
        clock = Clock()
        channel = await self._connected(node, clock, starting)
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        await channel.ask(request, DescribeClusterResponse, 1)
        began_ms = last_ms = clock.mono_ms()
        while not starting.done():
            await channel.ask(request, DescribeClusterResponse, 1)
            now_ms = clock.mono_ms()
            self.answers += 1
            self.longest_ms = max(self.longest_ms, now_ms - last_ms)
            last_ms = now_ms
        self.total_ms = clock.mono_ms() - began_ms
        await channel.close()
        clock.close()

    @staticmethod
    async def _connected(
        node: Node, clock: Clock, starting: "asyncio.Task[None]"
    ) -> RequestChannel:
        while not starting.done():
            if node.ports.get("CONTROLLER"):
                address = Address("127.0.0.1", node.ports["CONTROLLER"])
                try:
                    return await RequestChannel.open(address, clock, ChannelOptions())
                except ChannelError:
                    pass
            await asyncio.sleep(0)
        raise AssertionError(f"the node was ready before its controller: {starting}")


async def recovered(folder: Path, size: int) -> Observer:
    await write_dirty_logs(folder, size)
    node, observer = node_with(folder), Observer()
    starting = asyncio.ensure_future(node.start())
    try:
        await observer.observe(node, starting)
        await starting
        logs = node.directories
        assert sum(each.recovered.bytes_scanned for each in logs) >= size * 0.9
    finally:
        await node.stop()
    return observer


async def test_the_controller_listener_answers_while_logs_are_recovered(tmp_path: Path) -> None:
    observer = await recovered(tmp_path, 256 * MIB)
    assert observer.answers > 10
    assert observer.longest_ms < observer.total_ms / 2, vars(observer)


@pytest.mark.slow
async def test_two_gigabytes_are_recovered_without_holding_the_event_loop(tmp_path: Path) -> None:
    observer = await recovered(tmp_path, 2048 * MIB)
    assert observer.longest_ms < LAG_MS_MAX, vars(observer)
