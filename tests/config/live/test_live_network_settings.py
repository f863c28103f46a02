"""Settings of connections, observed by a client."""

import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psutil
import pytest
from config.live.live_node import LiveNode, live_node
from support.proofs import proves, proves_change
from support.wire_client import HungUpError, WireClient, parse_address

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.records.batches import iterate_batches

TRIED = 12
LISTENER = "listener.name.plaintext."


def hello() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="a", client_software_version="1")


def admitted(node: LiveNode) -> int:
    """The number of connections that the node admits, of those that are tried."""
    with ExitStack() as stack:
        for count in range(1, TRIED):
            try:
                stack.enter_context(WireClient(node.broker.bootstrap)).ask(hello(), 3)
            except HungUpError:
                return count
    return TRIED


def admits(node: LiveNode, count: int) -> None:
    """Limits are checked every second; closed connections take a moment to disappear."""
    node.advance_until(lambda: admitted(node) == count, step_ms=1_000)


@proves("max.connections")
@proves_change("max.connections")
def test_there_are_no_more_connections_than_allowed() -> None:
    with live_node({"max.connections": "3"}) as node:
        admits(node, 3)
        node.change("max.connections", "5")
        admits(node, 5)
        node.change(f"{LISTENER}max.connections", "4")
        admits(node, 4)
        node.change(f"{LISTENER}max.connections", None)
        admits(node, 5)


@proves("max.connections.per.ip")
@proves_change("max.connections.per.ip")
def test_there_are_no_more_connections_from_one_address_than_allowed() -> None:
    with live_node({"max.connections.per.ip": "3"}) as node:
        admits(node, 3)
        node.change("max.connections.per.ip", "6")
        admits(node, 6)


@proves("max.connections.per.ip.overrides")
@proves_change("max.connections.per.ip.overrides")
def test_addresses_and_host_names_can_have_their_own_limits() -> None:
    settings = {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "127.0.0.1:4"}
    with live_node(settings) as node:
        admits(node, 4)
        node.change("max.connections.per.ip.overrides", "localhost:6,10.1.2.3:9")
        admits(node, 6)
        node.change("max.connections.per.ip.overrides", "10.1.2.3:9")
        admits(node, 2)


def greeting(node: LiveNode, stack: ExitStack) -> WireClient:
    client = stack.enter_context(WireClient(node.broker.bootstrap))
    client.send(hello(), 3)
    return client


@pytest.mark.parametrize("prefix", ["", LISTENER], ids=["node", "listener"])
@proves("max.connection.creation.rate")
@proves_change("max.connection.creation.rate")
def test_new_connections_are_served_no_faster_than_allowed(prefix: str) -> None:
    name = f"{prefix}max.connection.creation.rate"
    with live_node({name: "1"}) as node, ExitStack() as stack:
        is_accepted_slowly(node, stack, 1_000)
        node.change(name, "1000000")
        for _ in range(5):
            greeting(node, stack).receive(ApiKey.API_VERSIONS, 3)
    with live_node({}) as node, ExitStack() as stack:
        node.change(name, "1")
        is_accepted_slowly(node, stack, 1_000)


def is_accepted_slowly(node: LiveNode, stack: ExitStack, pause_ms: int) -> None:
    # A second's worth is free again.
    node.advance(60_000)
    greeting(node, stack).receive(ApiKey.API_VERSIONS, 3)
    for _ in range(2):
        client = greeting(node, stack)
        node.assert_stays_false(client.has_answer)
        node.advance(pause_ms)
        client.receive(ApiKey.API_VERSIONS, 3)


@proves("connections.max.idle.ms")
def test_an_idle_connection_is_closed_after_its_time() -> None:
    settings = {"connections.max.idle.ms": "5000"}
    with live_node(settings) as node, WireClient(node.broker.bootstrap) as client:
        client.ask(hello(), 3)
        node.advance(3_000)
        client.ask(hello(), 3)
        node.advance(3_000)
        client.ask(hello(), 3)
        node.advance(7_000)
        assert client.hangs_up()


@proves("socket.request.max.bytes")
def test_a_request_that_is_too_large_ends_its_connection() -> None:
    with (
        live_node({"socket.request.max.bytes": "20000"}) as node,
        WireClient(node.broker.bootstrap, client_id="a" * 19_000) as client,
    ):
        client.ask(hello(), 3)
        client.send_raw(struct.pack(">i", 20_001))
        assert client.hangs_up()


@proves("moldau.frame.deadline.ms")
def test_an_incomplete_request_closes_its_connection() -> None:
    settings = {"moldau.frame.deadline.ms": "5000"}
    with live_node(settings) as node, WireClient(node.broker.bootstrap) as client:
        client.ask(hello(), 3)
        client.send_raw(struct.pack(">i", 100) + b"a")
        node.advance(3_000)
        node.assert_stays_false(client.has_answer)
        node.advance(4_000)
        assert client.hangs_up()


@proves("fetch.max.bytes")
def test_a_response_has_no_more_records_than_the_node_allows() -> None:
    with live_node({"fetch.max.bytes": "3000"}) as node:
        for _ in range(10):
            node.write("watched", b"a" * 900)
        fetched = node.fetch("watched", 0)
        assert len(list(iterate_batches(fetched))) == 3


# The kernel's state


def other_end(client: socket.socket) -> socket.socket:
    """The node's end of a connection, which is in this process."""
    for each in psutil.Process().net_connections("tcp4"):
        if tuple(each.raddr) == client.getsockname():
            return socket.fromfd(each.fd, socket.AF_INET, socket.SOCK_STREAM)
    raise AssertionError("no other end")


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
    ],
)
@proves("socket.send.buffer.bytes", "socket.receive.buffer.bytes")
def test_buffers_of_connections_have_the_configured_size(name: str, option: int) -> None:
    with live_node({name: "20000"}) as node:
        address = parse_address(node.broker.bootstrap)
        with socket.create_connection(address) as client:
            # Served: it has been accepted.
            node.client.ask(hello(), 3)
            node.advance_until(lambda: _has_other_end(client), step_ms=0)
            with other_end(client) as end:
                # Linux doubles the requested size.
                assert end.getsockopt(socket.SOL_SOCKET, option) == 40_000


def _has_other_end(client: socket.socket) -> bool:
    with suppress(AssertionError):
        other_end(client).close()
        return True
    return False


@contextmanager
def held_up(node: LiveNode) -> Iterator[None]:
    """Blocks the node's event loop."""
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        may_go.wait()

    thread = threading.Thread(target=node.broker.call, args=(hold,))
    thread.start()
    is_held.wait()
    try:
        yield
    finally:
        may_go.set()
        thread.join()


@proves("socket.listen.backlog.size")
def test_the_kernel_keeps_as_many_new_connections_as_configured() -> None:
    with live_node({"socket.listen.backlog.size": "3"}) as node, ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(10)]
        with held_up(node), selectors.DefaultSelector() as selector:
            for client in clients:
                client.setblocking(False)
                client.connect_ex(parse_address(node.broker.bootstrap))
                selector.register(client, selectors.EVENT_WRITE)
            # Linux takes one more. On the loopback interface a handshake ends within connect().
            assert len(selector.select(0)) == 4
