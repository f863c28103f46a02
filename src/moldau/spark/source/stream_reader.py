"""The streaming source. It lives in one Python process for the whole life of a query, and shows the
query's position as a consumer group.
"""

import logging
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from moldau.client.admin.groups import Committed, commit_offsets, committed_offsets
from moldau.core.spark.exactly_once import is_marker
from moldau.core.spark.offset_bounds import Latest, OffsetBound
from moldau.core.spark.offset_json import (
    Offsets,
    QueryOffsets,
    read_query_offsets,
    write_query_offsets,
)
from moldau.core.spark.options import SourceOptions
from moldau.core.spark.planning import split
from moldau.core.spark.progress import (
    Limits,
    Loss,
    first_end,
    losses,
    next_end,
    ranges_between,
)
from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.connection import Connection, connection_to
from moldau.spark.source.batch_reader import RangePartition, read_range
from moldau.spark.source.group_name import group_of
from moldau.spark.source.long_poll import LongPoll
from moldau.spark.source.offset_resolver import Terms, find_partitions, resolve
from moldau.spark.source.range_reader import data_loss
from moldau.types import uuid_text

_log = logging.getLogger(__name__)

_PUBLISH_PATIENCE_MS = 5_000


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._initial: dict[str, Any] | None = None
        self._has_started = False
        self._target: QueryOffsets | None = None
        self._latest: QueryOffsets | None = None
        self._published: Offsets = {}
        self._batch_ms: float | None = None
        self._long_poll: LongPoll | None = None

    # Spark calls these methods.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        # Spark calls this twice for the first batch; two different results would lose the records
        # between them.
        if self._initial is None:
            connection = self._connection()
            position = connection.run(self._ends(connection, self._options.starting, True))
            self._initial = write_query_offsets(position)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.rows_max is not None:
            return ReadMaxRows(self._options.rows_max)
        if self._options.rows_min is not None:
            return ReadMinRows(self._options.rows_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        connection = self._connection()
        self._target = connection.run(self._ends(connection, Latest(), False))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        connection = self._connection()
        position = read_query_offsets(start)
        is_first = not self._has_started and start == self._initial
        end = connection.run(self._advance(connection, position, limit, is_first))
        self._has_started = True
        # The same document if there is nothing new, because Spark compares texts.
        return start if end is None else write_query_offsets(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else write_query_offsets(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        ranges, lost = ranges_between(read_query_offsets(start), read_query_offsets(end))
        self._report_losses(lost)
        parts = split(ranges, self._options.tasks_min, self._options.rows_per_task_max)
        return [RangePartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Any:
        return read_range(self._options, self._columns, partition)

    # The implementation of these methods

    def _connection(self) -> Connection:
        return connection_to(self._options.settings)

    async def _ends(
        self, connection: Connection, bound: OffsetBound, is_first: bool
    ) -> QueryOffsets:
        cluster = connection.cluster
        known = await find_partitions(cluster, self._options.strategy, is_strict=is_first)
        group_id = group_of(self._options)
        terms = Terms(connection.fetch.isolation, group_id, self._options.is_lenient_by_time)
        offsets = await resolve(cluster, bound, known.partitions, terms)
        ids = {name: uuid_text(topic_id) for name, topic_id in known.topic_ids.items()}
        return QueryOffsets(offsets, ids)

    async def _advance(
        self, connection: Connection, position: QueryOffsets, limit: ReadLimit, is_first: bool
    ) -> QueryOffsets | None:
        """The end of the next batch; None if there are no new records."""
        latest = await self._update_ends(connection)
        existing = {
            partition: offset
            for partition, offset in position.offsets.items()
            if partition in latest.offsets
        }
        await self._publish(connection, existing)
        end = self._next_end(connection, position, limit)
        if is_first:
            end = first_end(position, latest, end)
        elif end is None and self._target is None and self._options.long_poll_ms:
            # Otherwise Spark would call again at once, ninety times a second.
            await self._wait(connection)
            await self._update_ends(connection)
            end = self._next_end(connection, position, limit)
        if end is not None:
            self._batch_ms = connection.cluster.clock.mono_ms()
        return end

    async def _update_ends(self, connection: Connection) -> QueryOffsets:
        self._latest = self._target or await self._ends(connection, Latest(), False)
        return self._latest

    def _next_end(
        self, connection: Connection, position: QueryOffsets, limit: ReadLimit
    ) -> QueryOffsets | None:
        assert self._latest is not None
        self._report_losses(losses(position, self._latest))
        waited_ms = float("inf")
        if self._batch_ms is not None:
            waited_ms = connection.cluster.clock.mono_ms() - self._batch_ms
        return next_end(position, self._latest, self._limits(limit), waited_ms)

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        rows_min = None if self._target is not None else self._options.rows_min
        return Limits(rows_max, rows_min, self._options.delay_ms_max)

    async def _wait(self, connection: Connection) -> None:
        if self._long_poll is None:
            self._long_poll = LongPoll(connection)
        assert self._latest is not None
        if self._options.rows_min is not None:
            await connection.cluster.clock.sleep(self._options.long_poll_ms)
        else:
            await self._long_poll.wait_for_more(self._latest.offsets, self._options.long_poll_ms)

    def _report_losses(self, lost: list[Loss]) -> None:
        for loss in lost:
            error = data_loss(loss.partition, loss.start, loss.stop, loss.reason)
            if self._options.fails_on_data_loss:
                raise error
            _log.warning("%s", error)

    # Publishing the position. Spark's own `commit` comes too late: not for the last batch, and not
    # while there are no new records.

    async def _publish(self, connection: Connection, offsets: Offsets) -> None:
        if not self._options.publishes_progress or offsets == self._published:
            return
        group_id = group_of(self._options)
        try:
            async with connection.cluster.clock.timeout(_PUBLISH_PATIENCE_MS):
                # From its first batch on, an exactly-once sink may keep its own progress there.
                committed = await committed_offsets(connection.cluster, group_id)
                if not any(is_marker(existing.metadata) for existing in committed.values()):
                    published = {
                        partition: Committed(offset) for partition, offset in offsets.items()
                    }
                    await commit_offsets(connection.cluster, group_id, published)
        except (MoldauError, TimeoutError) as error:
            # The query resumes from its checkpoint; the group only shows the position.
            _log.warning("cannot publish the position of group '%s': %s", group_id, error)
        self._published = dict(offsets)
