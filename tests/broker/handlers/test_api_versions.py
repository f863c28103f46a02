"""ApiVersions of a broker whose active controller is another node, which may be older or newer."""

from pathlib import Path

from broker.controller_bench import Bench, bench

from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.broker.node.node import Node
from moldau.config.broker import BrokerConfig
from moldau.protocol.api_keys import API_VERSIONS, ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.types import Uuid, uuid_text

CLIENT = ApiVersionsRequest(client_software_name="test", client_software_version="1")
CLUSTER = uuid_text(Uuid(bytes(range(16))))


async def advertised(node: Bench, listener: str = "PLAINTEXT") -> dict[int, tuple[int, int]]:
    answer = await node.serve(CLIENT, 4, listener=listener)
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


async def test_forwarded_apis_are_advertised_as_broker_and_controller_serve_them(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path / "data") as node:
        alone = await advertised(node)
        assert alone[ApiKey.CREATE_TOPICS] == (2, 7)
        served = {int(key): (0, 100) for key, known in API_VERSIONS.items() if known.forwardable}
        served |= {ApiKey.CREATE_TOPICS: (3, 5), ApiKey.DELETE_TOPICS: (7, 9)}
        del served[ApiKey.ELECT_LEADERS]
        node.controller_versions = served
        expected = {**alone, ApiKey.CREATE_TOPICS: (3, 5)}
        del expected[ApiKey.DELETE_TOPICS], expected[ApiKey.ELECT_LEADERS]
        assert await advertised(node) == expected
        # The controller's own listener advertises what it serves itself.
        assert (await advertised(node, "CONTROLLER"))[ApiKey.DELETE_TOPICS] == (1, 6)
        node.controller_versions = None
        assert await advertised(node) == alone


def node_of(folder: Path, node_id: int, roles: str, controller: str) -> Node:
    client = "PLAINTEXT://127.0.0.1:0"
    listeners = {"broker": client, "controller": "CONTROLLER://127.0.0.1:0"}
    config = BrokerConfig.parse(
        {
            "process.roles": roles,
            "node.id": str(node_id),
            "log.dirs": str(folder / str(node_id)),
            "listeners": listeners[roles],
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "moldau.reserve.bytes": "0",
        }
    )
    options = FormatOptions(cluster_id=CLUSTER, standalone=roles == "controller")
    format_node(DiskFileSystem(), config, options, 1)
    return Node(config)


async def test_a_broker_knows_the_versions_of_its_controller(tmp_path: Path) -> None:
    """Before it has forwarded anything."""
    controller = node_of(tmp_path, 1, "controller", "127.0.0.1:0")
    await controller.start()
    try:
        broker = node_of(tmp_path, 2, "broker", f"127.0.0.1:{controller.ports['CONTROLLER']}")
        await broker.start()
        try:
            served = broker.services.controller_versions()
            assert served is not None
            assert served[ApiKey.CREATE_TOPICS] == API_VERSIONS[ApiKey.CREATE_TOPICS].controller
        finally:
            await broker.stop()
    finally:
        await controller.stop()
