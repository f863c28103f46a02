"""Finding brokers, leaders and coordinators, and retrying retriable errors."""

import asyncio
from pathlib import Path

import pytest
from client.clusters import cluster_of, fresh_topic, partitions_of
from client.strange_server import answer, next_request, strange_server

from moldau.client.admin.cluster import describe_cluster
from moldau.client.admin.log_dirs import describe_log_dirs
from moldau.client.admin.offsets import LATEST, MAX_TIMESTAMP, list_offsets
from moldau.client.admin.quorum import describe_quorum
from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.settings import client_settings
from moldau.client.errors import ClientError, NoBrokerError, UnknownTopicError
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from moldau.testing import ThreadBroker, broker
from moldau.types import TopicPartition


async def test_a_cluster_is_found_from_one_address(node: ThreadBroker) -> None:
    async with cluster_of(node) as cluster:
        found = await describe_cluster(cluster)
        brokers = await cluster.brokers()
    assert [broker.node_id for broker in found.brokers] == list(brokers)
    assert str(found.brokers[0].address) == node.bootstrap


async def test_the_second_address_is_taken_if_the_first_is_dead(node: ThreadBroker) -> None:
    async with Cluster(client_settings(f"127.0.0.1:1,{node.bootstrap}")) as cluster:
        assert await cluster.brokers()


async def test_an_unreachable_cluster_is_an_error_at_once() -> None:
    async with Cluster(client_settings("127.0.0.1:1,no-such-host.invalid:1")) as cluster:
        with pytest.raises(NoBrokerError) as caught:
            await cluster.topic("orders")
    assert "127.0.0.1:1: nothing listens there" in str(caught.value)
    assert "no-such-host.invalid:1: the name is not known" in str(caught.value)


async def test_a_mistyped_topic_gets_a_suggestion(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    async with cluster_of(node) as cluster:
        with pytest.raises(UnknownTopicError, match=f"did you mean '{name}'"):
            await cluster.topic(name + "x")


async def test_a_missing_partition_is_named_in_the_error(node: ThreadBroker) -> None:
    name = fresh_topic(node, 3)
    async with cluster_of(node) as cluster:
        with pytest.raises(ClientError, match="has no partition 3; it has 3 partitions"):
            await cluster.leader(TopicPartition(name, 3))


async def test_retriable_errors_are_retried(node: ThreadBroker) -> None:
    name = fresh_topic(node, 2)
    node.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=3)
    node.fail_next("ListOffsets", "NOT_LEADER_OR_FOLLOWER", times=3)
    async with cluster_of(node, retry_backoff_ms="1") as cluster:
        wanted = dict.fromkeys(partitions_of(name, 2), LATEST)
        assert {found.offset for found in (await list_offsets(cluster, wanted)).values()} == {0}
        coordinator = await cluster.with_retries(lambda: cluster.coordinator("some-group"))
        assert coordinator in await cluster.brokers()


async def test_retries_end_with_the_timeout(node: ThreadBroker) -> None:
    node.fail_next("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=10_000)
    settings = {"default_api_timeout_ms": "50", "retry_backoff_ms": "1"}
    async with cluster_of(node, **settings) as cluster:
        with pytest.raises(KafkaError) as caught:
            await cluster.with_retries(lambda: cluster.coordinator("some-group"))
    assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_final_error_is_raised_at_once(node: ThreadBroker) -> None:
    node.fail_next("FindCoordinator", "GROUP_AUTHORIZATION_FAILED")
    async with cluster_of(node) as cluster:
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            await cluster.with_retries(lambda: cluster.coordinator("some-group"))


async def test_dropped_connections_are_reopened(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    async with cluster_of(node, retry_backoff_ms="1") as cluster:
        wanted = {TopicPartition(name, 0): int(LATEST)}
        await list_offsets(cluster, wanted)
        for _ in range(5):
            node.drop_connections()
            assert (await list_offsets(cluster, wanted))[TopicPartition(name, 0)].offset == 0


async def test_requests_to_one_node_share_a_connection(node: ThreadBroker) -> None:
    async with cluster_of(node) as cluster:
        (node_id,) = await cluster.brokers()
        found = await asyncio.gather(*(cluster.connection(node_id) for _ in range(10)))
        assert len(set(found)) == 1
        assert await cluster.connection(node_id, "fetch") not in found


async def test_a_missing_api_is_named_in_the_error() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = [ApiVersion(api_key=18, min_version=0, max_version=4)]
        served.append(ApiVersion(api_key=60, min_version=0, max_version=0))
        writer.write(answer(await next_request(reader), ApiVersionsResponse(api_keys=served)))
        await reader.read()

    async with (
        strange_server(serve) as address,
        Cluster(client_settings(str(address))) as cluster,
    ):
        with pytest.raises(ClientError, match="does not serve METADATA"):
            await cluster.metadata(None)
        connection = await cluster.connection(None)
        assert connection.serves(60)
        assert not connection.serves(3)


async def test_the_quorum_and_the_disks_are_described(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    async with cluster_of(node) as cluster:
        found = await describe_quorum(cluster)
        assert found.leader_id in [voter.node_id for voter in found.voters]
        (directory,) = await describe_log_dirs(cluster, list(await cluster.brokers()))
        assert TopicPartition(name, 0) in [replica.partition for replica in directory.replicas]


async def test_an_empty_partition_has_no_largest_time(node: ThreadBroker) -> None:
    name = fresh_topic(node)
    async with cluster_of(node) as cluster:
        found = await list_offsets(cluster, {TopicPartition(name, 0): int(MAX_TIMESTAMP)})
    assert found[TopicPartition(name, 0)].offset == -1


async def test_a_cluster_that_was_reached_is_waited_for_in_every_call(tmp_path: Path) -> None:
    with broker(directory=tmp_path) as running:
        assert isinstance(running, ThreadBroker)
        async with cluster_of(running) as cluster:
            await cluster.send(None, ApiVersionsRequest(), ApiVersionsResponse, newest=0)
            await asyncio.to_thread(running.stop)
            async with asyncio.TaskGroup() as group:
                again = group.create_task(cluster.with_retries(cluster.brokers))
                await asyncio.to_thread(running.start)
            assert again.result()
