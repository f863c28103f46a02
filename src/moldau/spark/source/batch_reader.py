"""The batch source: which ranges there are is asked once, when the query is planned."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from moldau.core.spark.filters import Comparison, RowFilter
from moldau.core.spark.offset_bounds import AtTime
from moldau.core.spark.options import SourceOptions
from moldau.core.spark.planning import OffsetRange, split
from moldau.spark.runtime.connection import Connection, connection_to
from moldau.spark.runtime.worker_process import settle
from moldau.spark.source.offset_resolver import Terms, find_partitions, resolve
from moldau.spark.source.range_reader import RangeReader, data_loss


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: OffsetRange | None) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        """None: nothing."""


def read_range(
    options: SourceOptions, columns: tuple[str, ...], partition: InputPartition
) -> Iterator[Any]:
    wanted = getattr(partition, "wanted", None)
    if wanted is None:
        return
    reader = RangeReader(
        connection_to(options.settings),
        wanted,
        columns,
        fails_on_data_loss=options.fails_on_data_loss,
    )
    yield from reader.batches()
    settle()


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
        # Without any, Spark would make one up.
        return [RangePartition(part) for part in parts] or [RangePartition(None)]

    async def _plan(self, connection: Connection) -> list[OffsetRange]:
        cluster, options = connection.cluster, self._options
        found = await find_partitions(cluster, options.strategy, is_strict=True)
        terms = Terms(
            connection.fetch.isolation, connection.config.group_id, options.is_lenient_by_time
        )
        chosen = tuple(one for one in found.partitions if self._filter.takes(one))
        starts = await resolve(cluster, options.starting, found.partitions, terms)
        ends = await resolve(cluster, options.ending, found.partitions, terms)
        since = self._filter.since_ms
        later = {}
        if since is not None and chosen:
            # Records before these offsets are all older. Behind the last one is an answer here.
            lenient = terms._replace(is_lenient_by_time=True)
            later = await resolve(cluster, AtTime(since, "startingTimestamp"), chosen, lenient)
        ranges = []
        for one in chosen:
            start, stop = self._filter.clip(starts[one], ends[one])
            start = max(start, later.get(one, start))
            if starts[one] > ends[one] and options.fails_on_data_loss:
                raise data_loss(one, starts[one], ends[one], f"the log ends at {ends[one]}")
            ranges.append(OffsetRange(one, start, stop, found.topic_ids.get(one.topic)))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, self._columns, partition)


class FilteringBatchReader(BatchReader):
    """Spark refuses a reader with `pushFilters` unless a setting of its own allows it, so only
    whoever asks for it gets this one.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Reads less. Spark still looks at every row that is read, so nothing can go wrong."""
        for one in filters:
            if (told := _comparison(one)) is not None:
                self._filter = self._filter.narrowed(told)
        return filters


def _comparison(given: Any) -> Comparison | None:
    words = {
        "EqualTo": "=",
        "GreaterThan": ">",
        "GreaterThanOrEqual": ">=",
        "LessThan": "<",
        "LessThanOrEqual": "<=",
        "In": "in",
    }
    word = words.get(type(given).__name__)
    if word is None or len(given.attribute) != 1:
        return None
    value = given.value
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.astimezone(UTC)
        value = int(moment.timestamp() * 1000)
    return Comparison(given.attribute[0], word, value)
