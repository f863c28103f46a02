"""A client finds its cluster again: brokers that restart or move, idle connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from client.clusters import cluster_of, fresh_topic
from client.strange_server import answer, next_request, strange_server

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata_watch import MetadataWatch
from moldau.client.cluster.settings import client_settings
from moldau.client.errors import ClientTimeoutError, NoBrokerError
from moldau.net.clock import ShiftedClock
from moldau.net.request_channel import Address
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from moldau.testing import ThreadBroker

SERVED = [
    ApiVersion(api_key=18, min_version=0, max_version=4),
    ApiVersion(api_key=3, min_version=0, max_version=13),
]


class MetadataServer:
    """A server whose metadata names other brokers, and that counts its requests."""

    def __init__(self, *named: Address, error: ErrorCode = ErrorCode.NONE) -> None:
        self.named = named
        self.error = error
        self.requests = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await next_request(reader)
            if request.header.request_api_key == 18:
                writer.write(answer(request, ApiVersionsResponse(api_keys=SERVED)))
                continue
            self.requests += 1
            brokers = [
                MetadataResponseBroker(node_id=number, host=address.host, port=address.port)
                for number, address in enumerate(self.named, 1)
            ]
            response = MetadataResponse(brokers=brokers, error_code=self.error)
            writer.write(answer(request, response))


@asynccontextmanager
async def cluster_at(address: object, **properties: str) -> AsyncIterator[Cluster]:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    async with Cluster(client_settings(str(address), named)) as cluster:
        yield cluster


async def test_rebootstrapping_uses_the_bootstrap_servers() -> None:
    nowhere = Address("127.0.0.1", 1)
    server = MetadataServer(nowhere)
    async with (
        strange_server(server) as address,
        cluster_at(address, reconnect_backoff_ms="1") as cluster,
    ):
        assert (await cluster.brokers())[1].address == nowhere
        (await cluster.connection(None)).channel.drop("gone")
        server.named = (address,)
        assert (await cluster.brokers())[1].address == address


async def test_a_client_that_must_not_rebootstrap_does_not() -> None:
    server = MetadataServer(Address("127.0.0.1", 1))
    async with (
        strange_server(server) as address,
        cluster_at(address, metadata_recovery_strategy="none") as cluster,
    ):
        await cluster.brokers()
        (await cluster.connection(None)).channel.drop("gone")
        with pytest.raises(NoBrokerError):
            await cluster.brokers()
        assert server.requests == 1


async def test_a_broker_can_make_a_client_rebootstrap() -> None:
    sender = MetadataServer(error=ErrorCode.REBOOTSTRAP_REQUIRED)
    async with strange_server(sender) as other:
        server = MetadataServer(other)
        async with strange_server(server) as address, cluster_at(address) as cluster:
            await cluster.brokers()
            (await cluster.connection(None)).channel.drop("gone")
            await cluster.brokers()
    assert (sender.requests, server.requests) == (1, 2)


async def test_a_failing_broker_is_retried_with_growing_pauses() -> None:
    cluster = Cluster(
        client_settings("127.0.0.1:1", {"reconnect.backoff.ms": "40", "retry.backoff.ms": "1"})
    )
    async with cluster:
        begun_ms = cluster.clock.mono_ms()
        for _ in range(4):
            with pytest.raises(NoBrokerError):
                await cluster.brokers()
        # Pauses of 40, 80 and 160 ms, each up to a fifth shorter.
        assert cluster.clock.mono_ms() - begun_ms >= 0.8 * (40 + 80 + 160)


async def test_a_call_without_a_response_ends_with_its_timeout() -> None:
    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with strange_server(silence) as address, cluster_at(address) as cluster:
        with pytest.raises(ClientTimeoutError, match="no answer within 50 ms"):
            await cluster.with_retries(cluster.brokers, patience_ms=50)


async def test_an_idle_connection_is_closed_and_reopened(node: ThreadBroker) -> None:
    clock = ShiftedClock()
    settings = client_settings(node.bootstrap, {"connections.max.idle.ms": "60000"})
    async with Cluster(settings, clock) as cluster:
        first = await cluster.connection(None)
        clock.advance(59_000)
        await cluster.brokers()
        clock.advance(59_000)
        # Timers fire in order: when this one did, those before it have.
        await clock.sleep(0)
        assert not first.channel.is_closed
        clock.advance(2_000)
        await clock.sleep(0)
        assert first.channel.is_closed
        assert await cluster.brokers()


async def test_watched_topics_are_refreshed_after_their_maximum_age(node: ThreadBroker) -> None:
    clock = ShiftedClock()
    name = fresh_topic(node)
    async with Cluster(client_settings(node.bootstrap), clock) as cluster:
        watch = MetadataWatch(cluster)
        watch.start()
        watch.watch([name])
        await watch.refreshed()
        assert name in cluster.known.topics
        updated = asyncio.Event()
        watch.on_update(lambda _: updated.set())
        clock.advance(301_000)
        await updated.wait()
        watch.watch_only(None)
        while name not in (await watch.refreshed()).topics:
            pass


async def test_a_watch_resumes_when_a_broker_comes_back(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    async with cluster_of(node, retry_backoff_ms="1") as cluster:
        watch = MetadataWatch(cluster)
        watch.start()
        watch.watch([name])
        await watch.refreshed()
        for _ in range(5):
            node.drop_connections()
            assert name in (await watch.refreshed()).topics


async def test_waiting_for_metadata_fails_if_no_broker_was_ever_reached() -> None:
    async with cluster_at("127.0.0.1:1") as cluster:
        watch = MetadataWatch(cluster)
        watch.start()
        with pytest.raises(NoBrokerError):
            await watch.refreshed()
