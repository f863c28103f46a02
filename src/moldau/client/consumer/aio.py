"""The asyncio consumer. Methods that may wait are coroutines; the others are plain functions."""

import inspect
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from moldau.client.arguments.consumer import ConsumerArguments
from moldau.client.config import client_config
from moldau.client.consumer.arguments import (
    AnyPartition,
    count_of,
    partitions_of,
    pattern_of,
    topic_of,
    topics_of,
    wait_ms,
)
from moldau.client.consumer.columns import ArrowOptions, take_table
from moldau.client.consumer.engine import Engine
from moldau.client.consumer.iteration import RecordLoop
from moldau.client.consumer.offsets_api import OffsetMethods
from moldau.config.client_settings.consumer import ConsumerConfig
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.types import TopicPartition

CLOSE_PATIENCE_S = 30.0


def consumer_config(
    bootstrap_servers: str | list[str] | None,
    config: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> ConsumerConfig:
    return client_config(
        ConsumerConfig, config, {**settings, "bootstrap_servers": bootstrap_servers}
    )


async def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function of the user, and awaits its result if that is a coroutine."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


class Consumer(OffsetMethods):
    """Reads records from topics, alone or as a member of a group.

    `subscribe` to topics or `assign` partitions first, then `poll` or iterate.

    It belongs to one event loop, where one task at a time may use it. Only `wakeup` may be called
    from other tasks and threads.

    Examples:
        >>> import asyncio
        >>> from moldau.aio import Producer
        >>> from moldau.testing import broker
        >>> async def main(address):
        ...     async with Producer(address) as producer:
        ...         await producer.send_many("greetings", [b"hello", b"ahoj"])
        ...     reading = {"group_id": "g", "auto_offset_reset": "earliest"}
        ...     async with Consumer(address, **reading) as consumer:
        ...         consumer.subscribe("greetings")
        ...         async for record in consumer:
        ...             print(record.offset, record.value)
        ...             if record.offset == 1:
        ...                 break
        ...         await consumer.commit({("greetings", 0): 2})
        ...         print(await consumer.committed([("greetings", 0)]))
        >>> with broker() as node:
        ...     asyncio.run(main(node.bootstrap))  # doctest: +ELLIPSIS
        0 b'hello'
        1 b'ahoj'
        {TopicPartition(topic='greetings', partition=0): OffsetAndMetadata(offset=2, ...)}
    """

    def __init__(
        self,
        bootstrap_servers: str | list[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerArguments],
    ) -> None:
        """Checks the settings. The first call opens the first connection.

        Args:
            bootstrap_servers: Addresses of brokers to start from, `"host:port"`: a list, or a text
                with commas.
            config: Settings by Kafka's names, `{"max.poll.records": 100}`.
            **settings: Settings as arguments, `max_poll_records=100`.

        Raises:
            ConfigError: A setting is unknown, given twice, or has a wrong value.
        """
        super().__init__(Engine(consumer_config(bootstrap_servers, config, settings), _call))
        self._records = RecordLoop(self._engine.positions)
        self._engine.before_use = self._records.update_positions

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self, timeout: float = CLOSE_PATIENCE_S) -> None:  # noqa: ASYNC109 - Kafka's
        """Leaves the group and closes all connections. Closing twice does nothing.

        With enable.auto.commit, the positions are committed first.

        Args:
            timeout: How many seconds committing and leaving may take.
        """
        await self._engine.close(wait_ms(timeout))

    def wakeup(self) -> None:
        """Makes the poll that waits now, or the next one, raise WakeupError. Any thread may call
        it.
        """
        self._engine.wakeup()

    # Subscription and assignment.

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: object = None,
    ) -> None:
        """Subscribes to topics, in place of an earlier subscription.

        The partitions are shared among the members of the group, which the next poll joins.

        Args:
            topics: A topic name, or several.
            pattern: Instead of `topics`: a regular expression for whole topic names. Topics that
                are created later are included.
            listener: An object with any of the methods on_partitions_assigned,
                on_partitions_revoked and on_partitions_lost. Each is called with a list of
                partitions while a poll waits, in the thread or task that polls.

        Raises:
            ConfigError: There is no group.id.
            ClientError: Partitions are assigned by hand, or the arguments are wrong.
        """
        self._engine.subscribe(topics_of(topics, pattern), pattern_of(pattern), listener)

    async def unsubscribe(self) -> None:
        """Leaves the group and gives up all partitions, whether subscribed or assigned."""
        await self._engine.unsubscribe()

    def subscription(self) -> set[str]:
        """Returns the topics that are subscribed to, or that match the pattern now."""
        return set(self._engine.subscribed_topics)

    def assign(self, partitions: Iterable[AnyPartition]) -> None:
        """Assigns partitions by hand, in place of an earlier assignment.

        They are not shared among the members of a group: group.id, if it is set, only names the
        group that offsets are committed for.

        Args:
            partitions: The partitions, each a `TopicPartition` or a tuple of topic and number.

        Raises:
            ClientError: Topics are subscribed.
        """
        self._engine.assign(partitions_of(partitions))

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that are assigned now, by the group or by hand."""
        return set(self._engine.positions.partitions)

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """Returns all partitions of a topic, assigned or not.

        Args:
            topic: Name of the topic.

        Raises:
            UnknownTopicError: The topic does not exist.
        """
        return await self._engine.partitions_for(topic_of(topic))

    def metrics(self) -> dict[str, float]:
        """Returns the consumer's metrics by name.

        Counted since the start: records_consumed, fetches_answered, fetches_failed, fetched_bytes,
        commits_done, commits_failed, heartbeats_answered, rebalances, polls_too_late. Current
        values: assigned_partitions, buffered_bytes, records_lag_max.
        """
        return self._engine.metrics()

    # Reading.

    async def poll(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - Kafka's
        max_records: int | None = None,
    ) -> list[ConsumerRecord]:
        """Waits for records, and returns those that have arrived.

        Polling also keeps the consumer in its group: at most max.poll.interval.ms may pass between
        two polls.

        Args:
            timeout: How many seconds to wait for the first record; None for no limit.
            max_records: How many records to return at most; None for max.poll.records.

        Returns:
            The records, in order within each partition; an empty list if none came in time.

        Raises:
            WakeupError: `wakeup` was called.
            NoOffsetError: A partition has no committed offset, and auto.offset.reset is none.
            DamagedRecordsError: The next batch is damaged.
            DeserializationError: A deserializer refused the next record.
            LogTruncationError: The log no longer has the records that were read before.
            ClientError: Nothing is subscribed or assigned.
        """
        count = count_of(max_records, self._engine.config.max_poll_records)
        patience_ms = wait_ms(timeout)
        rest = self._records.take_left(count)
        if rest:
            return rest
        return await self._engine.poll(patience_ms, count)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterates over records endlessly. A record counts as processed when the next one is
        requested.
        """
        return self._each()

    async def _each(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            for record in self._records.begin(self._records.take_left() or await self.poll(None)):
                yield record

    async def batches(self, max_records: int | None = None) -> AsyncIterator[list[ConsumerRecord]]:
        """Iterates endlessly over lists of records, each as `poll` returns it.

        Args:
            max_records: How many records a list has at most; None for max.poll.records.

        Yields:
            A list with at least one record.
        """
        while True:
            yield await self.poll(None, max_records)

    async def fetch_arrow(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - Kafka's
        *,
        columns: Collection[str] | None = None,
        max_bytes: int | None = None,
    ) -> Any:
        """Waits for records, and returns them as an Arrow table without a Python object for each.

        pandas (`table.to_pandas()`), Polars (`polars.from_arrow`) and DuckDB read such tables.

        Args:
            timeout: How many seconds to wait for the first record; None for no limit.
            columns: Which of `key`, `value`, `topic`, `partition`, `offset`, `timestamp`,
                `timestampType` and `headers` the table has; None for all.
            max_bytes: The table ends after the batch that reaches this size, decompressed; None
                for 32 MiB.

        Returns:
            A `pyarrow.Table`, without rows if nothing came in time.
        """
        options = ArrowOptions.of(columns, max_bytes)
        if self._records.is_holding:
            self._records.put_back()
        await self._engine.wait_until(lambda: self._engine.fetching.has_ready, wait_ms(timeout))
        table = take_table(self._engine.fetching, options)
        self._engine.fetching.fetch_more()
        return table

    async def arrow(
        self, *, columns: Collection[str] | None = None, max_bytes: int | None = None
    ) -> AsyncIterator[Any]:
        """Iterates endlessly over Arrow tables, each as `fetch_arrow` returns it.

        Args:
            columns: As in `fetch_arrow`.
            max_bytes: As in `fetch_arrow`.

        Yields:
            A `pyarrow.Table` with at least one row.
        """
        while True:
            table = await self.fetch_arrow(None, columns=columns, max_bytes=max_bytes)
            if table.num_rows:
                yield table
