"""The tasks' side of exactly-once writing. First, rows are encoded as batches of their target
partitions, so that a few large rows are shuffled instead of many small ones. Then one task per
partition writes its batches in the driver's transaction.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pyspark import TaskContext

from moldau.client.admin.offsets import LATEST, list_offsets
from moldau.client.cluster.metadata import Topic
from moldau.client.errors import ClientError
from moldau.client.producer.tables import BATCH_BYTES, partition_numbers
from moldau.core.producer.batching import Batch, Delivery
from moldau.core.producer.partition_queue import ProducerIdentity
from moldau.core.spark.errors import OptionError
from moldau.protocol.errors import MoldauError
from moldau.protocol.records.arrow import source_columns
from moldau.protocol.records.batches import BATCH_HEADER_SIZE
from moldau.protocol.records.record_loops import encode_columns
from moldau.spark.runtime.worker_process import freeze_garbage
from moldau.spark.sink.driver_transaction import OpenProducer, TransactionTicket, as_fenced
from moldau.spark.sink.writer import by_topic
from moldau.types import NO_OFFSET, TopicPartition

ENCODED_SCHEMA = (
    "topic string, partition int, task int, number int, body binary, "
    "rows int, base_time bigint, max_time bigint"
)
ORDER = ("topic", "partition", "task", "number")
WRITTEN_SCHEMA = "topic string, partition int, rows bigint, first_offset bigint"
# Rows are encoded in pieces of this size: large batches for each partition in little memory.
_PIECE_BYTES = 8 << 20
_shared: dict[tuple[Any, ...], OpenProducer] = {}
_KEPT_MAX = 4


def producer_of(ticket: TransactionTicket) -> OpenProducer:
    """The producer that the tasks of this process share."""
    key = (ticket.transactional_id, *sorted(ticket.settings.items()))
    producer = _shared.pop(key, None)
    if producer is None or not producer.thread.is_usable:
        while len(_shared) >= _KEPT_MAX:
            _shared.pop(next(iter(_shared))).close()
        producer = OpenProducer(ticket.settings, ticket.transactional_id)
    _shared[key] = producer
    return producer


def discard(ticket: TransactionTicket) -> None:
    """Closes the producer after an error, so that requests in flight end with it."""
    key = (ticket.transactional_id, *sorted(ticket.settings.items()))
    if (producer := _shared.pop(key, None)) is not None:
        producer.close()


class RowEncoder:
    """The function of the first `mapInArrow`: encodes rows."""

    def __init__(self, ticket: TransactionTicket, topic: str | None) -> None:
        self._ticket = ticket
        self._topic = topic

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        self._producer = producer_of(self._ticket)
        context = TaskContext.get()
        self._task = 0 if context is None else context.partitionId()
        self._number = 0
        for piece in _pieces(batches):
            rows = [
                row
                for topic, part in by_topic(piece, self._topic)
                for row in self._encoded(topic, part)
            ]
            columns = list(zip(*rows, strict=True)) or [()] * len(_ENCODED)
            arrays = [
                pa.array(column, kind()) for column, kind in zip(columns, _kinds(pa), strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(_ENCODED))
        freeze_garbage()

    def _encoded(self, name: str, rows: Any) -> Iterator[tuple[Any, ...]]:
        producer = self._producer
        topic: Topic = producer.thread.run(producer.engine.topic(name))
        bytes_max = min(BATCH_BYTES, producer.session.options.rules.request_bytes_max - 1024)
        now_ms = producer.session.opened.cluster.clock.wall_ms()
        for number, part in _by_partition(rows, topic, self._task + self._number):
            columns = source_columns(part, now_ms)
            row = 0
            while row < columns.rows:
                encoded = encode_columns(
                    columns, row, now_ms, bytes_max - BATCH_HEADER_SIZE, BATCH_HEADER_SIZE
                )
                self._check(name, encoded.body)
                yield (
                    name, number, self._task, self._number, encoded.body,
                    encoded.rows, encoded.base_timestamp, encoded.max_timestamp,
                )  # fmt: skip
                row += encoded.rows
                self._number += 1

    def _check(self, name: str, body: bytearray) -> None:
        bytes_max = self._producer.session.options.rules.request_bytes_max
        if len(body) > bytes_max + BATCH_HEADER_SIZE:
            raise ClientError(
                f"topic '{name}': a row of {len(body)} bytes; kafka.max.request.size is {bytes_max}"
            )


_ENCODED = ("topic", "partition", "task", "number", "body", "rows", "base_time", "max_time")


def _kinds(pa: Any) -> list[Any]:
    return [pa.string, pa.int32, pa.int32, pa.int32, pa.binary, pa.int32, pa.int64, pa.int64]


def _pieces(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    held: list[Any] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size_bytes += batch.nbytes
        if size_bytes >= _PIECE_BYTES:
            yield pa.concat_batches(held)
            held, size_bytes = [], 0
    if held:
        yield pa.concat_batches(held)


def _by_partition(rows: Any, topic: Topic, turn: int) -> Iterator[tuple[int, Any]]:
    """Rows by partition. Rows without a partition or key go to one that depends only on `turn`, so
    that a task that runs again chooses the same one.
    """
    import pyarrow.compute as pc

    count = len(topic.partitions)
    chosen = partition_numbers(rows, topic, hashes_keys=True) if count > 1 else None
    if chosen is None:
        yield turn % count, rows
        return
    order = pc.array_sort_indices(chosen)
    sorted_rows = rows.take(order)
    start = 0
    for entry in pc.value_counts(chosen.take(order)):
        number, size = entry["values"].as_py(), entry["counts"].as_py()
        yield turn % count if number < 0 else number, sorted_rows.slice(start, size)
        start += size


class _Target(NamedTuple):
    end_before: int
    batches: list[Batch]


class TransactionWriter:
    """The function of the second `mapInArrow`: writes batches. All batches of a partition come to
    one task, in order.
    """

    def __init__(self, ticket: TransactionTicket) -> None:
        self._ticket = ticket

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            # It would use the sequence numbers of the first attempt, whose rows may be written.
            raise ClientError("a task failed; the whole batch is retried")
        try:
            written = self._write(batches)
        except MoldauError as error:
            discard(self._ticket)
            raise as_fenced(error, self._ticket.transactional_id) from error
        except BaseException:
            discard(self._ticket)
            raise
        yield pa.RecordBatch.from_pylist(
            written,
            schema=pa.schema(
                [("topic", pa.string()), ("partition", pa.int32()), ("rows", pa.int64()),
                 ("first_offset", pa.int64())]
            ),
        )  # fmt: skip
        freeze_garbage()

    def _write(self, batches: Iterable[Any]) -> list[dict[str, Any]]:
        producer = None
        targets: dict[TopicPartition, _Target] = {}
        for rows in batches:
            if rows.num_rows and producer is None:
                producer = producer_of(self._ticket)
                self._adopt(producer)
            for partition, batch in _read_encoded(rows):
                assert producer is not None
                self._send(producer, targets, partition, batch)
        if producer is None:
            return []
        producer.thread.run(producer.engine.flush())
        written = [self._written_row(partition, target) for partition, target in targets.items()]
        producer.session.transactions.release()
        return written

    def _adopt(self, producer: OpenProducer) -> None:
        identity = ProducerIdentity(self._ticket.producer_id, self._ticket.epoch)
        if producer.identity != identity:
            producer.identity = identity
            producer.partitions.clear()
        producer.thread.run(producer.session.transactions.adopt(identity))

    def _send(
        self,
        producer: OpenProducer,
        targets: dict[TopicPartition, _Target],
        partition: TopicPartition,
        batch: Batch,
    ) -> None:
        cluster = producer.engine.cluster
        if partition not in targets:
            if partition in producer.partitions:
                raise _written_twice(partition)
            producer.partitions.add(partition)
            ends = producer.thread.run(list_offsets(cluster, {partition: int(LATEST)}))
            targets[partition] = _Target(ends[partition].offset, [])
            producer.thread.run(producer.engine.topic(partition.topic))
        targets[partition].batches.append(batch)
        producer.thread.run(producer.engine.enqueue(batch))

    def _written_row(self, partition: TopicPartition, target: _Target) -> dict[str, Any]:
        first: int = NO_OFFSET
        for batch in target.batches:
            delivery = Delivery(batch, 0, 0)
            if (error := delivery.exception()) is not None:
                raise error
            offset = delivery.result().offset
            if offset < target.end_before:
                # The broker reports a duplicate: another task writes with our sequence numbers.
                raise _written_twice(partition)
            first = offset if first == NO_OFFSET else first
        rows = sum(batch.count for batch in target.batches)
        return {"topic": partition.topic, "partition": partition.partition, "rows": rows,
                "first_offset": first}  # fmt: skip


def _read_encoded(rows: Any) -> Iterator[tuple[TopicPartition, Batch]]:
    """Batches encoded by `RowEncoder`. A body is copied once, because its header is filled in
    later.
    """
    rows_without_body = rows.drop_columns(["body"]).to_pylist()
    for row, body in zip(rows_without_body, rows.column("body"), strict=True):
        partition = TopicPartition(row["topic"], row["partition"])
        counts = row["rows"], row["base_time"], row["max_time"]
        yield partition, Batch.of_rows(*partition, bytearray(body.as_buffer()), counts)


def _written_twice(partition: TopicPartition) -> OptionError:
    return OptionError(
        f"{partition}: another task wrote in the same transaction; spark.speculation must be off"
    )
