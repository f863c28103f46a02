"""From a record to a batch's bytes. Users' threads append while the loop's thread seals: here a
lock separates them, in the compiled module the interpreter lock does.
"""

from array import array
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from moldau.types import Buffer

if TYPE_CHECKING:
    from moldau.core.producer.outcomes import RecordMetadata

HEADER_BYTES = 61
# The length prefix and every varint at its longest: 5 + 1 + 10 + 5 + 5 + 5 + 5.
RECORD_OVERHEAD = 36
MANY_MAX = 4096

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFF_FFFF

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
Piece: TypeAlias = "tuple[Batch, int, int]"
"""A batch, the index of the first record, the number of records."""


class Outcome(Protocol):
    """The result of a batch."""

    def error_of(self, index: int) -> Exception | None: ...
    def metadata(self, batch: "Batch", index: int, timestamp: int) -> "RecordMetadata": ...


class DeliveryWaiter(Protocol):
    """Waits for a delivery on behalf of a caller: in a thread, or in an event loop."""

    def wait(self, delivery: "Delivery", timeout: float | None) -> Outcome: ...
    def awaited(self, delivery: "Delivery") -> Any: ...


class Limits(NamedTuple):
    batch_bytes: int
    """The size at which a batch is ready."""
    growth_bytes: int
    """The largest size of a batch that still waits to be sent."""
    record_bytes_max: int
    memory_bytes: int


class Hooks(NamedTuple):
    """The callbacks of an appender. The compiled one needs no lock."""

    now_ms: Callable[[], int]
    wake: Callable[[], None]
    """A batch is begun, or ready."""
    choose: "Callable[[TopicBuffers], int]"
    """Returns the next partition for records without keys."""
    waiter: DeliveryWaiter | None
    lock: AbstractContextManager[Any]


