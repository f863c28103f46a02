"""Produce: what is accepted, what is refused and how, and when it is answered."""

import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.data_node import DataNode, batch, running, topic_id, values_of
from crc32c import crc32c

from moldau.broker.handlers.produce import HEAVY_BYTES, handle_produce
from moldau.broker.server.context import Staged
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.log_records import RegisterBrokerRecord
from moldau.protocol.log_records.register_broker_record import BrokerEndpoint
from moldau.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.protocol.records.batch_builder import recompress
from moldau.protocol.records.batches import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    RecordBatch,
    iterate_batches,
)
from moldau.protocol.records.compression import Compression
from moldau.types import Offset

NEWEST = 12
OFFSETS = "__consumer_offsets"
WITH_TOPIC_IDS = 13


def request(
    records: Any, *, topic: str = "orders", index: int = 0, **fields: Any
) -> ProduceRequest:
    fields = {"acks": -1, "timeout_ms": 10_000} | fields
    return ProduceRequest(
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=index, records=records)]
            )
        ],
        **fields,
    )


async def produce(
    node: DataNode, requested: ProduceRequest, version: int = NEWEST
) -> PartitionProduceResponse:
    """The answer for the first partition."""
    outcome: Any = handle_produce(node.context(requested, version), requested)
    if isinstance(outcome, Awaitable):
        outcome = await outcome
    response = await outcome.answer if isinstance(outcome, Staged) else outcome
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


async def test_acks_all_is_answered_when_the_records_are_flushed(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        requested = request(batch(b"a", b"b"))
        outcome = handle_produce(node.context(requested, NEWEST), requested)
        assert isinstance(outcome, Staged)
        log = node.replicas.lookup("orders", 0).log
        assert log.log_end_offset == 2, "stage one has appended"
        assert log.high_watermark == 0
        response = await outcome.answer
        assert log.flushed_offset == 2
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 0, 0)
        assert answer.log_append_time_ms == -1
        assert values_of(log.read(Offset(0), 10_000).records) == [b"a", b"b"]


async def test_acks_1_is_answered_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        requested = request(batch(b"a"), acks=1)
        assert isinstance(handle_produce(node.context(requested, 9), requested), ProduceResponse)


async def test_acks_0_gets_no_answer_and_an_error_ends_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        requested = request(batch(b"a"), acks=0)
        assert handle_produce(node.context(requested, 9), requested) is None
        requested = request(batch(b"a"), acks=0, topic="missing")
        with pytest.raises(MalformedRequestError, match="acks=0"):
            handle_produce(node.context(requested, 9), requested)


