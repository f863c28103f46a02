"""The asyncio producer: the same engine as the blocking one, in the user's own event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from moldau.client.arguments.producer import ProducerArguments
from moldau.client.errors import ClientError, ClientTimeoutError, ClosedError
from moldau.client.producer.deliveries import AwaitableDeliveries
from moldau.client.producer.delivery_waiting import LoopWaiter
from moldau.client.producer.engine import ProducerEngine
from moldau.client.producer.record_preparation import Headers, ProducerRecord, as_lists
from moldau.client.producer.session import ProducerSession
from moldau.core.producer.batching import Delivery, Piece
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import TopicPartition

# `send` yields to the event loop once in 4096 records, every few milliseconds; more often would
# make requests small.
_YIELD_MASK = 0xFFF


class Producer:
    """Sends records to topics.

    It belongs to one event loop, whose tasks may use it at the same time. Use it as `async with`.
    Await the delivery that `send` returns for the broker's answer.

    Examples:
        >>> import asyncio
        >>> from moldau.testing import broker
        >>> async def greet(bootstrap):
        ...     async with Producer(bootstrap) as producer:
        ...         delivery = await producer.send("greetings", b"hello", key=b"en")
        ...         return (await delivery).offset
        >>> with broker() as b:
        ...     asyncio.run(greet(b.bootstrap))
        0
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ProducerArguments],
    ) -> None:
        """Checks the settings.

        Args:
            bootstrap_servers: Addresses of brokers to start from, `"host:port"`: a list, or a text
                with commas.
            config: Settings by Kafka's names, `{"linger.ms": 20}`.
            **settings: Settings as arguments, `linger_ms=20`.

        Raises:
            ConfigError: A setting is unknown, given twice, or has a wrong value.
        """
        self._session = ProducerSession(bootstrap_servers, config, settings)
        self._is_plain = False
        self._is_closed = False
        self._appended = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> Self:
        """Starts the producer in the running event loop. `async with` and the first use do it too.

        Returns:
            The producer itself.
        """
        await self._started()
        return self

    async def _started(self) -> ProducerEngine:
        if self._is_closed:
            raise ClosedError("this producer is closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            engine = await self._session.open(LoopWaiter(), is_shared=False)
            self._append = engine.appender.append
            self._is_plain = self._session.preparation.is_plain
        if loop is not self._loop:
            raise ClientError("an asyncio producer belongs to one event loop; create one in each")
        return self._session.opened

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Queues a record to be sent in the background.

        Waits only while the topic is not known yet or the memory is full, max.block.ms at most.

        Args:
            topic: Name of the topic.
            value: The value: bytes, a str, None for a tombstone, or any type that value.serializer
                takes.
            key: The key, likewise. Records with equal keys go to the same partition.
            partition: The partition; None leaves the choice to the partitioner.
            timestamp: Milliseconds since 1970; None for now.
            headers: Pairs of a name and a value in bytes.

        Returns:
            The delivery of the record, which gets the broker's answer.

        Raises:
            ClientTimeoutError: There was no room, or no metadata, within max.block.ms.
            KafkaError: MESSAGE_TOO_LARGE if the record exceeds max.request.size.
            ClientError: An argument is wrong.
            ClosedError: The producer is closed.
        """
        if self._is_plain and asyncio.get_running_loop() is self._loop:
            delivery = self._append(topic, key, value, partition, timestamp, headers)
            if delivery is not None:
                self._appended += 1
                if not self._appended & _YIELD_MASK:
                    # Lets other tasks run, and responses arrive.
                    await asyncio.sleep(0)
                return delivery
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)  # type: ignore[arg-type]
        await self._started()
        session = self._session
        record = session.preparation.prepare(record)
        return session.watch(await session.append(record))

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> AwaitableDeliveries:
        """Queues many records for one topic, several times as fast as `send` in a loop.

        Args:
            topic: Name of the topic.
            values: The values of the records, each as in `send`.
            keys: As many keys; None for records without keys.
            partition: The partition of all of them; None leaves the choice to the partitioner.
            timestamp: The timestamp of all of them, in milliseconds since 1970; None for now.

        Returns:
            The deliveries of the records, in their order.

        Raises:
            ClientTimeoutError: There was no room, or no metadata, within max.block.ms.
            KafkaError: MESSAGE_TOO_LARGE if a record exceeds max.request.size.
            ClientError: An argument is wrong.
            ClosedError: The producer is closed.

        Examples:
            >>> import asyncio
            >>> from moldau.testing import broker
            >>> async def count(bootstrap):
            ...     async with Producer(bootstrap) as producer:
            ...         sent = await producer.send_many("numbers", [b"1", b"2", b"3"])
            ...         return sum(written.records for written in await sent)
            >>> with broker() as b:
            ...     asyncio.run(count(b.bootstrap))
            3
        """
        engine = await self._started()
        values, keys = as_lists(values, keys)
        pieces: list[Piece] = []
        row = 0
        options = partition, timestamp
        while row < len(values):
            if self._is_plain:
                row += engine.appender.append_many(topic, values, keys, options, row, pieces)
                # Lets responses arrive between two batches.
                await asyncio.sleep(0)
                if row >= len(values):
                    break
            key = None if keys is None else keys[row]
            delivery = await self.send(
                topic, values[row], key, partition=partition, timestamp=timestamp
            )
            pieces.append((delivery.batch, delivery.index, 1))
            row += 1
        return AwaitableDeliveries(pieces)

    async def send_table(
        self, topic: str, table: Any, *, partition: int | None = None
    ) -> AwaitableDeliveries:
        """Queues the rows of a table as records.

        The table needs a column `value`. The columns `key`, `headers`, `timestamp` and `partition`
        are used if they exist; other columns are ignored. Serializers and interceptors are not
        applied.

        Args:
            topic: Name of the topic.
            table: A `pyarrow.Table` or `RecordBatch`, a data frame of pandas or Polars, or another
                object with Arrow's stream interface.
            partition: The partition of all rows, unless the table has such a column.

        Returns:
            The deliveries of the records, in the order of the rows.

        Raises:
            ClientError: A column is missing or of a wrong type, or a row is too large.
            ClosedError: The producer is closed.

        Examples:
            >>> import asyncio, pyarrow
            >>> from moldau.testing import broker
            >>> async def send(bootstrap, table):
            ...     async with Producer(bootstrap) as producer:
            ...         sent = await producer.send_table("rows", table)
            ...         return sum(written.records for written in await sent)
            >>> with broker() as b:
            ...     asyncio.run(send(b.bootstrap, pyarrow.table({"value": ["1", "2"]})))
            2
        """
        await self._started()
        return AwaitableDeliveries(await self._session.append_table(topic, table, partition))

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the blocking one
        """Waits until every record sent so far is delivered or has failed.

        Args:
            timeout: How many seconds to wait; None for no limit.

        Raises:
            ClientTimeoutError: It took longer.
        """
        engine = await self._started()
        try:
            async with engine.cluster.clock.timeout(None if timeout is None else timeout * 1000):
                await engine.flush()
        except TimeoutError:
            raise ClientTimeoutError(f"not done within {timeout} seconds") from None

    async def partitions_for(self, topic: str) -> list[int]:
        """Returns the numbers of a topic's partitions, sorted.

        Args:
            topic: Name of the topic.

        Raises:
            ClientTimeoutError: The topic's metadata did not arrive within max.block.ms.
        """
        engine = await self._started()
        return sorted((await engine.topic(topic)).partitions)

    def metrics(self) -> dict[str, float]:
        """Returns the producer's metrics by name.

        Counted since the start: records_sent, record_bytes_sent, records_failed, batches_sent,
        batch_bytes_sent, batches_retried, batches_split, requests_sent; queue_time_ms_avg,
        request_latency_ms_avg and request_latency_ms_max. Current values: requests_in_flight,
        buffer_available_bytes, buffer_total_bytes.
        """
        return {} if self._session.engine is None else self._session.engine.metrics()

    @property
    def retrying(self) -> KafkaError | None:
        """The error for which records are being retried now; None while records get through."""
        return None if self._session.engine is None else self._session.engine.retrying

    # Transactions.

    async def init_transactions(self) -> None:
        """Registers the transactional.id, before the first transaction.

        An earlier producer with the same id is fenced, and its open transaction is aborted.

        Raises:
            ClientError: The setting transactional.id is missing.
            MustStopError: This producer itself was fenced.
        """
        await self._started()
        await self._session.transactions.init()

    async def begin_transaction(self) -> None:
        """Begins a transaction: records sent from now on become visible with its commit.

        Raises:
            TransactionMisuseError: A transaction is open already, or `init_transactions` was not
                called.
        """
        await self._started()
        self._session.transactions.begin()

    async def send_offsets(self, offsets: Mapping[TopicPartition, Any], group: Any) -> None:
        """Commits a consumer's offsets together with the transaction.

        Args:
            offsets: For each partition, the offset of the next record to read, alone or as
                `OffsetAndMetadata`.
            group: The consumer's `group_metadata()`, or the id of the group.

        Raises:
            TransactionMisuseError: No transaction is open.
            MustAbortError: The group refused the offsets; abort the transaction.
        """
        await self._started()
        await self._session.transactions.send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Waits until all records of the transaction are written, and commits it.

        Raises:
            MustAbortError: A record failed; abort the transaction.
            MustStopError: This producer was fenced; close it.
        """
        await self._started()
        await self._session.transactions.commit()

    async def abort_transaction(self) -> None:
        """Aborts the transaction: readers with read_committed never see its records, and its
        offsets are not committed.

        Raises:
            MustStopError: This producer was fenced; close it.
        """
        await self._started()
        await self._session.transactions.abort()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Makes a block a transaction: its end commits, an error in it aborts.

        Yields:
            The producer itself.

        Raises:
            MustAbortError: The transaction could not be committed and was aborted; begin another.
            MustStopError: This producer was fenced; close it.

        Examples:
            >>> import asyncio
            >>> from moldau.testing import broker
            >>> async def copy(bootstrap):
            ...     async with Producer(bootstrap, transactional_id="copier") as producer:
            ...         async with producer.transaction():
            ...             delivery = await producer.send("copies", b"all or nothing")
            ...         return (await delivery).offset
            >>> with broker() as b:
            ...     asyncio.run(copy(b.bootstrap))
            0
        """
        await self._started()
        if self._session.transactions.is_new:
            await self.init_transactions()
        await self.begin_transaction()
        try:
            yield self
        except BaseException:
            if not self._session.transactions.must_stop:
                await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except Exception:
            if self._session.transactions.must_abort:
                await self.abort_transaction()
            raise

    # The end.

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the blocking one
        """Sends the queued records and closes all connections. Closing twice does nothing.

        An open transaction is aborted.

        Args:
            timeout: How many seconds sending may take; records that are left then fail. None for
                no limit.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._is_plain = False
        engine = self._session.engine
        if engine is None:
            return
        engine.appender.is_closed = True
        try:
            # The deliveries report what could not be sent.
            with contextlib.suppress(TimeoutError, MoldauError):
                async with engine.cluster.clock.timeout(
                    None if timeout is None else timeout * 1000
                ):
                    await self._session.finish()
        finally:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
