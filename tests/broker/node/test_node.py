"""A node from outside: addresses, refusals, and what a start and a stop leave."""

import os
import socket
import sys
from pathlib import Path

import pytest
from support.proofs import proves

from moldau.broker.node.node import Node, NodeOptions
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.net.clock import Clock
from moldau.net.request_channel import Address, ChannelOptions, RequestChannel
from moldau.protocol.errors import MoldauError
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse
from moldau.storage.directory.directory import CLEAN_STOP_FILE

FORMATS = NodeOptions(formats_itself=True)
METADATA_VERSION = 12
_WINDOW_AT = 228  # tcpi_snd_wnd in Linux's struct tcp_info


def node_with(folder: Path, options: NodeOptions = FORMATS, **settings: str) -> Node:
    properties = standalone_properties(str(folder), host="127.0.0.1", port=0)
    properties |= {name.replace("_", "."): value for name, value in settings.items()}
    return Node(BrokerConfig.parse(properties), options)


async def brokers_seen_from(host: str, port: int) -> list[tuple[str, int]]:
    clock = Clock()
    channel = await RequestChannel.open(Address(host, port), clock, ChannelOptions())
    try:
        answer = await channel.ask(MetadataRequest(), MetadataResponse, METADATA_VERSION)
        return [(broker.host, broker.port) for broker in answer.brokers]
    finally:
        await channel.close()
        clock.close()


@proves("listeners", "advertised.listeners", "listener.security.protocol.map")
async def test_each_listener_reports_its_own_address(tmp_path: Path) -> None:
    node = node_with(
        tmp_path,
        listeners="INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0,SIX://[::1]:0,CONTROLLER://127.0.0.1:0",
        advertised_listeners="INSIDE://inside.example:1111,OUTSIDE://outside.example:2222,SIX://[::1]:3333",
        listener_security_protocol_map=(
            "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,SIX:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        inter_broker_listener_name="INSIDE",
    )
    await node.start()
    try:
        ports = node.ports
        assert await brokers_seen_from("127.0.0.1", ports["INSIDE"]) == [("inside.example", 1111)]
        assert await brokers_seen_from("127.0.0.1", ports["OUTSIDE"]) == [("outside.example", 2222)]
        assert await brokers_seen_from("::1", ports["SIX"]) == [("::1", 3333)]
    finally:
        await node.stop()


def window_of_the_other_side(port: int) -> int:
    """The client's receive window, as the kernel knows it."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        tcp_info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return int.from_bytes(tcp_info[_WINDOW_AT : _WINDOW_AT + 4], sys.byteorder)


async def test_socket_buffers_follow_the_settings(tmp_path: Path) -> None:
    plain = node_with(tmp_path / "plain")
    narrow = node_with(tmp_path / "narrow", socket_receive_buffer_bytes="4096")
    for node in (plain, narrow):
        await node.start()
    try:
        assert window_of_the_other_side(narrow.client_port) <= 8192
        assert window_of_the_other_side(plain.client_port) > 8192
    finally:
        for node in (plain, narrow):
            await node.stop()


async def test_nodes_in_one_process_share_nothing(tmp_path: Path) -> None:
    nodes = [node_with(tmp_path / name) for name in ("one", "two", "three")]
    for node in nodes:
        await node.start()
    try:
        ports = [node.client_port for node in nodes]
        assert len(set(ports)) == 3
        for port in ports:
            assert await brokers_seen_from("127.0.0.1", port) == [("127.0.0.1", port)]
        assert len({node.services.cluster_id for node in nodes}) == 3
    finally:
        for node in nodes:
            await node.stop()


async def test_a_clean_stop_leaves_a_marker_and_a_running_node_has_none(tmp_path: Path) -> None:
    node = node_with(tmp_path)
    await node.start()
    assert not (tmp_path / CLEAN_STOP_FILE).exists()
    await node.stop()
    assert (tmp_path / CLEAN_STOP_FILE).exists()


async def test_a_failed_start_keeps_the_markers_of_the_last_clean_stop(tmp_path: Path) -> None:
    node = node_with(tmp_path)
    await node.start()
    await node.create_topic("kept", 1, {})
    await node.stop()
    marker = (tmp_path / CLEAN_STOP_FILE).read_bytes()
    checkpoint = (tmp_path / "replication-offset-checkpoint").read_bytes()
    quorum_state = tmp_path / "__cluster_metadata-0" / "quorum-state"
    sound = quorum_state.read_bytes()
    quorum_state.write_bytes(b"broken")
    with pytest.raises(MoldauError):
        await node_with(tmp_path).start()
    assert (tmp_path / CLEAN_STOP_FILE).read_bytes() == marker
    assert (tmp_path / "replication-offset-checkpoint").read_bytes() == checkpoint
    quorum_state.write_bytes(sound)
    again = node_with(tmp_path)
    await again.start()
    assert again.services.image.topic("kept") is not None
    await again.stop()


async def test_two_nodes_do_not_share_a_directory(tmp_path: Path) -> None:
    node = node_with(tmp_path)
    await node.start()
    try:
        with pytest.raises(MoldauError, match=r"lock|in use|another"):
            await node_with(tmp_path).start()
    finally:
        await node.stop()


async def test_an_unformatted_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(MoldauError, match="not formatted"):
        await node_with(tmp_path, NodeOptions()).start()


async def test_a_directory_with_strange_files_is_not_formatted(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear Milena")
    with pytest.raises(MoldauError, match="holds files"):
        await node_with(tmp_path).start()
    assert os.listdir(tmp_path) == [letter.name]  # noqa: PTH208 - a test may block


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"listeners": "PLAINTEXT://:0,CONTROLLER://127.0.0.1:0"}, "--insecure-listener PLAINTEXT"),
        (
            {
                "listeners": "PLAINTEXT://0.0.0.0:0,CONTROLLER://127.0.0.1:0",
                "advertised_listeners": "PLAINTEXT://127.0.0.1:9092",
            },
            "other machines",
        ),
        (
            {"listener_security_protocol_map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"},
            "needs SSL; so far only PLAINTEXT",
        ),
        ({"authorizer_class_name": "org.apache.Anything"}, "authorizer"),
    ],
    ids=["every address", "wildcard", "TLS", "authorizer"],
)
async def test_unsafe_settings_are_refused(
    tmp_path: Path, settings: dict[str, str], complaint: str
) -> None:
    with pytest.raises(MoldauError, match=complaint):
        await node_with(tmp_path, FORMATS, **settings).start()


async def test_an_open_listener_is_allowed_by_name(tmp_path: Path) -> None:
    options = NodeOptions(formats_itself=True, insecure_listeners=frozenset({"plaintext"}))
    node = node_with(
        tmp_path,
        options,
        listeners="PLAINTEXT://0.0.0.0:0,CONTROLLER://127.0.0.1:0",
        advertised_listeners="PLAINTEXT://127.0.0.1:9092",
    )
    await node.start()
    try:
        port = node.ports["PLAINTEXT"]
        assert await brokers_seen_from("127.0.0.1", port) == [("127.0.0.1", 9092)]
    finally:
        await node.stop()