async def test_batches_of_pipelined_requests_keep_their_order(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        waiting = []
        for number in range(5):
            requested = request(
                batch(b"%d" % number, producer_id=7, producer_epoch=0, base_sequence=number)
            )
            waiting.append(handle_produce(node.context(requested, 9), requested))
        offsets = []
        for outcome in waiting:
            assert isinstance(outcome, Staged)
            response = await outcome.answer
            assert isinstance(response, ProduceResponse)
            offsets.append(response.responses[0].partition_responses[0].base_offset)
        assert offsets == [0, 1, 2, 3, 4]


async def test_a_retried_batch_is_answered_with_its_first_offset(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")

        def numbered(sequence: int) -> ProduceRequest:
            return request(batch(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence))

        for sequence in range(3):
            await produce(node, numbered(sequence))
        answer = await produce(node, numbered(1))
        assert (answer.error_code, answer.base_offset) == (0, 1)
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 3
        gap = await produce(node, numbered(5))
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        fenced = await produce(
            node, request(batch(b"x", producer_id=7, producer_epoch=1, base_sequence=0))
        )
        assert fenced.error_code == 0
        old = await produce(node, numbered(3))
        assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_topics_may_be_named_by_their_ids(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        known = node.create_topic("orders")
        for wanted, code in [(known, 0), (topic_id(9), 100), (bytes(16), 100)]:
            requested = request(batch(b"a"), topic="")
            requested.topic_data[0].topic_id = wanted  # type: ignore[assignment]
            outcome = handle_produce(node.context(requested, WITH_TOPIC_IDS), requested)
            response = await outcome.answer if isinstance(outcome, Staged) else outcome
            assert isinstance(response, ProduceResponse)
            assert response.responses[0].topic_id == wanted
            assert response.responses[0].partition_responses[0].error_code == code


async def test_append_time_is_returned(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
        before_ms = node.clock.wall_ms()
        answer = await produce(node, request(batch(b"a", timestamp_ms=5)))
        assert before_ms <= answer.log_append_time_ms <= node.clock.wall_ms()
        stored = next(
            iterate_batches(node.replicas.lookup("orders", 0).log.read(Offset(0), 999).records)
        )
        assert stored.max_timestamp == answer.log_append_time_ms
        assert stored.crc_is_valid()


async def test_an_append_that_is_not_committed_in_time_times_out(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", replicas=(1, 2))
        requested = request(batch(b"a"), timeout_ms=1_000)
        outcome = handle_produce(node.context(requested, 9), requested)
        assert isinstance(outcome, Staged)
        node.clock.advance(1_500)
        response = await outcome.answer
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert answer.base_offset == 0


async def test_too_few_replicas_in_sync_refuse_acks_all(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", replicas=(1, 2), configs={"min.insync.replicas": "2"})
        node.change_partition(isr=[1])
        answer = await produce(node, request(batch(b"a")))
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 0
        assert (await produce(node, request(batch(b"a"), acks=1))).error_code == 0


async def test_a_broker_that_is_not_the_leader_names_the_leader(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.commit(
            RegisterBrokerRecord(
                broker_id=2, broker_epoch=1, fenced=False, rack="b",
                end_points=[BrokerEndpoint(name="PLAINTEXT", host="two", port=9092)],
            )
        )  # fmt: skip
        node.create_topic("orders", replicas=(2, 1))
        requested = request(batch(b"a"))
        response = handle_produce(node.context(requested, 10), requested)
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)
        endpoint = response.node_endpoints[0]
        assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (
            2,
            "two",
            9092,
            "b",
        )
        requested = request(batch(b"a"))
        older = handle_produce(node.context(requested, 9), requested)
        assert isinstance(older, ProduceResponse)
        assert older.node_endpoints == []


async def test_a_partition_named_twice_is_refused_and_the_others_are_not(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", partitions=2)
        requested = request(batch(b"a"))
        requested.topic_data.append(
            TopicProduceData(
                name="orders",
                partition_data=[
                    PartitionProduceData(index=0, records=batch(b"b")),
                    PartitionProduceData(index=1, records=batch(b"c")),
                ],
            )
        )
        outcome = handle_produce(node.context(requested, 9), requested)
        assert isinstance(outcome, Staged)
        response = await outcome.answer
        assert isinstance(response, ProduceResponse)
        codes = [p.error_code for topic in response.responses for p in topic.partition_responses]
        assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 0


def patched(position: int, form: str, value: int) -> Callable[[], bytearray]:
    """A batch with one field changed and a valid checksum."""

    def make() -> bytearray:
        made = batch(b"a", b"b")
        struct.pack_into(form, made, position, value)
        struct.pack_into(">I", made, CRC_OFFSET, crc32c(bytes(made[ATTRIBUTES_OFFSET:])))
        return made

    return make


def odd_null(position: int) -> Callable[[], bytearray]:
    """A record of nulls, of which one has the length -5 instead of -1."""

    def make() -> bytearray:
        made = batch(None, key=None)
        assert made[position] == 1
        made[position] = 9
        struct.pack_into(">I", made, CRC_OFFSET, crc32c(bytes(made[ATTRIBUTES_OFFSET:])))
        return made

    return make


def wrong_crc() -> bytearray:
    made = batch(b"a")
    made[-1] ^= 1
    return made


def compressed_garbage() -> bytearray:
    made = batch(b"a" * 100, compression=Compression.GZIP)
    made[61:] = b"\x00" * (len(made) - 61)
    struct.pack_into(">I", made, CRC_OFFSET, crc32c(bytes(made[ATTRIBUTES_OFFSET:])))
    return made


CASES: dict[str, tuple[Callable[[], Any], ErrorCode]] = {
    "79 null": (lambda: None, ErrorCode.INVALID_RECORD),
    "79 empty": (lambda: b"", ErrorCode.INVALID_RECORD),
    "80 two batches": (lambda: batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
    "81 magic 0": (patched(16, ">b", 0), ErrorCode.INVALID_RECORD),
    "81 magic 1": (patched(16, ">b", 1), ErrorCode.INVALID_RECORD),
    "81 magic 3": (patched(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "81 magic -1": (patched(16, ">b", -1), ErrorCode.CORRUPT_MESSAGE),
    "82 tiny length": (patched(8, ">i", 13), ErrorCode.CORRUPT_MESSAGE),
    "83 length beyond": (patched(8, ">i", 10_000), ErrorCode.INVALID_RECORD),
    "83 partial batch after": (lambda: batch(b"a") + b"\x00" * 20, ErrorCode.INVALID_RECORD),
    "84 checksum": (wrong_crc, ErrorCode.CORRUPT_MESSAGE),
    "85 too large": (lambda: batch(b"x" * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
    "86 base offset": (patched(0, ">q", 4), ErrorCode.INVALID_RECORD),
    "87 count 0": (patched(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "87 count and delta": (patched(57, ">i", 3), ErrorCode.INVALID_RECORD),
    "87 negative delta": (patched(23, ">i", -1), ErrorCode.INVALID_RECORD),
    "88 record length": (patched(61, ">b", 100), ErrorCode.INVALID_RECORD),
    "89 control": (patched(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "90 no sequence": (lambda: batch(b"a", producer_id=3), ErrorCode.INVALID_RECORD),
    "91 codec 5": (patched(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "93 garbage": (compressed_garbage, ErrorCode.CORRUPT_MESSAGE),
    "95 far future": (lambda: batch(b"a", timestamp_ms=2**52), ErrorCode.INVALID_TIMESTAMP),
    "96 negative time": (lambda: batch(b"a", timestamp_ms=-5), ErrorCode.INVALID_TIMESTAMP),
    "key below null": (odd_null(65), ErrorCode.INVALID_RECORD),
    "value below null": (odd_null(66), ErrorCode.INVALID_RECORD),
    "compressed, key below null": (
        lambda: bytearray(recompress(RecordBatch(odd_null(65)()), Compression.GZIP)),
        ErrorCode.INVALID_RECORD,
    ),
    "97 append time": (patched(21, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_bad_records_are_refused_and_nothing_is_appended(name: str, tmp_path: Path) -> None:
    make, code = CASES[name]
    async with running(tmp_path) as node:
        node.create_topic("orders")
        answer = await produce(node, request(make()))
        assert answer.error_code == code
        assert answer.base_offset == -1
        # Apache gives a reason only for records.
        assert bool(answer.error_message) is bool(answer.record_errors)
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 0
        assert (await produce(node, request(batch(b"good")))).error_code == 0


MESSAGES = {
    ErrorCode.NOT_ENOUGH_REPLICAS: "Unable to verify the partition has been added to the "
    "transaction. Underlying error: COORDINATOR_NOT_AVAILABLE",
}


async def test_bad_requests_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        node.create_topic(OFFSETS, number=2)
        transactional = batch(
            b"a", producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        zstd = batch(b"a" * 50, compression=Compression.ZSTD)
        for requested, version, code in [
            (request(batch(b"a"), acks=2), 9, ErrorCode.INVALID_REQUIRED_ACKS),
            (request(batch(b"a"), acks=-2), 9, ErrorCode.INVALID_REQUIRED_ACKS),
            (request(batch(b"a"), topic="nope"), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (request(batch(b"a"), index=-1), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (request(batch(b"a"), index=10**6), 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (request(batch(b"a"), topic=OFFSETS), 9, ErrorCode.INVALID_TOPIC_EXCEPTION),
            (request(zstd), 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            (request(transactional), 9, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (request(transactional, transactional_id="t"), 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        ]:  # fmt: skip
            answer = await produce(node, requested, version)
            assert answer.error_code == code
            assert answer.error_message == MESSAGES.get(code)
            assert answer.log_start_offset == -1
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 0
        assert (await produce(node, request(zstd), 7)).error_code == 0


async def test_compacted_topics_name_the_records_without_keys(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", configs={"cleanup.policy": "compact"})
        answer = await produce(node, request(batch(b"a", b"b", key=None)))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        text = "Compacted topic cannot accept message without key in topic partition orders-0"
        found = [
            (each.batch_index, each.batch_index_error_message) for each in answer.record_errors
        ]
        assert found == [(0, text), (1, text)]
        shown = ", ".join(f"RecordError(batchIndex={place}, message='{text}')" for place in (0, 1))
        assert answer.error_message == (
            "One or more records have been rejected due to 2 record errors in total, and only "
            f"showing the first three errors at most: [{shown}]"
        )
        assert answer.log_start_offset == 0


async def test_timestamps_out_of_range_are_named_with_the_range(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", configs={"message.timestamp.before.max.ms": "1000"})
        asked_ms = node.clock.wall_ms()
        answer = await produce(node, request(batch(b"a", timestamp_ms=asked_ms - 1001)))
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert answer.error_message == (
            "One or more records have been rejected due to invalid timestamp"
        )
        (error,) = answer.record_errors
        # The node read its clock later.
        possible = [
            f"Timestamp {asked_ms - 1001} of message with offset 0 is out of range. "
            f"The timestamp should be within [{now_ms - 1000}, {now_ms + 3_600_000}]"
            for now_ms in range(asked_ms, node.clock.wall_ms() + 1)
        ]
        assert error.batch_index_error_message in possible


async def test_sequences_are_refused_without_a_message_and_with_the_log_start(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        first, later = (
            batch(b"a", producer_id=3, producer_epoch=0, base_sequence=sequence)
            for sequence in (0, 7)
        )
        assert (await produce(node, request(first))).error_code == 0
        answer = await produce(node, request(later))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert (answer.error_message, answer.log_start_offset) == (None, 0)


async def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", configs={"internal.segment.bytes": "1000"})
        answer = await produce(node, request(batch(b"x" * 2_000)))
        assert answer.error_code == ErrorCode.RECORD_LIST_TOO_LARGE


async def test_no_topics_no_answers(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        requested = ProduceRequest(acks=-1)
        response = handle_produce(node.context(requested, 9), requested)
        assert isinstance(response, ProduceResponse)
        assert response.responses == []


# Batches that are slow to validate


def noise(count: int) -> list[bytes]:
    return [crc32c(b"%d" % number).to_bytes(4, "big").hex().encode() * 4 for number in range(count)]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD, Compression.LZ4])
async def test_large_compressed_batches_are_checked_in_a_thread(
    codec: Compression, tmp_path: Path
) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        sent = batch(*noise(12_000), compression=codec)
        assert len(sent) > HEAVY_BYTES
        requested = request(memoryview(sent))
        outcome = handle_produce(node.context(requested, NEWEST), requested)
        assert isinstance(outcome, Awaitable), "the next request of the connection waits"
        sent[:] = bytes(len(sent))  # the frame's buffer is used again
        staged = await outcome
        assert isinstance(staged, Staged), "it is in the log: the next request begins"
        response: Any = await staged.answer
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)
        log = node.replicas.lookup("orders", 0).log
        assert values_of(log.read(Offset(0), 1 << 20).records) == noise(12_000)
        damaged = batch(*noise(12_000), compression=codec)
        damaged[-1] ^= 1
        refused = await produce(node, request(damaged))
        assert (refused.error_code, refused.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


async def test_a_small_batch_that_expands_far_is_checked_in_a_thread(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders")
        sent = batch(b"0" * (5 << 20), compression=Compression.GZIP)
        assert len(sent) < HEAVY_BYTES
        requested = request(sent)
        outcome = handle_produce(node.context(requested, NEWEST), requested)
        assert isinstance(outcome, Awaitable)
        staged = await outcome
        assert isinstance(staged, Staged)
        response: Any = await staged.answer
        assert response.responses[0].partition_responses[0].error_code == 0
        bomb = batch(b"0" * (65 << 20), compression=Compression.GZIP)
        refused = await produce(node, request(bomb))
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_topics_with_a_codec_of_their_own_store_in_it(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        node.create_topic("orders", configs={"compression.type": "zstd"})
        assert (await produce(node, request(batch(*noise(100))))).error_code == 0
        stored = next(
            iterate_batches(node.replicas.lookup("orders", 0).log.read(Offset(0), 1 << 20).records)
        )
        assert stored.compression is Compression.ZSTD
        assert [record.value for record in stored.records()] == noise(100)
        requested = request(batch(*noise(5_000)))
        outcome = handle_produce(node.context(requested, NEWEST), requested)
        assert isinstance(outcome, Awaitable), "compressing it is left to a thread"
        assert await outcome is not None
        assert node.replicas.lookup("orders", 0).log.log_end_offset == 5_100
