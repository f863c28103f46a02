"""The sink of `format("moldau")`: writes rows to topics at least once. A task that runs again
writes its rows again; exactly_once.py avoids that.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from moldau.client.errors import ConfigError
from moldau.client.producer.blocking import Producer
from moldau.client.producer.options import producer_config
from moldau.config.client_settings.producer import ProducerConfig
from moldau.core.spark.errors import OptionError
from moldau.core.spark.options import SinkOptions
from moldau.spark.runtime.worker_process import freeze_garbage

WRITTEN_COLUMNS = ("key", "value", "headers", "partition")
_KEPT_MAX = 8
# Tables that are sent and not yet acknowledged; the producer bounds their bytes.
_UNACKNOWLEDGED_MAX = 32
_shared: dict[tuple[tuple[str, str], ...], Producer] = {}


class WrittenRows(WriterCommitMessage):
    """The number of rows that a task wrote."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


def checked_producer_config(settings: Mapping[str, str]) -> ProducerConfig:
    try:
        return producer_config(settings, {})
    except ConfigError as error:
        raise OptionError(f"kafka.{error}") from None


def producer_for(settings: Mapping[str, str]) -> Producer:
    """The producer that tasks of this process share: Spark uses a process for many tasks."""
    key = tuple(sorted(settings.items()))
    producer = _shared.pop(key, None)
    if producer is None:
        while len(_shared) >= _KEPT_MAX:
            _shared.pop(next(iter(_shared))).close()
        producer = Producer(config=settings)
    _shared[key] = producer
    return producer


def by_topic(batch: Any, topic: str | None) -> Iterator[tuple[str, Any]]:
    """The rows of each topic, with the columns that are written. The option `topic` overrides the
    column. Raises OptionError.
    """
    names = [name for name in WRITTEN_COLUMNS if name in batch.schema.names]
    if topic is not None:
        yield topic, batch.select(names)
        return
    import pyarrow.compute as pc

    column = batch.column("topic")
    if column.null_count:
        raise OptionError(
            "a row has no topic: its column topic is null, and the option topic is not set"
        )
    for name in column.unique().to_pylist():
        yield name, batch.filter(pc.equal(column, name)).select(names)


def write_rows(options: SinkOptions, batches: Iterator[Any]) -> WrittenRows:
    """Writes rows, and waits until the brokers have acknowledged all of them."""
    producer = producer_for(options.settings)
    sent: deque[Any] = deque()
    rows = 0
    for batch in batches:
        for topic, part in by_topic(batch, options.topic):
            sent.append(producer.send_table(topic, part))
        rows += batch.num_rows
        # Errors are raised early, and acknowledged tables are released.
        while len(sent) > _UNACKNOWLEDGED_MAX:
            sent.popleft().result()
    producer.flush()
    for deliveries in sent:
        deliveries.result()
    freeze_garbage()
    return WrittenRows(rows)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_rows(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """For append and complete mode; Spark supports no Python sink in update mode."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return write_rows(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The tasks have written the rows already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Written rows stay, and Spark runs the batch again."""
