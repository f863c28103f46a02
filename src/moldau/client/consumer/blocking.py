"""The blocking consumer. A thread of its own fetches ahead and keeps the consumer in its group; the
user's thread takes records that have arrived without waiting for it.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from types import TracebackType
from typing import Any, Self, Unpack

from moldau.client.arguments.consumer import ConsumerArguments
from moldau.client.consumer import aio
from moldau.client.consumer.aio import CLOSE_PATIENCE_S, consumer_config
from moldau.client.consumer.arguments import (
    AnyPartition,
    count_of,
    partitions_of,
    pattern_of,
    topic_of,
    topics_of,
    wait_ms,
)
from moldau.client.consumer.blocking_offsets_api import BlockingOffsetMethods
from moldau.client.consumer.columns import ArrowOptions, take_table
from moldau.client.consumer.engine import Engine
from moldau.client.consumer.iteration import RecordLoop
from moldau.client.consumer.offsets_api import OffsetMethods
from moldau.client.consumer.user_calls import UserCalls
from moldau.client.loop_thread import LoopThread
from moldau.client.twin_docs import documented_by
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.types import TopicPartition


class Consumer(BlockingOffsetMethods):
    """Reads records from topics, alone or as a member of a group.

    `subscribe` to topics or `assign` partitions first, then `poll` or iterate.

    One thread at a time may use it. Only `wakeup` may be called from other threads. Callbacks run
    in the thread that polls. A forked process needs a consumer of its own.

    Examples:
        >>> from moldau import Producer
        >>> from moldau.testing import broker
        >>> def greet(address):
        ...     with Producer(address) as producer:
        ...         producer.send_many("greetings", [b"hello", b"ahoj"])
        ...     with Consumer(address, group_id="g", auto_offset_reset="earliest") as consumer:
        ...         consumer.subscribe("greetings")
        ...         for record in consumer:
        ...             print(record.offset, record.value)
        ...             if record.offset == 1:
        ...                 break
        ...         consumer.seek_to_beginning()
        ...         print(consumer.fetch_arrow(timeout=30)["value"].to_pylist())
        ...         consumer.commit()
        ...         print(consumer.committed([("greetings", 0)])["greetings", 0].offset)
        >>> with broker() as node:
        ...     greet(node.bootstrap)
        0 b'hello'
        1 b'ahoj'
        [b'hello', b'ahoj']
        2
    """

    @documented_by(aio.Consumer.__init__)
    def __init__(
        self,
        bootstrap_servers: str | list[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerArguments],
    ) -> None:
        made = consumer_config(bootstrap_servers, config, settings)
        self._thread = LoopThread("moldau-consumer")
        calls = UserCalls(self._thread, "consumer")
        try:
            self._engine = Engine(made, calls.call)
        except BaseException:
            self._thread.close()
            raise
        self._records = RecordLoop(self._engine.positions)
        self._engine.before_use = self._records.update_positions
        self._count = made.max_poll_records
        super().__init__(OffsetMethods(self._engine), calls)

    def __del__(self) -> None:
        if hasattr(self, "_engine"):
            engine = self._engine
            self._thread.end_in_background(self, lambda: engine.close(CLOSE_PATIENCE_S * 1000))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @documented_by(aio.Consumer.close)
    def close(self, timeout: float = CLOSE_PATIENCE_S) -> None:
        if not self._thread.is_usable:
            return
        patience_ms = wait_ms(timeout)
        self._calls.enter()
        try:
            self._calls.run(self._engine.close(patience_ms))
        finally:
            self._thread.close()
            self._calls.leave()

    @documented_by(aio.Consumer.wakeup)
    def wakeup(self) -> None:
        self._engine.wakeup()

    # Subscription and assignment.

    @documented_by(aio.Consumer.subscribe)
    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: object = None,
    ) -> None:
        names = topics_of(topics, pattern)
        self._do(self._engine.subscribe, names, pattern_of(pattern), listener)

    @documented_by(aio.Consumer.unsubscribe)
    def unsubscribe(self) -> None:
        self._calls.run(self._engine.unsubscribe())

    @documented_by(aio.Consumer.subscription)
    def subscription(self) -> set[str]:
        return set(self._engine.subscribed_topics)

    @documented_by(aio.Consumer.assign)
    def assign(self, partitions: Iterable[AnyPartition]) -> None:
        self._do(self._engine.assign, partitions_of(partitions))

    @documented_by(aio.Consumer.assignment)
    def assignment(self) -> set[TopicPartition]:
        return set(self._engine.positions.partitions)

    @documented_by(aio.Consumer.partitions_for)
    def partitions_for(self, topic: str) -> list[TopicPartition]:
        return self._calls.run(self._engine.partitions_for(topic_of(topic)))

    @documented_by(aio.Consumer.metrics)
    def metrics(self) -> dict[str, float]:
        return self._engine.metrics()

    # Reading.

    @documented_by(aio.Consumer.poll)
    def poll(
        self, timeout: float | None = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        count = self._count if max_records is None else count_of(max_records, 0)
        patience_ms = wait_ms(timeout)
        calls = self._calls
        calls.enter()
        try:
            rest = self._records.take_left(count)
            if rest:
                return rest
            found = self._engine.take_now(count)
            if found is not None:
                return found
        finally:
            calls.leave()
        return calls.run(self._engine.poll(patience_ms, count))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterates over records endlessly. A record counts as processed when the next one is
        requested.
        """
        return chain.from_iterable(self._runs())

    def _runs(self) -> Iterator[Iterator[ConsumerRecord]]:
        while True:
            yield self._records.begin(self._records.take_left() or self.poll(None))

    @documented_by(aio.Consumer.batches)
    def batches(self, max_records: int | None = None) -> Iterator[list[ConsumerRecord]]:
        while True:
            yield self.poll(None, max_records)

    @documented_by(aio.Consumer.fetch_arrow)
    def fetch_arrow(
        self,
        timeout: float | None = 1.0,
        *,
        columns: Collection[str] | None = None,
        max_bytes: int | None = None,
    ) -> Any:
        options = ArrowOptions.of(columns, max_bytes)
        engine = self._engine
        patience_ms = wait_ms(timeout)
        self._calls.enter()
        try:
            if self._records.is_holding:
                self._do(self._records.put_back)
            if not (engine.begin_taking() and engine.fetching.has_ready):
                ready = engine.wait_until(lambda: engine.fetching.has_ready, patience_ms)
                self._calls.run(ready)
            table = take_table(engine.fetching, options)
            engine.fetch_soon()
        finally:
            self._calls.leave()
        return table

    @documented_by(aio.Consumer.arrow)
    def arrow(
        self, *, columns: Collection[str] | None = None, max_bytes: int | None = None
    ) -> Iterator[Any]:
        while True:
            table = self.fetch_arrow(None, columns=columns, max_bytes=max_bytes)
            if table.num_rows:
                yield table
