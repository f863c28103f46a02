"""Batches of transactions at their partitions' leader; the coordinator is another broker."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from broker.data_node import DataNode, batch, running, topic_id, values_of
from broker.far_coordinator import FarCoordinator, coordinated
from support.proofs import proves

from moldau.broker.handlers.produce import handle_produce
from moldau.broker.server.context import Staged
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.storage.log.log import Log
from moldau.storage.log.read import Isolation
from moldau.storage.producers.state import AppendOrigin
from moldau.types import Offset, ProducerEpoch

OLD, ABORTABLE, ADDING, NEWEST = 9, 11, 12, 13
PID = 5
VERIFICATION = "transaction.partition.verification.enable"


def of_transaction(
    sequence: int, *values: bytes, producer_id: int = PID, epoch: int = 0, **options: Any
) -> bytearray:
    return batch(
        *(values or (b"a",)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
        **options,
    )


def asking(*parts: tuple[int, bytearray], **fields: Any) -> ProduceRequest:
    """Batches by their partitions of the topic `orders`."""
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    defaults: dict[str, Any] = {"transactional_id": "t", "acks": -1, "timeout_ms": 1000}
    topic = TopicProduceData(name="orders", topic_id=topic_id(1), partition_data=data)
    return ProduceRequest(topic_data=[topic], **(defaults | fields))


async def answered(node: DataNode, sent: ProduceRequest, version: int) -> ProduceResponse | None:
    result: Any = handle_produce(node.context(sent, version), sent)
    if isinstance(result, Awaitable):
        result = await result
    response: Any = await result.answer if isinstance(result, Staged) else result
    assert response is None or isinstance(response, ProduceResponse)
    return response


async def codes(node: DataNode, sent: ProduceRequest, version: int) -> list[int]:
    response = await answered(node, sent, version)
    assert response is not None
    return [each.error_code for each in response.responses[0].partition_responses]


async def produce(node: DataNode, records: bytearray, version: int = ADDING) -> ErrorCode:
    (code,) = await codes(node, asking((0, records)), version)
    return ErrorCode(code)


def end(node: DataNode, *, index: int = 0, epoch: int, version: int, commits: bool = True) -> None:
    kind = ControlType.COMMIT if commits else ControlType.ABORT
    marker = end_transaction_marker(
        EndTransactionMarker(control_type=kind, coordinator_epoch=0),
        MarkerOrigin(producer_id=PID, producer_epoch=ProducerEpoch(epoch)),
        node.clock.wall_ms(),
    )
    node.replicas.lookup("orders", index).append(
        bytearray(marker), origin=AppendOrigin.COORDINATOR, transaction_version=version
    )


def log_of(node: DataNode, index: int = 0) -> Log:
    return node.replicas.lookup("orders", index).log


def start(node: DataNode, partitions: int = 1) -> FarCoordinator:
    node.create_topic("orders", partitions=partitions)
    return coordinated(node)


def has_nothing_open(node: DataNode, index: int = 0) -> bool:
    return log_of(node, index).producers.first_undecided_offset is None


# Verification requests


async def test_only_the_first_batch_on_a_partition_is_verified(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        for sequence in range(4):
            assert await produce(node, of_transaction(sequence)) is ErrorCode.NONE
        assert len(coordinator.requests) == 1
        assert log_of(node).producers.has_open_transaction(PID, ProducerEpoch(0))


@pytest.mark.parametrize(
    ("version", "verify_only"), [(OLD, True), (ABORTABLE, True), (ADDING, False), (NEWEST, False)]
)
async def test_from_version_twelve_on_the_write_adds_the_partition(
    tmp_path: Path, version: int, verify_only: bool
) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        coordinator.add("t", ("orders", 0))
        assert await produce(node, of_transaction(0), version) is ErrorCode.NONE
        (sent,) = coordinator.requests[0].transactions
        assert sent.verify_only is verify_only
        assert (sent.transactional_id, sent.producer_id, sent.producer_epoch) == ("t", PID, 0)


async def test_plain_batches_of_a_transactional_producer_are_not_verified(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        plain = batch(b"a", producer_id=PID, producer_epoch=0, base_sequence=0)
        assert await produce(node, plain) is ErrorCode.NONE
        assert coordinator.requests == []


async def test_the_partitions_of_a_request_are_verified_together(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node, partitions=4)
        assert await produce(node, of_transaction(0)) is ErrorCode.NONE
        sent = asking((0, of_transaction(1)), (1, of_transaction(0)), (2, batch(b"plain")),
                       (3, of_transaction(0)))  # fmt: skip
        assert await codes(node, sent, ADDING) == [0, 0, 0, 0]
        assert len(coordinator.requests) == 2
        (topic,) = coordinator.requests[1].transactions[0].topics
        assert (topic.name, topic.partitions) == ("orders", [1, 3])


async def test_the_next_request_waits_for_the_coordinator_but_not_for_the_disk(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        start(node)
        sent = asking((0, of_transaction(0)))
        result = handle_produce(node.context(sent, ADDING), sent)
        assert isinstance(result, Awaitable), "the next may bring the batch that comes after"
        staged = await result
        assert isinstance(staged, Staged)
        assert log_of(node).log_end_offset == 1
        sent = asking((0, of_transaction(1)))
        assert isinstance(handle_produce(node.context(sent, ADDING), sent), Staged)
        await staged.answer


# Refusals


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (OLD, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
async def test_a_partition_outside_the_transaction_takes_nothing(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        told = await answered(node, asking((0, of_transaction(0))), version)
        assert told is not None
        (answer,) = told.responses[0].partition_responses
        assert answer.error_code == code
        words = "Partition was not added to the transaction"
        assert answer.error_message == (words if code is ErrorCode.INVALID_TXN_STATE else None)
        assert log_of(node).log_end_offset == 0
        coordinator.add("t", ("orders", 0))
        assert await produce(node, of_transaction(0), version) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ADDING, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ADDING, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ADDING, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, OLD, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.TRANSACTION_ABORTABLE, ADDING, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
async def test_clients_get_error_codes_that_they_handle_correctly(
    tmp_path: Path, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        coordinator.codes = [said]
        response = await answered(node, asking((0, of_transaction(0))), version)
        assert response is not None
        (answer,) = response.responses[0].partition_responses
        assert answer.error_code == told
        words = (
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {said.name}"
        )
        assert answer.error_message == (words if told is ErrorCode.NOT_ENOUGH_REPLICAS else None)
        assert log_of(node).log_end_offset == 0


@proves("add.partitions.to.txn.retry.backoff.max.ms")
async def test_a_coordinator_that_stays_busy_is_named_to_new_clients(tmp_path: Path) -> None:
    settings = {"add.partitions.to.txn.retry.backoff.max.ms": "0"}
    async with running(tmp_path, settings=settings) as node:
        coordinator = start(node)
        coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert await produce(node, of_transaction(0)) is ErrorCode.CONCURRENT_TRANSACTIONS


@proves("add.partitions.to.txn.retry.backoff.ms")
async def test_a_busy_coordinator_is_retried_after_a_pause(tmp_path: Path) -> None:
    settings = {
        "add.partitions.to.txn.retry.backoff.ms": "80000",
        "add.partitions.to.txn.retry.backoff.max.ms": "200000",
    }
    async with running(tmp_path, settings=settings) as node:
        coordinator = start(node)
        coordinator.codes = [ErrorCode.CONCURRENT_TRANSACTIONS]
        produced = asyncio.ensure_future(produce(node, of_transaction(0)))
        await coordinator.is_requested()
        for pause_ms, sent in ((0, 1), (40_000, 1), (41_000, 2)):
            node.clock.advance(pause_ms)
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(coordinator.requests) == sent
        assert await produced is ErrorCode.NONE


async def test_a_refused_partition_does_not_keep_the_others_back(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node, partitions=3)
        coordinator.add("t", ("orders", 0))
        sent = asking((0, of_transaction(0)), (1, of_transaction(0)), (2, batch(b"plain")))
        assert await codes(node, sent, OLD) == [0, ErrorCode.INVALID_TXN_STATE, 0]
        assert [log_of(node, index).log_end_offset for index in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("with_a_plain_one", [False, True])
async def test_a_transactional_batch_without_a_transactional_id_refuses_the_whole_request(
    tmp_path: Path, with_a_plain_one: bool
) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node, partitions=2)
        parts = [(0, batch(b"plain"))] if with_a_plain_one else []
        sent = asking(*parts, (1, of_transaction(0)), transactional_id=None)
        found = await codes(node, sent, ADDING)
        assert set(found) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert [log_of(node, index).log_end_offset for index in range(2)] == [0, 0]
        assert coordinator.requests == []


@pytest.mark.parametrize("other", [{"producer_id": 6}, {"epoch": 1}])
async def test_two_producers_in_one_request_refuse_it(
    tmp_path: Path, other: dict[str, int]
) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node, partitions=3)
        sent = asking((0, of_transaction(0)), (1, of_transaction(0, **other)), (2, batch(b"plain")))
        assert await codes(node, sent, ADDING) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3
        assert [log_of(node, index).log_end_offset for index in range(3)] == [0, 0, 0]
        assert coordinator.requests == []


async def test_without_acks_a_refusal_ends_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        with pytest.raises(MalformedRequestError):
            await answered(node, asking((0, of_transaction(0)), acks=0), OLD)
        coordinator.add("t", ("orders", 0))
        assert await answered(node, asking((0, of_transaction(0)), acks=0), OLD) is None
        assert log_of(node).log_end_offset == 1


# Late writes


@pytest.mark.parametrize("commits", [True, False])
async def test_a_late_batch_of_the_old_protocol_leaves_nothing_open(
    tmp_path: Path, commits: bool
) -> None:
    """It was sent in a transaction that has ended; the producer still has the same epoch."""
    async with running(tmp_path) as node:
        coordinator = start(node)
        coordinator.add("t", ("orders", 0))
        assert await produce(node, of_transaction(0), OLD) is ErrorCode.NONE
        coordinator.partitions.clear()
        end(node, epoch=0, version=1, commits=commits)
        assert await produce(node, of_transaction(1), OLD) is ErrorCode.INVALID_TXN_STATE
        assert has_nothing_open(node)
        await node.replicas.lookup("orders", 0).wait_committed(Offset(1))
        assert log_of(node).last_stable_offset == 2


@pytest.mark.parametrize("commits", [True, False])
async def test_a_late_batch_of_the_new_protocol_is_fenced(tmp_path: Path, commits: bool) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        assert await produce(node, of_transaction(0)) is ErrorCode.NONE
        end(node, epoch=1, version=2, commits=commits)
        assert await produce(node, of_transaction(1)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert has_nothing_open(node)
        assert len(coordinator.requests) == 1
        assert await produce(node, of_transaction(0, epoch=1)) is ErrorCode.NONE


async def test_a_batch_whose_transaction_ends_while_it_is_verified_is_refused(
    tmp_path: Path,
) -> None:
    """The coordinator agreed, then aborted; the marker was faster than the response."""
    async with running(tmp_path) as node:
        coordinator = start(node)
        coordinator.add("t", ("orders", 0))
        coordinator.hold()
        late = asyncio.ensure_future(produce(node, of_transaction(0), OLD))
        await coordinator.is_requested()
        end(node, epoch=0, version=1, commits=False)
        coordinator.release()
        assert await late is ErrorCode.INVALID_TXN_STATE
        assert has_nothing_open(node)
        assert log_of(node).log_end_offset == 1, "the marker alone"


async def test_the_next_transaction_may_be_verified_before_the_marker_of_the_last(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        assert await produce(node, of_transaction(0)) is ErrorCode.NONE
        coordinator.hold()
        early = asyncio.ensure_future(produce(node, of_transaction(0, b"b", epoch=1)))
        await coordinator.is_requested()
        await coordinator.is_requested()
        end(node, epoch=1, version=2)
        coordinator.release()
        assert await early is ErrorCode.NONE
        assert log_of(node).producers.has_open_transaction(PID, ProducerEpoch(1))


async def test_a_partition_that_moved_while_it_was_verified_takes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        coordinator.hold()
        late = asyncio.ensure_future(produce(node, of_transaction(0)))
        await coordinator.is_requested()
        node.change_partition(leader=2)
        coordinator.release()
        assert await late is ErrorCode.NOT_LEADER_OR_FOLLOWER


# Sequences


async def test_a_retry_inside_a_transaction_is_answered_with_the_old_offset(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        start(node)
        for sequence in (0, 1, 2, 1, 0):
            response = await answered(node, asking((0, of_transaction(sequence))), ADDING)
            assert response is not None
            (answer,) = response.responses[0].partition_responses
            assert (answer.error_code, answer.base_offset) == (0, sequence)
        assert log_of(node).log_end_offset == 3


async def test_a_gap_inside_a_transaction_is_out_of_order(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        start(node)
        assert await produce(node, of_transaction(0)) is ErrorCode.NONE
        assert await produce(node, of_transaction(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await produce(node, of_transaction(1)) is ErrorCode.NONE


async def test_an_unverified_batch_is_not_overtaken_by_the_next(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        coordinator.add("t", ("orders", 0))
        coordinator.codes = [ErrorCode.NOT_COORDINATOR]
        assert await produce(node, of_transaction(0), OLD) is ErrorCode.NOT_ENOUGH_REPLICAS
        later = await produce(node, of_transaction(1), OLD)
        assert later is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for sequence in range(2):
            assert await produce(node, of_transaction(sequence), OLD) is ErrorCode.NONE


async def test_a_plain_batch_inside_its_producers_transaction_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        start(node)
        assert await produce(node, of_transaction(0)) is ErrorCode.NONE
        plain = batch(b"a", producer_id=PID, producer_epoch=0, base_sequence=1)
        assert await produce(node, plain) is ErrorCode.INVALID_TXN_STATE


async def test_an_old_epoch_is_refused_before_verification(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        assert await produce(node, of_transaction(0, epoch=3)) is ErrorCode.NONE
        late = await produce(node, of_transaction(0, epoch=2))
        assert late is ErrorCode.INVALID_PRODUCER_EPOCH
        assert len(coordinator.requests) == 1


# Every kind of batch


@pytest.mark.parametrize("compression", list(Compression), ids=lambda codec: codec.name)
@pytest.mark.parametrize("size", [100, 200_000], ids=["light", "heavy"])
async def test_batches_of_every_codec_open_a_transaction(
    tmp_path: Path, compression: Compression, size: int
) -> None:
    async with running(tmp_path) as node:
        start(node)
        value = bytes(n * n % 251 for n in range(size))
        for sequence in range(2):
            records = of_transaction(sequence, value, compression=compression)
            assert await produce(node, records) is ErrorCode.NONE
        end(node, epoch=1, version=2)
        partition = node.replicas.lookup("orders", 0)
        await partition.wait_committed(Offset(partition.log.log_end_offset - 1))
        found = partition.log.read(Offset(0), 1 << 22, isolation=Isolation.COMMITTED)
        assert values_of(found.records)[:2] == [value, value]


async def test_a_batch_that_expands_a_lot_is_checked_in_a_thread(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", configs={"max.message.bytes": str(4 << 20)})
        coordinated(node)
        records = of_transaction(0, bytes(3 << 20), compression=Compression.GZIP)
        assert len(records) < 64 << 10
        assert await produce(node, records) is ErrorCode.NONE


async def test_a_bad_batch_is_refused_after_it_was_agreed_to(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        start(node)
        damaged = of_transaction(0)
        damaged[-1] ^= 1
        assert await produce(node, damaged) is ErrorCode.CORRUPT_MESSAGE
        assert await produce(node, of_transaction(0)[:40]) is ErrorCode.INVALID_RECORD
        assert await produce(node, of_transaction(0)) is ErrorCode.NONE


# The setting


async def test_verification_can_be_switched_off_while_the_node_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        coordinator = start(node)
        assert await produce(node, of_transaction(0), ABORTABLE) is ErrorCode.TRANSACTION_ABORTABLE
        sent = len(coordinator.requests)
        node.switch(VERIFICATION, on=False)
        assert await produce(node, of_transaction(0), ABORTABLE) is ErrorCode.NONE
        assert len(coordinator.requests) == sent
        end(node, epoch=0, version=1)
        node.switch(VERIFICATION, on=True)
        assert await produce(node, of_transaction(1), ABORTABLE) is ErrorCode.TRANSACTION_ABORTABLE
