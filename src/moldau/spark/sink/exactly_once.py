"""Exactly-once into topics, on any Kafka with transactions: for `foreachBatch`. See
core/spark/exactly_once.py for what is decided, and docs/how-to/spark.md for how it is used.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as sql

from moldau.client.admin.groups import Committed
from moldau.core.spark.errors import FencedRunError, OptionError
from moldau.core.spark.exactly_once import Marker, Verdict, digest_of, judge, write_marker
from moldau.core.spark.offset_json import read_query_offsets
from moldau.core.spark.options import QUERY_ID_PROPERTY, sink_options
from moldau.spark.runtime.task_errors import comes_again, first_line
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
"""So often a batch is written before the query fails."""
_PIECES_MAX = 1024
# Long enough for a slow batch; what is left open after a crash is aborted when the job comes back.
_TIMEOUT_MS_DEFAULT = "900000"


class ExactlyOnceSink:
    """Writes each micro-batch in one transaction, together with the query's progress.

        sink = ExactlyOnceSink("orders.big", checkpoint, options)
        rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()

    `name` is the job's own: its transactional id, and the `group` that shows its progress, unless
    that has another name. A second run with the same name takes over from the first. `options` are
    those of `format("moldau")`.
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
        """Spark Connect sends it to the server, whose process makes a transaction of its own."""
        return self.__dict__ | {"_transaction": None, "_markers": []}

    def prepare(self) -> None:
        """Fences every older run and aborts what it left open. The first batch does it if nobody
        did.
        """
        if self._transaction is None:
            self._transaction = DriverTransaction(self._settings, self.name)
            # Behind the fence: nobody can commit anything more under this name.
            # Runs before this one may have written down their batches under the job's own name.
            self._markers = [
                one.metadata
                for group in {self.group, self.name}
                for one in self._transaction.committed(group).values()
            ]

    def close(self) -> None:
        """Ends the producer; closing twice is fine."""
        if self._transaction is not None:
            self._transaction.close()
            self._transaction = None

    def __call__(self, rows: Any, batch_id: int) -> None:
        session = rows.sparkSession
        _refuse_speculation(session)
        check_rows(rows.schema, self._topic)
        lines = offset_lines(session, self.checkpoint, batch_id)
        query_id = query_id_of(session, self.checkpoint)
        self.prepare()
        marker = Marker(query_id, batch_id, digest_of(lines))
        if judge(self._markers, marker, self.name) is Verdict.SKIP:
            _log.info("'%s': batch %s is committed already", self.name, batch_id)
            # What stateful steps remember of it is not: they run again, for nobody.
            rows.write.format("noop").mode("overwrite").save()
            return
        try:
            self._write_until_done(rows, marker, source_offsets(lines))
        except BaseException:
            # What became of the last request may not be known: whoever comes next asks.
            self.close()
            raise

    def _write_until_done(
        self, rows: Any, marker: Marker, offsets: Mapping[TopicPartition, int]
    ) -> None:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            assert self._transaction is not None
            ticket = self._transaction.begin()
            try:
                written = self._write(rows, ticket)
            except Exception as error:
                # Raises if somebody else has taken over: then nothing more is tried.
                self._transaction.abort()
                is_last = attempt == ATTEMPTS_MAX or comes_again(error)
                if is_last or FencedRunError.__name__ in str(error):
                    raise
                _log.warning(
                    "'%s': batch %s is written again: %s",
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
        # All of a partition to one task, and a topic's partitions evenly to all tasks.
        place = sql.expr(f"cast(pmod(hash(topic) + partition, {tasks}) as int)")
        placed = encoded.repartitionById(tasks, place).sortWithinPartitions(*ORDER)
        written: list[Any] = placed.mapInArrow(self._task(ticket), WRITTEN_SCHEMA).collect()
        return written

    def _task(self, ticket: TransactionTicket) -> TransactionWriter:
        """What writes the rows of some partitions."""
        return TransactionWriter(ticket)

    def _commit(
        self, marker: Marker, offsets: Mapping[TopicPartition, int], written: list[Any]
    ) -> None:
        assert self._transaction is not None
        text = write_marker(marker)
        progress = {one: Committed(offset, metadata=text) for one, offset in offsets.items()}
        if not progress and (place := self._marker_place(written)) is not None:
            # Its sources are no topics; somewhere the batch must be written down.
            progress = {place: Committed(marker.batch_id + 1, metadata=text)}
        if not progress:
            self._transaction.abort()
            return
        self._transaction.commit(progress, self.group)
        self._markers = [text]

    def _marker_place(self, written: list[Any]) -> TopicPartition | None:
        if self._topic is not None:
            return TopicPartition(self._topic, 0)
        return TopicPartition(written[0]["topic"], 0) if written else None


def _refuse_speculation(session: Any) -> None:
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise OptionError(
            "spark.speculation is on: two tasks would write the same partition; turn it off"
        )


def offset_lines(session: Any, checkpoint: str, batch_id: int) -> list[str]:
    """What Spark has written down of a batch before it runs: one line for each source."""
    lines = _lines_of(session, checkpoint, f"offsets/{batch_id}")
    # A version and the batch's own facts come first.
    return [line for line in lines[2:] if line.strip()]


def query_id_of(session: Any, checkpoint: str) -> str:
    """The same for all runs with a checkpoint."""
    if not _is_connected(session):
        return str(session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or "")
    return str(json.loads("".join(_lines_of(session, checkpoint, "metadata")))["id"])


def _is_connected(session: Any) -> bool:
    """Of Spark Connect: there is no JVM within reach."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def _parallelism(session: Any) -> int:
    """How many tasks run at once."""
    if not _is_connected(session):
        return int(session.sparkContext.defaultParallelism)
    # Nobody tells it there, but a range is cut into as many pieces.
    pieces = session.range(_PIECES_MAX).select(sql.spark_partition_id().alias("piece"))
    return int(pieces.agg(sql.max("piece")).first()[0]) + 1


def _lines_of(session: Any, checkpoint: str, name: str) -> list[str]:
    path = f"{checkpoint}/{name}"
    missing = OptionError(
        f"{path} is not there; the sink needs the query's checkpointLocation, not {checkpoint}"
    )
    if _is_connected(session):
        try:
            # One small file: its lines come in order.
            return [row.value for row in session.read.text(path).collect()]
        except Exception as error:
            if "PATH_NOT_FOUND" in str(error):
                raise missing from None
            raise
    jvm = session.sparkContext._jvm
    file = jvm.org.apache.hadoop.fs.Path(path)
    system = file.getFileSystem(session.sparkContext._jsc.hadoopConfiguration())
    if not system.exists(file):
        raise missing
    stream = system.open(file)
    try:
        content = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return str(content).splitlines()


def source_offsets(lines: list[str]) -> dict[TopicPartition, int]:
    """Of the sources that are topics."""
    found: dict[TopicPartition, int] = {}
    for line in lines:
        try:
            found |= read_query_offsets(json.loads(line)).offsets
        except (ValueError, TypeError, AttributeError):
            continue
    return found
