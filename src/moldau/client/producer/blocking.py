"""The blocking producer: records are appended by the thread that sends them, everything else is
done by a thread of its own.
"""

import atexit
import contextlib
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from moldau.client.arguments.producer import ProducerArguments
from moldau.client.loop_thread import LoopThread
from moldau.client.producer.deliveries import Deliveries, Sent
from moldau.client.producer.delivery_waiting import ThreadPatience, mark_own_thread
from moldau.client.producer.record_preparation import Headers, ProducerRecord, in_lists
from moldau.client.producer.session import ProducerSession
from moldau.platforms import after_fork_in_child
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import TopicPartition

if TYPE_CHECKING:
    from moldau.core.producer.batching import Piece

_EXIT_PATIENCE_S = 5.0
_alive: "weakref.WeakSet[Producer]" = weakref.WeakSet()


class Producer:
    """Sends records to topics. Any number of threads may use one producer; a forked process needs
    one of its own.

    >>> from moldau.testing import broker
    >>> with broker() as b, Producer(b.bootstrap) as producer:
    ...     delivery = producer.send("greetings", b"hello", key=b"en")
    ...     delivery.result(timeout=30).offset
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
        self._thread = LoopThread("moldau-producer")
        self._thread.call(mark_own_thread)
        try:
            engine = self._thread.run(self._face.open(ThreadPatience(), is_shared=True))
        except BaseException:
            self._thread.close()
            raise
        self._appender = engine.appender
        self._append = engine.appender.append
        self._is_plain = self._face.preparation.is_plain
        _alive.add(self)

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
        """Takes the record and returns; it is sent in the background. Waits only if the topic is
        new here or the memory is full, max.block.ms at most. `delivery.result()` waits for the
        broker's answer, `delivery.add_callback(fn)` does not.

        >>> from moldau.testing import broker
        >>> def tell(delivery):
        ...     print(delivery.exception() or delivery.result().offset)
        >>> with broker() as b, Producer(b.bootstrap, value_serializer="json") as producer:
        ...     producer.send("orders", {"id": 7}, headers=[("from", b"web")]).add_callback(tell)
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
        face = self._face
        record = face.preparation.prepare(record)
        delivery = None
        if face.preparation.is_plain or record.partition is not None:
            delivery = self._append(
                record.topic,
                record.key,
                record.value,
                record.partition,
                record.timestamp,
                record.headers,
            )
        if delivery is None:
            delivery = self._thread.run(face.append(record))
        return face.watch(delivery)

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Deliveries:
        """As `send` for each of them, several times as fast.

        >>> from moldau.testing import broker
        >>> with broker() as b, Producer(b.bootstrap) as producer:
        ...     sent = producer.send_many("numbers", [b"1", b"2", b"3"])
        ...     sum(one.records for one in sent.result(timeout=30))
        3
        """
        values, keys = in_lists(values, keys)
        pieces: list[Piece] = []
        row = 0
        options = partition, timestamp
        while row < len(values):
            if self._is_plain:
                row += self._appender.append_many(topic, values, keys, options, row, pieces)
                if row >= len(values):
                    break
            key = None if keys is None else keys[row]
            one = self.send(topic, values[row], key, partition=partition, timestamp=timestamp)
            pieces.append((one.batch, one.index, 1))
            row += 1
        return Deliveries(pieces)

    def send_table(self, topic: str, table: Any, *, partition: int | None = None) -> Deliveries:
        """A record for each row of a `pyarrow.Table` or `RecordBatch`, a frame of pandas or Polars,
        or anything else that speaks Arrow's stream interface: column `value` and, if they are
        there, `key`, `headers`, `timestamp`, `partition`; others are left out. Serializers and
        interceptors are not asked.

        >>> import pyarrow
        >>> from moldau.testing import broker
        >>> table = pyarrow.table({"key": ["a", "b"], "value": ["1", "2"]})
        >>> with broker() as b, Producer(b.bootstrap) as producer:
        ...     sum(one.records for one in producer.send_table("rows", table).result(30))
        2
        """
        return Deliveries(self._thread.run(self._face.append_table(topic, table, partition)))

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything sent so far has an outcome, good or bad; `timeout` is in
        seconds.
        """
        self._thread.run(self._face.opened.flush(), timeout)

    def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions."""
        return sorted(self._thread.run(self._face.opened.topic(topic)).partitions)

    def metrics(self) -> dict[str, float]:
        """What was counted since the start."""
        return self._face.opened.metrics()

    @property
    def retrying(self) -> KafkaError | None:
        """What the last attempt met that is made again; None if records get through."""
        return None if self._face.engine is None else self._face.engine.retrying

    # Transactions.

    def init_transactions(self) -> None:
        """Ends what an earlier producer with this transactional.id left, and fences it."""
        self._thread.run(self._face.transactions.init())

    def begin_transaction(self) -> None:
        """What is sent from now on is read by read_committed readers only after the commit."""

        async def begin() -> None:
            self._face.transactions.begin()

        self._thread.run(begin())

    def send_offsets(self, offsets: Mapping[TopicPartition, Any], group: Any) -> None:
        """Commits a consumer's offsets with the transaction. `group`: its `group_metadata()`, or
        the id of the group.
        """
        self._thread.run(self._face.transactions.send_offsets(offsets, group))

    def commit_transaction(self) -> None:
        """Waits until everything sent in it is written, and then makes it count."""
        self._thread.run(self._face.transactions.commit())

    def abort_transaction(self) -> None:
        """Nothing sent in it, records or offsets, ever counts."""
        self._thread.run(self._face.transactions.abort())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """Commits at the end of the block; an error in it aborts. MustAbortError: it was aborted,
        begin another one. MustStopError: close this producer.

        >>> from moldau.testing import broker
        >>> with broker() as b, Producer(b.bootstrap, transactional_id="copier") as producer:
        ...     with producer.transaction():
        ...         delivery = producer.send("copies", b"all or nothing")
        ...     delivery.result().offset
        0
        """
        if self._face.transactions.is_new:
            self.init_transactions()
        self.begin_transaction()
        try:
            yield self
        except BaseException:
            if not self._face.transactions.must_stop:
                self.abort_transaction()
            raise
        try:
            self.commit_transaction()
        except Exception:
            if self._face.transactions.must_abort:
                self.abort_transaction()
            raise

    # The end.

    def close(self, timeout: float | None = None) -> None:
        """Sends what was taken, `timeout` seconds at most; what is left then fails. Closing twice
        is fine. An open transaction is aborted.
        """
        if not self._thread.is_usable:
            return
        self._thread.check_not_own()
        _alive.discard(self)
        self._appender.is_closed = True
        try:
            # What could not be sent, or ended, is told by its delivery.
            with contextlib.suppress(MoldauError):
                self._thread.run(self._face.finish(), timeout)
            self._thread.run(self._face.close())
        finally:
            self._thread.close()

    def __del__(self) -> None:
        if hasattr(self, "_appender"):
            self._appender.is_closed = True
            self._thread.end_alone(self, self._face.end)

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
    """Whoever forgets to close loses nothing that can be sent soon."""
    for producer in list(_alive):
        producer.close(_EXIT_PATIENCE_S)


after_fork_in_child(_after_fork)
atexit.register(_at_exit)
