"""Exactly-once writing to topics, for `foreachBatch`, on any Kafka with transactions. Decisions are
in core/spark/exactly_once.py, instructions in docs/how-to/spark.md.
"""

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as sql

from moldau.client.admin.groups import Committed
from moldau.core.spark.errors import FencedRunError, OptionError
from moldau.core.spark.exactly_once import (
    BatchMarker,
    BatchVerdict,
    digest_of,
    verdict_on,
    write_marker,
)
from moldau.core.spark.options import sink_options
from moldau.spark.runtime.recognised_errors import is_raised
from moldau.spark.runtime.task_errors import first_line, is_repeatable
from moldau.spark.sink.checkpoint_files import (
    is_spark_connect,
    offset_lines,
    query_id_of,
    source_offsets,
)
from moldau.spark.sink.driver_transaction import DriverTransaction, TransactionTicket
from moldau.spark.sink.task_writer import (
    ENCODED_SCHEMA,
    ORDER,
    WRITTEN_SCHEMA,
    RowEncoder,
    TransactionWriter,
)
from moldau.spark.sink.writer import WRITTEN_COLUMNS, checked_producer_config
from moldau.spark.source.schema import check_rows
from moldau.types import TopicPartition

_log = logging.getLogger(__name__)

ATTEMPTS_MAX = 3
"""Attempts to write a batch before the query fails."""
_PIECES_MAX = 1024
# Long enough for a slow batch; the next run aborts a transaction that a crash leaves open.
_TIMEOUT_MS_DEFAULT = "900000"


