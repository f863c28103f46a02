"""The asyncio producer: the same engine, in the user's own event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from moldau.client.arguments.producer import ProducerArguments
from moldau.client.errors import ClientError, ClientTimeoutError, ClosedError
from moldau.client.producer.deliveries import AwaitableDeliveries
from moldau.client.producer.delivery_waiting import LoopPatience
from moldau.client.producer.engine import ProducerEngine
from moldau.client.producer.record_preparation import Headers, ProducerRecord, in_lists
from moldau.client.producer.session import ProducerSession
from moldau.core.producer.batching import Delivery, Piece
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import TopicPartition

# Every so many records, some milliseconds; more often would make small requests.
_TURNS_MASK = 0xFFF


class Producer:
    """Sends records to topics. Belongs to one event loop; use it as `async with`.

    >>> import asyncio
    >>> from moldau.testing import broker
    >>> async def greet(bootstrap):
    ...     async with Producer(bootstrap) as producer:
    ...         delivery = await producer.send("greetings", b"hello", key=b"en")
    ...         return (await delivery).offset
    >>> with broker() as b:
    ...     asyncio.run(greet(b.bootstrap))
    0

    Settings are Kafka's, as arguments (`linger_ms=20`) or by their names in `config`
    (`{"linger.ms": 20}`).
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ProducerArguments],
    ) -> None:
        self._face = ProducerSession(bootstrap_servers, config, settings)
        self._is_plain = False
        self._is_closed = False
        self._turns = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> Self:
        """`async with` does it, and so does the first use."""
        await self._started()
        return self

    async def _started(self) -> ProducerEngine:
        if self._is_closed:
            raise ClosedError("this producer is closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            engine = await self._face.open(LoopPatience(), is_shared=False)
            self._append = engine.appender.append
            self._is_plain = self._face.preparation.is_plain
        if loop is not self._loop:
            raise ClientError("an asyncio producer belongs to one event loop; make one in each")
        return self._face.opened

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
        """Takes the record as soon as there is room; it is sent in the background. Await the
        delivery for the broker's answer.
        """
        if self._is_plain and asyncio.get_running_loop() is self._loop:
            delivery = self._append(topic, key, value, partition, timestamp, headers)
            if delivery is not None:
                self._turns += 1
                if not self._turns & _TURNS_MASK:
                    # Other tasks, and answers, have their turn.
                    await asyncio.sleep(0)
                return delivery
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)  # type: ignore[arg-type]
        await self._started()
        face = self._face
        record = face.preparation.prepare(record)
        return face.watch(await face.append(record))

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> AwaitableDeliveries:
        """As `send` for each of them, several times as fast.

        >>> import asyncio
        >>> from moldau.testing import broker
        >>> async def count(bootstrap):
        ...     async with Producer(bootstrap) as producer:
        ...         sent = await producer.send_many("numbers", [b"1", b"2", b"3"])
        ...         return sum(one.records for one in await sent)
        >>> with broker() as b:
        ...     asyncio.run(count(b.bootstrap))
        3
        """
        engine = await self._started()
        values, keys = in_lists(values, keys)
        pieces: list[Piece] = []
        row = 0
        options = partition, timestamp
        while row < len(values):
            if self._is_plain:
                row += engine.appender.append_many(topic, values, keys, options, row, pieces)
                # The loop is ours only for a moment: answers wait.
                await asyncio.sleep(0)
                if row >= len(values):
                    break
            key = None if keys is None else keys[row]
            one = await self.send(topic, values[row], key, partition=partition, timestamp=timestamp)
            pieces.append((one.batch, one.index, 1))
            row += 1
        return AwaitableDeliveries(pieces)

    async def send_table(
        self, topic: str, table: Any, *, partition: int | None = None
    ) -> AwaitableDeliveries:
        """A record for each row of a `pyarrow.Table` or `RecordBatch`, a frame of pandas or Polars,
        or anything else that speaks Arrow's stream interface: column `value` and, if they are
        there, `key`, `headers`, `timestamp`, `partition`; others are left out. Serializers and
        interceptors are not asked.

        >>> import asyncio, pyarrow
        >>> from moldau.testing import broker
        >>> async def send(bootstrap, table):
        ...     async with Producer(bootstrap) as producer:
        ...         sent = await producer.send_table("rows", table)
        ...         return sum(one.records for one in await sent)
        >>> with broker() as b:
        ...     asyncio.run(send(b.bootstrap, pyarrow.table({"value": ["1", "2"]})))
        2
        """
        await self._started()
        return AwaitableDeliveries(await self._face.append_table(topic, table, partition))

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the blocking one
        """Waits until everything sent so far has an outcome, good or bad; `timeout` is in
        seconds.
        """
        engine = await self._started()
        try:
            async with engine.cluster.clock.timeout(None if timeout is None else timeout * 1000):
                await engine.flush()
        except TimeoutError:
            raise ClientTimeoutError(f"not done within {timeout} seconds") from None

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions."""
        engine = await self._started()
        return sorted((await engine.topic(topic)).partitions)

    def metrics(self) -> dict[str, float]:
        """What was counted since the start."""
        return {} if self._face.engine is None else self._face.engine.metrics()

    @property
    def retrying(self) -> KafkaError | None:
        """What the last attempt met that is made again; None if records get through."""
        return None if self._face.engine is None else self._face.engine.retrying

    # Transactions.

    async def init_transactions(self) -> None:
        """Ends what an earlier producer with this transactional.id left, and fences it."""
        await self._started()
        await self._face.transactions.init()

    async def begin_transaction(self) -> None:
        """What is sent from now on is read by read_committed readers only after the commit."""
        await self._started()
        self._face.transactions.begin()

    async def send_offsets(self, offsets: Mapping[TopicPartition, Any], group: Any) -> None:
        """Commits a consumer's offsets with the transaction. `group`: its `group_metadata()`, or
        the id of the group.
        """
        await self._started()
        await self._face.transactions.send_offsets(offsets, group)

    async def commit_transaction(self) -> None:
        """Waits until everything sent in it is written, and then makes it count."""
        await self._started()
        await self._face.transactions.commit()

    async def abort_transaction(self) -> None:
        """Nothing sent in it, records or offsets, ever counts."""
        await self._started()
        await self._face.transactions.abort()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Commits at the end of the block; an error in it aborts. MustAbortError: it was aborted,
        begin another one. MustStopError: close this producer.

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
        if self._face.transactions.is_new:
            await self.init_transactions()
        await self.begin_transaction()
        try:
            yield self
        except BaseException:
            if not self._face.transactions.must_stop:
                await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except Exception:
            if self._face.transactions.must_abort:
                await self.abort_transaction()
            raise

    # The end.

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the blocking one
        """Sends what was taken, `timeout` seconds at most; what is left then fails. Closing twice
        is fine. An open transaction is aborted.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._is_plain = False
        engine = self._face.engine
        if engine is None:
            return
        engine.appender.is_closed = True
        try:
            # What could not be sent, or ended, is told by its delivery.
            with contextlib.suppress(TimeoutError, MoldauError):
                async with engine.cluster.clock.timeout(
                    None if timeout is None else timeout * 1000
                ):
                    await self._face.finish()
        finally:
            await self._face.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
