"""Listeners that come and go while a node runs, over real sockets."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.proofs import proves_change
from support.running_node import RunningNode, free_port
from support.waiting import wait_for
from support.wire_client import WireClient
from system.node.questions import create_topics, produce, read_all

from moldau.protocol.enums import ConfigResourceType
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.protocol.messages.metadata import MetadataRequest

DYNAMIC_BROKER = 2
DELETE = 1
NODE_ID = "1"
PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT,CLOSED:SSL"


def change(client: WireClient, settings: dict[str, str | None]) -> tuple[int, str | None]:
    """None deletes a setting."""
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER,
        resource_name=NODE_ID,
        configs=[
            AlterableConfig(name=name, value=value, config_operation=0 if value else DELETE)
            for name, value in settings.items()
        ],
    )
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]
    return answer.error_code, answer.error_message


def described(client: WireClient, name: str) -> tuple[str, int]:
    """Value and source."""
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=NODE_ID, configuration_keys=[name]
    )
    found = client.ask(DescribeConfigsRequest(resources=[resource])).results[0].configs[0]
    return found.value, found.config_source


def addresses(client: WireClient) -> list[tuple[str, int]]:
    """The endpoints of the brokers in this listener's responses."""
    return [(one.host, one.port) for one in client.ask(MetadataRequest(topics=[])).brokers]


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


def with_extra(listeners: str, port: int) -> dict[str, str | None]:
    return {
        "listeners": f"{listeners},EXTRA://127.0.0.1:{port}",
        "listener.security.protocol.map": PROTOCOLS,
    }


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path) as started:
        yield started.start()


@proves_change("listeners", "listener.security.protocol.map")
def test_a_new_listener_serves_is_advertised_and_outlives_a_restart(node: RunningNode) -> None:
    port = free_port()
    extra = f"127.0.0.1:{port}"
    with WireClient(node.address) as client:
        listeners, _ = described(client, "listeners")
        assert create_topics(client, {"t": 1}) == {"t": (0, None)}
        assert change(client, with_extra(listeners, port)) == (0, None)
        value, source = described(client, "listeners")
        assert (value, source) == (f"{listeners},EXTRA://{extra}", DYNAMIC_BROKER)
        assert addresses(client) == [("127.0.0.1", node.port)], "each listener reports its own"
        with WireClient(extra) as through_extra:
            wait_for(lambda: addresses(through_extra) == [("127.0.0.1", port)], "its address")
            assert produce(through_extra, "t", b"x")[0] == 0
            assert read_all(client, "t") == [b"x"]
    assert node.stop() == 0
    node.start()
    with WireClient(extra) as through_extra:
        assert addresses(through_extra) == [("127.0.0.1", port)]
        assert read_all(through_extra, "t") == [b"x"]


def test_a_removed_listener_answers_requests_in_progress_and_closes(node: RunningNode) -> None:
    port = free_port()
    with WireClient(node.address) as client:
        listeners, _ = described(client, "listeners")
        assert change(client, with_extra(listeners, port)) == (0, None)
        with WireClient(f"127.0.0.1:{port}") as idle, WireClient(f"127.0.0.1:{port}") as remover:
            assert idle.ask(ApiVersionsRequest(), 0).error_code == 0
            # Its own answer still comes, through the listener that it removes.
            assert change(remover, {"listeners": listeners}) == (0, None)
            assert idle.hangs_up()
            assert remover.hangs_up()
        assert is_refused(port)
        assert addresses(client) == [("127.0.0.1", node.port)]
        assert change(client, {"listeners": None}) == (0, None)
        assert described(client, "listeners")[0] == listeners
        # And another process can bind the port.
        socket.create_server(("127.0.0.1", port)).close()


def test_impossible_listeners_are_refused_and_nothing_changes(node: RunningNode) -> None:
    with (
        WireClient(node.address) as client,
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        listeners, source = described(client, "listeners")
        port = taken.getsockname()[1]
        controller = next(one for one in listeners.split(",") if one.startswith("CONTROLLER"))
        plaintext = next(one for one in listeners.split(",") if one.startswith("PLAINTEXT"))
        free = free_port()
        refused = {
            f"{listeners},EXTRA://127.0.0.1:{port}": "Address already in use",
            f"{listeners},EXTRA://0.0.0.0:{free}": "advertised.listeners: clients cannot connect",
            f"{listeners},EXTRA://:{free}": "--insecure-listener EXTRA",
            f"{listeners},CLOSED://127.0.0.1:{free}": "so far only PLAINTEXT is supported",
            f"{listeners},OTHER://127.0.0.1:{free}": "has no protocol for OTHER",
            f"{listeners},EXTRA://127.0.0.1:{node.port}": f"share port {node.port}",
            plaintext: "CONTROLLER is not in listeners",
            f"EXTRA://127.0.0.1:{free},{controller}": "inter.broker.listener.name",
        }
        for requested, says in refused.items():
            settings: dict[str, str | None] = {
                "listeners": requested,
                "listener.security.protocol.map": PROTOCOLS,
            }
            code, message = change(client, settings)
            assert code == ErrorCode.INVALID_REQUEST, requested
            assert says in (message or ""), message
        code, message = change(client, {"advertised.listeners": plaintext})
        assert code == ErrorCode.INVALID_REQUEST
        assert described(client, "listeners") == (listeners, source)
        assert addresses(client) == [("127.0.0.1", node.port)]
        assert is_refused(free)


def test_a_new_listener_has_limits_of_its_own_that_change_too(node: RunningNode) -> None:
    port = free_port()
    with WireClient(node.address) as client:
        listeners, _ = described(client, "listeners")
        limits: dict[str, str | None] = {"listener.name.extra.max.connections": "1"}
        assert change(client, with_extra(listeners, port) | limits) == (0, None)
        with WireClient(f"127.0.0.1:{port}") as first, WireClient(f"127.0.0.1:{port}") as second:
            assert first.ask(ApiVersionsRequest(), 0).error_code == 0
            assert second.hangs_up()
            assert change(client, {"listener.name.extra.max.connections": "2"}) == (0, None)
            with WireClient(f"127.0.0.1:{port}") as third:
                assert third.ask(ApiVersionsRequest(), 0).error_code == 0


def test_a_listener_with_another_address_moves_at_the_next_start(node: RunningNode) -> None:
    """As in Kafka, where listeners may change at run time, but not their addresses."""
    port = free_port()
    with WireClient(node.address) as client:
        listeners, _ = described(client, "listeners")
        moved = listeners.replace(str(node.port), str(port))
        assert change(client, {"listeners": moved}) == (0, None)
        assert addresses(client) == [("127.0.0.1", node.port)]
        assert is_refused(port)
    assert node.stop() == 0
    node.start()
    with WireClient(f"127.0.0.1:{port}") as client:
        assert addresses(client) == [("127.0.0.1", port)]
    assert is_refused(node.port)


def test_a_node_starts_without_the_listener_whose_port_was_taken_meanwhile(
    node: RunningNode,
) -> None:
    port = free_port()
    with WireClient(node.address) as client:
        listeners, _ = described(client, "listeners")
        assert change(client, with_extra(listeners, port)) == (0, None)
    assert node.stop() == 0
    with socket.create_server(("127.0.0.1", port)):
        node.start()
        with WireClient(node.address) as client:
            assert addresses(client) == [("127.0.0.1", node.port)]
            assert change(client, {"log.cleaner.threads": "2"}) == (0, None)
    assert (
        "a listener from the run-time settings could not be opened: listener EXTRA" in node.errors
    )
    assert "takes effect at the next start" not in node.errors, "a controller's listener stays"