class ExactlyOnceSink:
    """Writes each micro-batch to topics exactly once, for `foreachBatch` of a streaming query.

    A batch is one transaction, which also commits the query's progress to a consumer group. A
    second run with the same name fences the first.

    Args:
        name: A name that only this job uses. It becomes the transactional id.
        checkpoint: The query's `checkpointLocation`.
        options: The options of `format("moldau")`, such as `topic` and `kafka.bootstrap.servers`.
        group: The consumer group for the query's progress (default: `name`).

    Raises:
        OptionError: An option is missing, unknown or invalid.

    Example:
        ```python
        options = {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders.big"}
        sink = ExactlyOnceSink("orders.big", checkpoint, options)
        rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()
        ```
    """

    def __init__(
        self, name: str, checkpoint: str, options: Mapping[str, str], *, group: str | None = None
    ) -> None:
        self.name = name
        self.group = group or name
        self.checkpoint = checkpoint.rstrip("/")
        parsed = sink_options(options)
        self._topic = parsed.topic
        self._settings = {"transaction.timeout.ms": _TIMEOUT_MS_DEFAULT, **parsed.settings}
        checked_producer_config({**self._settings, "transactional.id": name})
        self._transaction: DriverTransaction | None = None
        self._markers: list[str] = []

    def __getstate__(self) -> dict[str, Any]:
        """Spark Connect sends the sink to the server, whose process opens its own transaction."""
        return self.__dict__ | {"_transaction": None, "_markers": []}

    def prepare(self) -> None:
        """Fences older runs and aborts the transaction that they left open.

        The first batch does it automatically. Call it to see its errors before the query starts.

        Raises:
            MoldauError: The brokers are unreachable or refuse the transactional id.
        """
        if self._transaction is None:
            self._transaction = DriverTransaction(self._settings, self.name)
            # Older runs are fenced now, and cannot commit anything after this read. They may have
            # committed their progress to a group with the job's name.
            self._markers = [
                committed.metadata
                for group in {self.group, self.name}
                for committed in self._transaction.committed(group).values()
            ]

    def close(self) -> None:
        """Closes the producer. A second call has no effect."""
        if self._transaction is not None:
            self._transaction.close()
            self._transaction = None

    def __call__(self, rows: Any, batch_id: int) -> None:
        """Writes a micro-batch; Spark calls it.

        Args:
            rows: The batch: a data frame with the columns of `format("moldau")`.
            batch_id: Spark's number of the batch.

        Raises:
            FencedRunError: Another run with the same name has taken over.
            StaleCheckpointError: The checkpoint is older than the committed progress.
        """
        session = rows.sparkSession
        _refuse_speculation(session)
        check_rows(rows.schema, self._topic)
        lines = offset_lines(session, self.checkpoint, batch_id)
        query_id = query_id_of(session, self.checkpoint)
        self.prepare()
        marker = BatchMarker(query_id, batch_id, digest_of(lines))
        if verdict_on(self._markers, marker, self.name) is BatchVerdict.SKIP:
            _log.info("'%s': batch %s is committed already", self.name, batch_id)
            # The state of stateful steps is not committed yet: run them without writing.
            rows.write.format("noop").mode("overwrite").save()
            return
        try:
            self._write_until_done(rows, marker, source_offsets(lines))
        except BaseException:
            # The result of the last request may be unknown: the next batch reads the progress.
            self.close()
            raise

    def _write_until_done(
        self, rows: Any, marker: BatchMarker, offsets: Mapping[TopicPartition, int]
    ) -> None:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            assert self._transaction is not None
            ticket = self._transaction.begin()
            try:
                written = self._write(rows, ticket)
            except Exception as error:
                # Raises FencedRunError if another run has taken over: then there is no retry.
                self._transaction.abort()
                is_last = attempt == ATTEMPTS_MAX or is_repeatable(error)
                if is_last or is_raised(FencedRunError, error):
                    raise
                _log.warning(
                    "'%s': retrying batch %s: %s",
                    self.name,
                    marker.batch_id,
                    first_line(error),
                )
                continue
            self._commit(marker, offsets, written)
            return

    def _write(self, rows: Any, ticket: TransactionTicket) -> list[Any]:
        names = [name for name in (*WRITTEN_COLUMNS, "topic") if name in rows.columns]
        session = rows.sparkSession
        tasks = int(session.conf.get("spark.sql.shuffle.partitions"))
        tasks = min(tasks, max(_parallelism(session), 1))
        encoded = rows.select(names).mapInArrow(RowEncoder(ticket, self._topic), ENCODED_SCHEMA)
        # Each partition goes to one task, and a topic's partitions spread evenly over all tasks.
        task = sql.expr(f"cast(pmod(hash(topic) + partition, {tasks}) as int)")
        shuffled = encoded.repartitionById(tasks, task).sortWithinPartitions(*ORDER)
        written: list[Any] = shuffled.mapInArrow(self._task(ticket), WRITTEN_SCHEMA).collect()
        return written

    def _task(self, ticket: TransactionTicket) -> TransactionWriter:
        """The function that writes the rows of several partitions in a task."""
        return TransactionWriter(ticket)

    def _commit(
        self, marker: BatchMarker, offsets: Mapping[TopicPartition, int], written: list[Any]
    ) -> None:
        assert self._transaction is not None
        text = write_marker(marker)
        progress = {
            partition: Committed(offset, metadata=text) for partition, offset in offsets.items()
        }
        if not progress and (partition := self._marker_partition(written)) is not None:
            # If no source is a topic, the marker is committed for a partition of the target.
            progress = {partition: Committed(marker.batch_id + 1, metadata=text)}
        if not progress:
            self._transaction.abort()
            return
        self._transaction.commit(progress, self.group)
        self._markers = [text]

    def _marker_partition(self, written: list[Any]) -> TopicPartition | None:
        if self._topic is not None:
            return TopicPartition(self._topic, 0)
        return TopicPartition(written[0]["topic"], 0) if written else None


def _refuse_speculation(session: Any) -> None:
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise OptionError(
            "spark.speculation is on: two tasks would write the same partition; turn it off"
        )


def _parallelism(session: Any) -> int:
    """The number of tasks that run at once."""
    if not is_spark_connect(session):
        return int(session.sparkContext.defaultParallelism)
    # Spark Connect does not report it, but cuts a range into as many pieces.
    pieces = session.range(_PIECES_MAX).select(sql.spark_partition_id().alias("piece"))
    return int(pieces.agg(sql.max("piece")).first()[0]) + 1