def murmur2(content: bytes) -> int:
    """Kafka's hash of keys as an unsigned 32-bit number."""
    length = len(content)
    value = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(content[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = value * _M & _MASK ^ k
    if whole < length:
        value = (value ^ int.from_bytes(content[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partitions_of_keys(
    offsets: Buffer, content: Buffer, start: int, rows: int, partition_count: int
) -> bytearray:
    """The partitions of a column's keys as int32, for `rows` rows from `start` on."""
    if partition_count < 1 or start < 0 or rows < 0:
        raise ValueError("invalid number of partitions or rows")
    positions = memoryview(offsets).cast("B").cast("i")
    if len(positions) < start + rows + 1:
        raise ValueError("a column has fewer offsets than rows")
    octets = memoryview(content).cast("B")
    found = array("i")
    for row in range(start, start + rows):
        first, stop = positions[row], positions[row + 1]
        if not 0 <= first <= stop <= len(octets):
            raise ValueError("a column's offsets do not fit its bytes")
        found.append((murmur2(bytes(octets[first:stop])) & 0x7FFF_FFFF) % partition_count)
    return bytearray(found.tobytes())


def _varint(value: int) -> bytes:
    raw = (value << 1 ^ value >> 63) & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _octets(content: bytes | None) -> bytes:
    return b"\x01" if content is None else _varint(len(content)) + content


def _is_plain(content: Any) -> bool:
    return content is None or type(content) is bytes


def _is_number(value: Any) -> bool:
    """Whether the value is None or an int from 0 to 2^63-1."""
    return value is None or (type(value) is int and 0 <= value < 1 << 63)


def _encoded_headers(headers: Headers | None) -> bytes | None:
    """None unless the headers are pairs of str and bytes or None, which can be written directly."""
    parts = [_varint(len(headers or ()))]
    for pair in headers or ():
        if type(pair) is not tuple or len(pair) != 2:
            return None
        name, content = pair
        if type(name) is not str or not _is_plain(content):
            return None
        parts.append(_octets(name.encode()))
        parts.append(_octets(content))
    return b"".join(parts)


class Batch:
    """Records of one partition that are sent together. Open until sealed; ready when large enough
    to be sent at once; done when the batch, or all of its parts, have an outcome.
    """

    def __init__(self, topic: str, partition: int, capacity: int) -> None:
        self.topic = topic
        self.partition = partition
        self.count = 0
        self.is_open = True
        self.is_ready = False
        self.base_timestamp = 0
        self.max_timestamp = 0
        self.held_bytes = max(capacity, HEADER_BYTES)
        """The batch's share of the producer's memory."""
        self.outcome: Outcome | None = None
        self.parts: list[Batch] | None = None
        self.callbacks: list[tuple[int, Callable[[Delivery], object], Delivery]] | None = None
        self.waiter: DeliveryWaiter | None = None
        self._body: bytearray | None = bytearray(HEADER_BYTES)
        self._size = HEADER_BYTES

    @staticmethod
    def of_rows(
        topic: str, partition: int, body: bytearray, facts: tuple[int, int, int]
    ) -> "Batch":
        """A sealed batch of encoded records. `facts`: count, base and latest timestamp."""
        batch = Batch(topic, partition, len(body))
        batch._body = body
        batch._size = batch.held_bytes = len(body)
        batch.count, batch.base_timestamp, batch.max_timestamp = facts
        batch.is_ready = True
        batch.is_open = False
        return batch

    @property
    def size_bytes(self) -> int:
        return self._size

    def seal(self) -> bytearray:
        """Closes the batch for appends and returns its body, with room for the header in front."""
        self.is_open = False
        assert self._body is not None
        return self._body

    def release(self) -> None:
        self._body = None

    def _write(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes
    ) -> None:
        assert self._body is not None
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
        record = b"".join(
            (
                b"\x00",
                _varint(timestamp - self.base_timestamp),
                _varint(self.count),
                _octets(key),
                _octets(value),
                headers,
            )
        )
        self._body += _varint(len(record))
        self._body += record
        self._size = len(self._body)
        self.count += 1


class Delivery:
    """The future result of sending one record."""

    __slots__ = ("batch", "index", "timestamp")

    def __init__(self, batch: Batch, index: int, timestamp: int) -> None:
        self.batch = batch
        self.index = index
        self.timestamp = timestamp

    def done(self) -> bool:
        """Returns whether the record was written or has failed."""
        return leaf_of(self.batch, self.index)[0].outcome is not None

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Returns the error if the record failed, else None. Waits up to `timeout` seconds, like
        `result`.
        """
        leaf, index = leaf_of(self.batch, self.index)
        outcome = leaf.outcome
        if outcome is None:
            assert self.batch.waiter is not None
            outcome = self.batch.waiter.wait(self, timeout)
            _, index = leaf_of(self.batch, self.index)
        return outcome.error_of(index)

    def result(self, timeout: float | None = None) -> "RecordMetadata":
        """Returns where the record was written. Waits up to `timeout` seconds, and raises the
        record's error if it failed.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        leaf, index = leaf_of(self.batch, self.index)
        assert leaf.outcome is not None
        return leaf.outcome.metadata(leaf, index, self.timestamp)

    def add_callback(self, fn: "Callable[[Delivery], object]") -> None:
        """Calls `fn(delivery)` in the client's thread when the record is done, or at once if it
        already is.
        """
        leaf, index = leaf_of(self.batch, self.index)
        if leaf.callbacks is None:
            leaf.callbacks = []
        leaf.callbacks.append((index, fn, self))
        # The thread that finishes the batch takes the list; callbacks that remain were not seen.
        if leaf.outcome is not None or leaf.parts is not None:
            try:
                leaf.callbacks.remove((index, fn, self))
            except ValueError:
                return
            if leaf.outcome is not None:
                fn(self)
            else:
                self.add_callback(fn)

    def __await__(self) -> 'Generator[Any, None, "RecordMetadata"]':
        assert self.batch.waiter is not None
        waiting: Generator[Any, None, RecordMetadata] = self.batch.waiter.awaited(self).__await__()
        return waiting


def leaf_of(batch: Batch, index: int) -> tuple[Batch, int]:
    """The batch that a record is in now, and its index there: batches can be split."""
    while batch.parts is not None:
        for part in batch.parts:
            if index < part.count:
                batch = part
                break
            index -= part.count
        else:
            raise IndexError(index)
    return batch, index


class TopicBuffers:
    """The open batches of one topic. `hashes_keys`: murmur2 of the key chooses the partition;
    `is_sticky`: records without a key stay with one partition for a batch. Otherwise the caller
    names the partition.
    """

    def __init__(self, name: str, partition_count: int, hashes_keys: bool, is_sticky: bool) -> None:
        self.name = name
        self.hashes_keys = hashes_keys
        self.is_sticky = is_sticky
        self.sticky = 0
        self._sticky_bytes = 0
        self._open: list[Batch | None] = []
        self.resize(partition_count)

    def resize(self, partition_count: int) -> None:
        if partition_count < 1:
            raise ValueError("a topic has at least one partition")
        self.partition_count = partition_count
        self._open += [None] * (partition_count - len(self._open))
        if self.sticky >= partition_count:
            self.sticky = 0


class Appender:
    """All open batches of a producer, and its free memory. Any thread may append."""

    def __init__(self, limits: Limits, hooks: Hooks) -> None:
        self._topics: dict[str, TopicBuffers] = {}
        self._begun: list[Batch] = []
        self._batch_bytes, self._growth_bytes, self._record_bytes_max, self.room = limits
        self.is_closed = False
        self._is_woken = False
        self._now_ms, self._wake, self._choose, self._waiter, self._lock = hooks

    def add_topic(self, topic: TopicBuffers) -> None:
        self._topics[topic.name] = topic

    def topic(self, name: str) -> TopicBuffers | None:
        return self._topics.get(name)

    def forget_topic(self, name: str) -> None:
        self._topics.pop(name, None)

    def take_begun(self) -> list[Batch]:
        """The batches that were begun since the last call."""
        with self._lock:
            begun, self._begun = self._begun, []
            self._is_woken = False
        return begun

    def append(
        self,
        name: str,
        key: Any,
        value: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Any,
    ) -> Delivery | None:
        """The record's Delivery, or None if the caller must take the slower path: the topic is
        unknown, memory is full, the record is too large, its parts are not bytes, or another
        partitioner chooses the partition.
        """
        if type(name) is not str or not _is_number(partition) or not _is_number(timestamp):
            return None
        topic = self._topics.get(name)
        if topic is None or not (headers is None or type(headers) in {tuple, list}):
            return None
        time = self._now_ms() if timestamp is None else timestamp
        with self._lock:
            return self._add(topic, key, value, tuple(headers or ()), (partition, time))

    def append_many(
        self,
        name: str,
        values: list[Any],
        keys: list[Any] | None,
        options: tuple[int | None, int | None],
        start: int,
        pieces: list[Piece],
    ) -> int:
        """Appends values from `start` on, as many as fit and at most a few thousand, and returns
        their number. `pieces` gets the (batch, first, count) of each batch. `options`: partition
        and timestamp, or None.
        """
        topic = self._topics.get(name)
        if topic is None or start < 0:
            return 0
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys for {len(values)} values")
        partition, timestamp = options
        target = partition, self._now_ms() if timestamp is None else timestamp
        row = start
        last: tuple[Batch, int, int] | None = None
        for row in range(start, min(len(values), start + MANY_MAX)):
            key = None if keys is None else keys[row]
            with self._lock:
                delivery = self._add(topic, key, values[row], (), target)
            if delivery is None:
                break
            if last is not None:
                batch, first, count = last
                if delivery.batch is batch and delivery.index == first + count:
                    last = batch, first, count + 1
                    continue
                pieces.append(last)
            last = delivery.batch, delivery.index, 1
        else:
            row = max(start, min(len(values), start + MANY_MAX))
        if last is not None:
            pieces.append(last)
        return row - start

    def _add(
        self,
        topic: TopicBuffers,
        key: Any,
        value: Any,
        headers: Headers,
        target: tuple[int | None, int],
    ) -> Delivery | None:
        partition, timestamp = target
        if self.is_closed or not _is_plain(value) or not _is_plain(key):
            return None
        encoded = _encoded_headers(headers)
        if encoded is None:
            return None
        needed = RECORD_OVERHEAD + len(encoded) + len(key or b"") + len(value or b"")
        if needed > self._record_bytes_max:
            return None
        number = self._route(topic, key, partition)
        batch = None if number is None else self._room_in(topic, number, needed)
        if batch is None:
            return None
        delivery = Delivery(batch, batch.count, timestamp)
        batch._write(timestamp, key, value, encoded)
        if partition is None and not (key is not None and topic.hashes_keys):
            topic._sticky_bytes += needed
        becomes_ready = not batch.is_ready and batch.size_bytes >= self._batch_bytes
        if becomes_ready:
            batch.is_ready = True
        if (becomes_ready or batch.count == 1) and not self._is_woken:
            self._is_woken = True
            self._wake()
        return delivery

    def _route(self, topic: TopicBuffers, key: bytes | None, partition: int | None) -> int | None:
        if partition is not None:
            return partition if 0 <= partition < topic.partition_count else None
        if key is not None and topic.hashes_keys:
            return (murmur2(key) & 0x7FFF_FFFF) % topic.partition_count
        if not topic.is_sticky:
            return None
        if topic._sticky_bytes >= self._batch_bytes and topic.partition_count > 1:
            topic._sticky_bytes = 0
            topic.sticky = self._choose(topic)
        return topic.sticky

    def _room_in(self, topic: TopicBuffers, partition: int, needed: int) -> Batch | None:
        batch = topic._open[partition]
        is_over = (
            batch is not None and batch.count and batch.size_bytes + needed > self._growth_bytes
        )
        if batch is None or not batch.is_open or is_over:
            capacity = max(self._batch_bytes, needed + HEADER_BYTES)
            if self.room < capacity:
                return None
            batch = Batch(topic.name, partition, capacity)
            batch.waiter = self._waiter
            self.room -= capacity
            topic._open[partition] = batch
            self._begun.append(batch)
        if batch.size_bytes + needed > batch.held_bytes:
            capacity = max(2 * batch.held_bytes, batch.size_bytes + needed)
            if self.room < capacity - batch.held_bytes:
                return None
            self.room -= capacity - batch.held_bytes
            batch.held_bytes = capacity
        return batch
