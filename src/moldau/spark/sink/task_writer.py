"""What tasks do for exactly-once. First rows become encoded batches of their target partitions;
these few large rows are shuffled, not the many small ones. Then one task per partition writes them
in the driver's transaction.
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
from moldau.spark.runtime.worker_process import settle
from moldau.spark.sink.driver_transaction import OpenProducer, TransactionTicket, as_fenced
from moldau.spark.sink.writer import by_topic
from moldau.types import NO_OFFSET, TopicPartition

ENCODED_SCHEMA = (
    "topic string, partition int, task int, number int, body binary, "
    "rows int, base_time bigint, max_time bigint"
)
ORDER = ("topic", "partition", "task", "number")
WRITTEN_SCHEMA = "topic string, partition int, rows bigint, first_offset bigint"
# Rows are encoded in pieces of this size: large batches for each partition, little memory.
_PIECE_BYTES = 8 << 20
_shared: dict[tuple[Any, ...], OpenProducer] = {}
_KEPT_MAX = 4


def producer_of(ticket: TransactionTicket) -> OpenProducer:
    """The one of this process."""
    key = (ticket.transactional_id, *sorted(ticket.settings.items()))
    found = _shared.pop(key, None)
    if found is None or not found.thread.is_usable:
        while len(_shared) >= _KEPT_MAX:
            _shared.pop(next(iter(_shared))).close()
        found = OpenProducer(ticket.settings, ticket.transactional_id)
    _shared[key] = found
    return found


def forget(ticket: TransactionTicket) -> None:
    """After an error: whatever was under way must not go on with it."""
    key = (ticket.transactional_id, *sorted(ticket.settings.items()))
    if (found := _shared.pop(key, None)) is not None:
        found.close()


class RowEncoder:
    """The function for the first `mapInArrow`."""

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
                row for topic, part in by_topic(piece, self._topic) for row in self._of(topic, part)
            ]
            columns = list(zip(*rows, strict=True)) or [()] * len(_ENCODED)
            arrays = [
                pa.array(column, kind()) for column, kind in zip(columns, _kinds(pa), strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(_ENCODED))
        settle()

    def _of(self, name: str, rows: Any) -> Iterator[tuple[Any, ...]]:
        producer = self._producer
        topic: Topic = producer.thread.run(producer.engine.topic(name))
        most = min(BATCH_BYTES, producer.face.options.rules.request_bytes_max - 1024)
        now_ms = producer.face.opened.cluster.clock.wall_ms()
        for number, part in _by_partition(rows, topic, self._task + self._number):
            columns = source_columns(part, now_ms)
            row = 0
            while row < columns.rows:
                encoded = encode_columns(
                    columns, row, now_ms, most - BATCH_HEADER_SIZE, BATCH_HEADER_SIZE
                )
                self._check(name, encoded.body)
                yield (
                    name, number, self._task, self._number, encoded.body,
                    encoded.rows, encoded.base_timestamp, encoded.max_timestamp,
                )  # fmt: skip
                row += encoded.rows
                self._number += 1

    def _check(self, name: str, body: bytearray) -> None:
        most = self._producer.face.options.rules.request_bytes_max
        if len(body) > most + BATCH_HEADER_SIZE:
            raise ClientError(
                f"topic '{name}': a row of {len(body)} bytes; kafka.max.request.size is {most}"
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
    """Rows that choose none go together, in turn: the same way if the task runs again."""
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
    """The function for the second `mapInArrow`: all batches of a partition come to one task, in
    order.
    """

    def __init__(self, ticket: TransactionTicket) -> None:
        self._ticket = ticket

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            # Its numbers would be those of the first attempt, whose rows may be there already.
            raise ClientError("a task failed; the whole batch is written again")
        try:
            written = self._write(batches)
        except MoldauError as error:
            forget(self._ticket)
            raise as_fenced(error, self._ticket.transactional_id) from error
        except BaseException:
            forget(self._ticket)
            raise
        yield pa.RecordBatch.from_pylist(
            written,
            schema=pa.schema(
                [("topic", pa.string()), ("partition", pa.int32()), ("rows", pa.int64()),
                 ("first_offset", pa.int64())]
            ),
        )  # fmt: skip
        settle()

    def _write(self, batches: Iterable[Any]) -> list[dict[str, Any]]:
        producer = None
        targets: dict[TopicPartition, _Target] = {}
        for rows in batches:
            if rows.num_rows and producer is None:
                producer = producer_of(self._ticket)
                self._adopt(producer)
            for place, batch in _read_encoded(rows):
                assert producer is not None
                self._file(producer, targets, place, batch)
        if producer is None:
            return []
        producer.thread.run(producer.engine.flush())
        told = [self._told(place, target) for place, target in targets.items()]
        producer.face.transactions.give_back()
        return told

    def _adopt(self, producer: OpenProducer) -> None:
        identity = ProducerIdentity(self._ticket.producer_id, self._ticket.epoch)
        if producer.identity != identity:
            producer.identity = identity
            producer.places.clear()
        producer.thread.run(producer.face.transactions.adopt(identity))

    def _file(
        self,
        producer: OpenProducer,
        targets: dict[TopicPartition, _Target],
        place: TopicPartition,
        batch: Batch,
    ) -> None:
        cluster = producer.engine.cluster
        if place not in targets:
            if place in producer.places:
                raise _written_twice(place)
            producer.places.add(place)
            found = producer.thread.run(list_offsets(cluster, {place: int(LATEST)}))
            targets[place] = _Target(found[place].offset, [])
            producer.thread.run(producer.engine.topic(place.topic))
        targets[place].batches.append(batch)
        producer.thread.run(producer.engine.file(batch))

    def _told(self, place: TopicPartition, target: _Target) -> dict[str, Any]:
        first: int = NO_OFFSET
        for batch in target.batches:
            delivery = Delivery(batch, 0, 0)
            if (error := delivery.exception()) is not None:
                raise error
            offset = delivery.result().offset
            if offset < target.end_before:
                # The broker took it for one that it has: somebody else writes with our numbers.
                raise _written_twice(place)
            first = offset if first == NO_OFFSET else first
        rows = sum(batch.count for batch in target.batches)
        return {"topic": place.topic, "partition": place.partition, "rows": rows,
                "first_offset": first}  # fmt: skip


def _read_encoded(rows: Any) -> Iterator[tuple[TopicPartition, Batch]]:
    """Of what `RowEncoder` made; a body is copied once, because its header is filled in later."""
    facts = rows.drop_columns(["body"]).to_pylist()
    for row, body in zip(facts, rows.column("body"), strict=True):
        place = TopicPartition(row["topic"], row["partition"])
        known = row["rows"], row["base_time"], row["max_time"]
        yield place, Batch.of_rows(*place, bytearray(body.as_buffer()), known)


def _written_twice(place: TopicPartition) -> OptionError:
    return OptionError(
        f"{place}: another task wrote in the same transaction; spark.speculation must be off"
    )
