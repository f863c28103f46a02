"""The batch source: the ranges to read are resolved once, when the query is planned."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from moldau.core.spark.filters import Comparison, RowFilter
from moldau.core.spark.offset_bounds import AtTime
from moldau.core.spark.options import SourceOptions
from moldau.core.spark.planning import OffsetRange, split
from moldau.spark.runtime.connection import Connection, connection_to
from moldau.spark.runtime.worker_process import freeze_garbage
from moldau.spark.source.offset_resolver import Terms, find_partitions, resolve
from moldau.spark.source.range_reader import RangeReader, data_loss


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, offset_range: OffsetRange | None) -> None:
        super().__init__(offset_range)
        self.offset_range = offset_range
        """None if the task has nothing to read."""


def read_range(
    options: SourceOptions, columns: tuple[str, ...], partition: InputPartition
) -> Iterator[Any]:
    offset_range = getattr(partition, "offset_range", None)
    if offset_range is None:
        return
    reader = RangeReader(
        connection_to(options.settings),
        offset_range,
        columns,
        fails_on_data_loss=options.fails_on_data_loss,
    )
    yield from reader.batches()
    freeze_garbage()


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._filter = RowFilter()

    def partitions(self) -> list[InputPartition]:
        connection = connection_to(self._options.settings)
        ranges = connection.run(self._plan(connection))
        options = self._options
        parts = split(ranges, options.tasks_min, options.rows_per_task_max)
        # Without partitions Spark would run a task with an argument of its own.
        return [RangePartition(part) for part in parts] or [RangePartition(None)]

    async def _plan(self, connection: Connection) -> list[OffsetRange]:
        cluster, options = connection.cluster, self._options
        known = await find_partitions(cluster, options.strategy, is_strict=True)
        terms = Terms(
            connection.fetch.isolation, connection.config.group_id, options.is_lenient_by_time
        )
        chosen = tuple(filter(self._filter.takes, known.partitions))
        starts = await resolve(cluster, options.starting, known.partitions, terms)
        ends = await resolve(cluster, options.ending, known.partitions, terms)
        since = self._filter.since_ms
        later = {}
        if since is not None and chosen:
            # All records before these offsets are older. The end of the log is a valid result.
            lenient = terms._replace(is_lenient_by_time=True)
            later = await resolve(cluster, AtTime(since, "startingTimestamp"), chosen, lenient)
        ranges = []
        for partition in chosen:
            first, end = starts[partition], ends[partition]
            if first > end and options.fails_on_data_loss:
                raise data_loss(partition, first, end, f"the log ends at {end}")
            start, stop = self._filter.clip(first, end)
            start = max(start, later.get(partition, start))
            topic_id = known.topic_ids.get(partition.topic)
            ranges.append(OffsetRange(partition, start, stop, topic_id))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, self._columns, partition)


class FilteringBatchReader(BatchReader):
    """A reader that Spark pushes filters to. Spark refuses such a reader unless a setting of Spark
    allows it, so only queries that request it get one.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Narrows the ranges. Spark still applies all filters to the rows that are read."""
        for spark_filter in filters:
            if (comparison := _comparison(spark_filter)) is not None:
                self._filter = self._filter.narrowed(comparison)
        return filters


def _comparison(spark_filter: Any) -> Comparison | None:
    operators = {
        "EqualTo": "=",
        "GreaterThan": ">",
        "GreaterThanOrEqual": ">=",
        "LessThan": "<",
        "LessThanOrEqual": "<=",
        "In": "in",
    }
    operator = operators.get(type(spark_filter).__name__)
    if operator is None or len(spark_filter.attribute) != 1:
        return None
    value = spark_filter.value
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.astimezone(UTC)
        value = int(moment.timestamp() * 1000)
    return Comparison(spark_filter.attribute[0], operator, value)
