"""A node hands over before it stops to serve."""

import asyncio

from broker.quorum.test_slow_disks import SlowSync
from support.waiting import take_turns, until

from moldau.broker.node.host import Host
from moldau.broker.node.node import Node, NodeOptions
from moldau.config.broker import BrokerConfig
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelOptions, RequestChannel
from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from moldau.testing.simulated_disk import SimulatedDisk

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:0",
    "log.dirs": "/data",
    "moldau.reserve.bytes": "0",
    "metadata.max.idle.interval.ms": "0",
}


def change(name: str, value: str) -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER,
        resource_name="",
        configs=[AlterableConfig(name=name, value=value)],
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


async def answered(channel: RequestChannel, request: IncrementalAlterConfigsRequest) -> ErrorCode:
    response = await channel.ask(request, IncrementalAlterConfigsResponse, 1)
    return ErrorCode(response.responses[0].error_code)


async def test_a_controller_decides_until_another_one_can() -> None:
    """Here it first waits for its disk: what it has decided shall be committed."""
    disk = SimulatedDisk()
    options = NodeOptions(formats_itself=True)
    node = Node(BrokerConfig.parse(CONTROLLER), options, host=Host(filesystem=disk))
    await node.start()
    clock = Clock()
    address = Address("127.0.0.1", node.ports["CONTROLLER"])
    channels = [await RequestChannel.open(address, clock, ChannelOptions()) for _ in range(2)]
    slow = SlowSync(disk, ".never", "sync")
    try:
        while (await answered(channels[0], change("log.retention.ms", "1000"))) != ErrorCode.NONE:
            # It is not active yet.
            await take_turns()
        slow = SlowSync(disk, ".log", "sync")
        first = asyncio.ensure_future(answered(channels[0], change("log.retention.ms", "2000")))
        await until(lambda: slow.reached > 0)
        stopping = asyncio.ensure_future(node.stop())
        await take_turns()
        second = asyncio.ensure_future(answered(channels[1], change("log.retention.ms", "3000")))
        # Nothing signals that it has arrived; a refusal would come at once.
        for _ in range(20):
            await take_turns()
        assert not second.done()
        slow.release()
        assert await first is ErrorCode.NONE
        assert await second is ErrorCode.NONE
        await stopping
    finally:
        slow.release()
        for channel in channels:
            await channel.close()
        await node.stop()
        clock.close()
