"""The consumer for asyncio. What waits is a coroutine; what does not is a plain function."""

import inspect
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from moldau.client.arguments.consumer import ConsumerArguments
from moldau.client.config import client_config
from moldau.client.consumer.arguments import (
    Place,
    count_of,
    pattern_of,
    places_of,
    topic_of,
    topics_of,
    wait_ms,
)
from moldau.client.consumer.columns import ArrowOptions, take_table
from moldau.client.consumer.engine import Engine
from moldau.client.consumer.iteration import HandingOut
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
    """Callbacks of asyncio users may be coroutines."""
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


class Consumer(OffsetMethods):
    """Reads topics, alone or as a member of a group. Subscribe or assign, and then poll or iterate.

    >>> import asyncio
    >>> from moldau.aio import Producer
    >>> from moldau.testing import broker
    >>> async def main(address):
    ...     async with Producer(address) as producer:
    ...         await producer.send_many("greetings", [b"hello", b"ahoj"])
    ...     async with Consumer(address, group_id="g", auto_offset_reset="earliest") as consumer:
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

    All of Kafka's settings are taken, as `config={"max.poll.records": 100}` or as
    `max_poll_records=100`. It belongs to one event loop and is used by one task at a time;
    `wakeup` alone may be called by anybody.
    """

    def __init__(
        self,
        bootstrap_servers: str | list[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerArguments],
    ) -> None:
        super().__init__(Engine(consumer_config(bootstrap_servers, config, settings), _call))
        self._out = HandingOut(self._engine.positions)
        self._engine.before_use = self._out.settle

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
        """Commits if that is automatic, leaves the group, and lets go of everything."""
        await self._engine.close(wait_ms(timeout))

    def wakeup(self) -> None:
        """Ends a poll that waits, or the next one, with WakeupError. Any thread may call it."""
        self._engine.wakeup()

    # What is read.

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: object = None,
    ) -> None:
        """Instead of what was subscribed before. `pattern` has to match a topic's whole name. A
        `listener` may have on_partitions_assigned, on_partitions_revoked and on_partitions_lost;
        each gets a list of partitions, while a poll waits for it.
        """
        self._engine.subscribe(topics_of(topics, pattern), pattern_of(pattern), listener)

    async def unsubscribe(self) -> None:
        """Leaves the group and gives up all partitions, subscribed or assigned."""
        await self._engine.unsubscribe()

    def subscription(self) -> set[str]:
        """The topics that were subscribed to, or that match the pattern now."""
        return set(self._engine.subscribed_topics)

    def assign(self, partitions: Iterable[Place]) -> None:
        """Instead of what was assigned before, without the help of a group."""
        self._engine.assign(places_of(partitions))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._engine.positions.partitions)

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic. Raises UnknownTopicError."""
        return await self._engine.partitions_for(topic_of(topic))

    def metrics(self) -> dict[str, float]:
        """What was counted since the start, and how things are now."""
        return self._engine.metrics()

    # Reading.

    async def poll(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - Kafka's
        max_records: int | None = None,
    ) -> list[ConsumerRecord]:
        """Records as soon as there are some, none when `timeout` seconds are over."""
        count = count_of(max_records, self._engine.config.max_poll_records)
        patience_ms = wait_ms(timeout)
        rest = self._out.take_left(count)
        if rest:
            return rest
        return await self._engine.poll(patience_ms, count)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self._each()

    async def _each(self) -> AsyncIterator[ConsumerRecord]:
        """One by one, without an end. What was given last counts as done when the next is asked
        for.
        """
        while True:
            for record in self._out.begin(self._out.take_left() or await self.poll(None)):
                yield record

    async def batches(self, max_records: int | None = None) -> AsyncIterator[list[ConsumerRecord]]:
        """Lists of records, without an end."""
        while True:
            yield await self.poll(None, max_records)

    async def fetch_arrow(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - Kafka's
        *,
        columns: Collection[str] | None = None,
        max_bytes: int | None = None,
    ) -> Any:
        """A `pyarrow.Table` of what came, without a Python object for each record; it has no rows
        if nothing came in time. `.to_pandas()`, `polars.from_arrow` and DuckDB take it as it is.
        It ends behind the batch that reaches `max_bytes` (32 MiB), decompressed.
        """
        options = ArrowOptions.of(columns, max_bytes)
        if self._out.is_holding:
            self._out.put_back()
        await self._engine.wait_until(lambda: self._engine.fetching.has_ready, wait_ms(timeout))
        table = take_table(self._engine.fetching, options)
        self._engine.fetching.look()
        return table

    async def arrow(
        self, *, columns: Collection[str] | None = None, max_bytes: int | None = None
    ) -> AsyncIterator[Any]:
        """Tables with rows, without an end."""
        while True:
            table = await self.fetch_arrow(None, columns=columns, max_bytes=max_bytes)
            if table.num_rows:
                yield table
