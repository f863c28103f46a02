"""The blocking producer: the user's thread appends a record to a batch, and the producer's own
thread does everything else.
"""

import atexit
import contextlib
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from moldau.client.arguments.producer import ProducerArguments
from moldau.client.loop_thread import LoopThread
from moldau.client.producer import aio
from moldau.client.producer.deliveries import Deliveries, Sent
from moldau.client.producer.delivery_waiting import ThreadWaiter, mark_own_thread
from moldau.client.producer.record_preparation import Headers, ProducerRecord, as_lists
from moldau.client.producer.session import ProducerSession
from moldau.client.twin_docs import documented_by
from moldau.platforms import after_fork_in_child
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import TopicPartition

if TYPE_CHECKING:
    from moldau.core.producer.batching import Piece

_EXIT_PATIENCE_S = 5.0
_alive: "weakref.WeakSet[Producer]" = weakref.WeakSet()


class Producer:
    """Sends records to topics.

    Any number of threads may use it. A forked process needs a producer of its own. `send` returns
    at once: `delivery.result()` waits for the broker's answer, `delivery.add_callback(function)`
    does not.

    Examples:
        >>> from moldau.testing import broker
        >>> with broker() as b, Producer(b.bootstrap) as producer:
        ...     delivery = producer.send("greetings", b"hello", key=b"en")
        ...     delivery.result(timeout=30).offset
        0
    """

    @documented_by(aio.Producer.__init__)
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ProducerArguments],
    ) -> None:
        self._session = ProducerSession(bootstrap_servers, config, settings)
        self._thread = LoopThread("moldau-producer")
        self._thread.call(mark_own_thread)
        try:
            engine = self._thread.run(self._session.open(ThreadWaiter(), is_shared=True))
        except BaseException:
            self._thread.close()
            raise
        self._appender = engine.appender
        self._append = engine.appender.append
        self._is_plain = self._session.preparation.is_plain
        _alive.add(self)

    @documented_by(aio.Producer.send)
    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Sent:
        """
        Examples:
            >>> from moldau.testing import broker
            >>> def report(delivery):
            ...     print(delivery.exception() or delivery.result().offset)
            >>> with broker() as b, Producer(b.bootstrap, value_serializer="json") as producer:
            ...     delivery = producer.send("orders", {"id": 7}, headers=[("from", b"web")])
            ...     delivery.add_callback(report)
            ...     producer.flush()
            0
        """
        if self._is_plain:
            delivery = self._append(topic, key, value, partition, timestamp, headers)
            if delivery is not None:
                return delivery
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)  # type: ignore[arg-type]
        return self._send_slowly(record)

    def _send_slowly(self, record: ProducerRecord) -> Sent:
        if not self._thread.is_usable:
            raise self._thread.refusal()
        session = self._session
        record = session.preparation.prepare(record)
        delivery = None
        if session.preparation.is_plain or record.partition is not None:
            delivery = self._append(
                record.topic,
                record.key,
                record.value,
                record.partition,
                record.timestamp,
                record.headers,
            )
        if delivery is None:
            delivery = self._thread.run(session.append(record))
        return session.watch(delivery)

    @documented_by(aio.Producer.send_many)
    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Deliveries:
        """
        Examples:
            >>> from moldau.testing import broker
            >>> with broker() as b, Producer(b.bootstrap) as producer:
            ...     sent = producer.send_many("numbers", [b"1", b"2", b"3"])
            ...     sum(written.records for written in sent.result(timeout=30))
            3
        """
        values, keys = as_lists(values, keys)
        pieces: list[Piece] = []
        row = 0
        options = partition, timestamp
        while row < len(values):
            if self._is_plain:
                row += self._appender.append_many(topic, values, keys, options, row, pieces)
                if row >= len(values):
                    break
            key = None if keys is None else keys[row]
            delivery = self.send(topic, values[row], key, partition=partition, timestamp=timestamp)
            pieces.append((delivery.batch, delivery.index, 1))
            row += 1
        return Deliveries(pieces)

    @documented_by(aio.Producer.send_table)
    def send_table(self, topic: str, table: Any, *, partition: int | None = None) -> Deliveries:
        """
        Examples:
            >>> import pyarrow
            >>> from moldau.testing import broker
            >>> table = pyarrow.table({"key": ["a", "b"], "value": ["1", "2"]})
            >>> with broker() as b, Producer(b.bootstrap) as producer:
            ...     sent = producer.send_table("rows", table)
            ...     sum(written.records for written in sent.result(timeout=30))
            2
        """
        return Deliveries(self._thread.run(self._session.append_table(topic, table, partition)))

    @documented_by(aio.Producer.flush)
    def flush(self, timeout: float | None = None) -> None:
        self._thread.run(self._session.opened.flush(), timeout)

    @documented_by(aio.Producer.partitions_for)
    def partitions_for(self, topic: str) -> list[int]:
        return sorted(self._thread.run(self._session.opened.topic(topic)).partitions)

    @documented_by(aio.Producer.metrics)
    def metrics(self) -> dict[str, float]:
        return self._session.opened.metrics()

    @property
    @documented_by(aio.Producer.retrying)
    def retrying(self) -> KafkaError | None:
        return None if self._session.engine is None else self._session.engine.retrying

    # Transactions.

    @documented_by(aio.Producer.init_transactions)
    def init_transactions(self) -> None:
        self._thread.run(self._session.transactions.init())

    @documented_by(aio.Producer.begin_transaction)
    def begin_transaction(self) -> None:

        async def begin() -> None:
            self._session.transactions.begin()

        self._thread.run(begin())

    @documented_by(aio.Producer.send_offsets)
    def send_offsets(self, offsets: Mapping[TopicPartition, Any], group: Any) -> None:
        self._thread.run(self._session.transactions.send_offsets(offsets, group))

    @documented_by(aio.Producer.commit_transaction)
    def commit_transaction(self) -> None:
        self._thread.run(self._session.transactions.commit())

    @documented_by(aio.Producer.abort_transaction)
    def abort_transaction(self) -> None:
        self._thread.run(self._session.transactions.abort())

    @contextlib.contextmanager
    @documented_by(aio.Producer.transaction)
    def transaction(self) -> Iterator[Self]:
        """
        Examples:
            >>> from moldau.testing import broker
            >>> with broker() as b, Producer(b.bootstrap, transactional_id="copier") as producer:
            ...     with producer.transaction():
            ...         delivery = producer.send("copies", b"all or nothing")
            ...     delivery.result().offset
            0
        """
        if self._session.transactions.is_new:
            self.init_transactions()
        self.begin_transaction()
        try:
            yield self
        except BaseException:
            if not self._session.transactions.must_stop:
                self.abort_transaction()
            raise
        try:
            self.commit_transaction()
        except Exception:
            if self._session.transactions.must_abort:
                self.abort_transaction()
            raise

    # The end.

    @documented_by(aio.Producer.close)
    def close(self, timeout: float | None = None) -> None:
        if not self._thread.is_usable:
            return
        self._thread.check_not_own()
        _alive.discard(self)
        self._appender.is_closed = True
        try:
            # The deliveries report what could not be sent.
            with contextlib.suppress(MoldauError):
                self._thread.run(self._session.finish(), timeout)
            self._thread.run(self._session.close())
        finally:
            self._thread.close()

    def __del__(self) -> None:
        if hasattr(self, "_appender"):
            self._appender.is_closed = True
            self._thread.end_in_background(self, self._session.end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _lost_by_fork(self) -> None:
        self._appender.is_closed = True


def _after_fork() -> None:
    for producer in list(_alive):
        producer._lost_by_fork()
    _alive.clear()


def _at_exit() -> None:
    """A producer that was not closed still sends what it can within a few seconds."""
    for producer in list(_alive):
        producer.close(_EXIT_PATIENCE_S)


after_fork_in_child(_after_fork)
atexit.register(_at_exit)
