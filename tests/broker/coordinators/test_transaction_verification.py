"""How a partition's leader verifies transactions with a coordinator on another broker."""

import asyncio
from pathlib import Path

import pytest
from broker.data_node import DataNode, running
from broker.far_coordinator import TRANSACTION_STATE_NUMBER, coordinated

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.storage.producers.verification import Verification
from moldau.types import NO_LEADER, ProducerEpoch, TopicPartition

ORDERS = TopicPartition("orders", 0)
PRODUCER = (5, ProducerEpoch(0))


async def verify(
    node: DataNode, transactional_id: str = "t", *, epoch: int = 0, adds: bool = False
) -> ErrorCode:
    codes = await node.verification.verify(
        transactional_id, 5, ProducerEpoch(epoch), [ORDERS], adds=adds
    )
    return codes[ORDERS]


async def guard(node: DataNode, *, adds: bool = False) -> Verification | KafkaError | None:
    partition = node.replicas.lookup("orders", 0)
    verifications = await node.verification.begin("t", PRODUCER, {partition: 0}, adds=adds)
    return verifications[partition]


async def turns() -> None:
    """Runs all callbacks that need no response."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_coordinator_verifies_the_partitions_of_a_transaction(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = coordinated(node)
        assert await verify(node) is ErrorCode.TRANSACTION_ABORTABLE
        coordinator.add("t", ORDERS)
        assert await verify(node) is ErrorCode.NONE
        assert all(each.transactions[0].verify_only for each in coordinator.requests)


async def test_the_query_itself_may_add_the_partition(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = coordinated(node)
        assert await verify(node, adds=True) is ErrorCode.NONE
        assert await verify(node) is ErrorCode.NONE
        sent = coordinator.requests[0].transactions[0]
        assert (sent.producer_id, sent.producer_epoch, sent.verify_only) == (5, 0, False)


async def test_queries_that_gather_during_a_request_share_the_next(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = coordinated(node)
        coordinator.hold()
        waiting = [asyncio.ensure_future(verify(node, name)) for name in ("a", "b", "c", "b")]
        await turns()
        assert [len(each.transactions) for each in coordinator.requests] == [4 - 1]
        more = [asyncio.ensure_future(verify(node, name)) for name in ("d", "a", "e")]
        await turns()
        assert len(coordinator.requests) == 1, "one question at a time"
        coordinator.release()
        await asyncio.gather(*waiting, *more)
        names = [[t.transactional_id for t in each.transactions] for each in coordinator.requests]
        # Each transactional id once.
        assert names == [["a", "b", "c"], ["b", "d", "a", "e"]]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (31_000, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_writers_get_error_codes_they_know(
    tmp_path: Path, said: int, expected: ErrorCode
) -> None:
    async with running(tmp_path) as node:
        coordinated(node).codes.append(said)
        assert await verify(node) is expected


async def test_a_refusal_of_the_broker_is_not_passed_on_as_one_of_the_client(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        coordinator = coordinated(node)
        coordinator.request_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await verify(node) is ErrorCode.INVALID_TXN_STATE
        for code in (ErrorCode.UNKNOWN_SERVER_ERROR, 31_000):
            coordinator.request_code = code
            assert await verify(node) is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_an_unreachable_coordinator_is_retried_next_time(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = coordinated(node)
        coordinator.is_reachable = False
        assert await verify(node) is ErrorCode.NETWORK_EXCEPTION
        coordinator.is_reachable = True
        assert await verify(node, adds=True) is ErrorCode.NONE


async def test_without_a_live_coordinator_no_request_is_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        assert await verify(node) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        coordinator = coordinated(node, fenced=True)
        assert await verify(node) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        for index in range(3):
            node.change_partition(TRANSACTION_STATE_NUMBER, index, leader=NO_LEADER)
        assert await verify(node) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert coordinator.requests == []


async def test_a_client_that_leaves_does_not_disturb_the_others(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = coordinated(node)
        coordinator.hold()
        gone = asyncio.ensure_future(verify(node, "gone", adds=True))
        stays = asyncio.ensure_future(verify(node, "stays", adds=True))
        await turns()
        gone.cancel()
        coordinator.release()
        assert await stays is ErrorCode.NONE
        assert gone.cancelled()


async def test_waiting_callers_are_released_at_the_end(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinated(node).hold()
        waiting = [asyncio.ensure_future(verify(node, name)) for name in ("a", "a")]
        await turns()
        await node.tasks.close()
        assert await asyncio.gather(*waiting) == [ErrorCode.NETWORK_EXCEPTION] * 2


# Verifications


async def test_an_agreement_is_a_verification_for_the_append(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        coordinated(node)
        found = await guard(node, adds=True)
        assert found is node.replicas.lookup("orders", 0).log.producers.verifications.get(5)


async def test_a_refusal_is_an_error_for_its_partition_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=3)
        node.change_partition(index=2, leader=2)
        coordinated(node).add("t", ORDERS)
        sequences = {node.replicas.partitions["orders", index]: 0 for index in range(3)}
        verifications = list(
            (await node.verification.begin("t", PRODUCER, sequences, adds=False)).values()
        )
        assert isinstance(verifications[0], Verification)
        codes = [each.code for each in verifications if isinstance(each, KafkaError)]
        assert codes == [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_the_end_of_the_last_transaction_is_waited_for_a_moment(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        coordinator = coordinated(node)
        coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
        waiting = asyncio.ensure_future(guard(node, adds=True))
        for sent in range(1, 3):
            await turns()
            assert len(coordinator.requests) == sent
            node.clock.advance(20)
        assert isinstance(await waiting, Verification)


async def test_but_not_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        coordinator = coordinated(node)
        coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS] * 100
        waiting = asyncio.ensure_future(guard(node, adds=True))
        await turns()
        node.clock.advance(100)
        found = await waiting
        assert isinstance(found, KafkaError)
        assert found.code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(coordinator.requests) == 2


async def test_a_client_that_added_its_partitions_itself_tries_again_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        coordinator = coordinated(node)
        coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
        found = await guard(node)
        assert isinstance(found, KafkaError)
        assert found.code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(coordinator.requests) == 1


async def test_verification_can_be_switched_off_for_clients_that_add_themselves(
    tmp_path: Path,
) -> None:
    settings = {"transaction.partition.verification.enable": "false"}
    async with running(tmp_path, settings=settings) as node:
        node.create_topic("orders")
        coordinator = coordinated(node)
        assert await guard(node) is None
        assert coordinator.requests == []
        assert isinstance(await guard(node, adds=True), Verification)
        assert len(coordinator.requests) == 1
