"""The deliveries of many records that were sent in one call."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol

from moldau.core.producer.batching import Batch, Delivery, Piece, leaf_of
from moldau.core.producer.outcomes import RecordMetadata, Written
from moldau.types import NO_OFFSET


class WrittenRange(NamedTuple):
    """Consecutive records of one partition."""

    topic: str
    partition: int
    first_offset: int
    """-1 if the broker did not report it."""
    records: int
    """The number of records."""


class Sent(Protocol):
    """The delivery of a record that the blocking producer queued: pending, done or failed."""

    @property
    def batch(self) -> Batch:
        """The batch that carries the record; internal to the producer."""

    @property
    def index(self) -> int:
        """The number of the record in its batch, from 0."""

    def done(self) -> bool:
        """Returns whether the record is delivered or has failed."""

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Waits for the outcome, and returns the error instead of raising it.

        Args:
            timeout: How many seconds to wait; None for no limit.

        Returns:
            The error that the record failed with; None if it was delivered.

        Raises:
            ClientTimeoutError: It took longer.
        """

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the broker has acknowledged the record.

        Args:
            timeout: How many seconds to wait; None for no limit.

        Returns:
            The partition and offset that the record was written to.

        Raises:
            ClientTimeoutError: It took longer; the record may still be delivered.
            KafkaError: The record failed.
        """

    def add_callback(self, fn: Callable[["Sent"], object]) -> None:
        """Adds a function to call when the record is delivered or has failed.

        Args:
            fn: Called with this delivery, in the producer's own thread; at once, in the calling
                thread, if the outcome is known already.
        """


class Deliveries:
    """The deliveries of many records. `result` waits for all of them."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return sum(count for _, _, count in self._pieces)

    def __iter__(self) -> Iterator[Sent]:
        """One delivery for each record; its timestamp is that of the first record in the batch."""
        for batch, first, count in self._pieces:
            for index in range(first, first + count):
                yield Delivery(batch, index, batch.base_timestamp)

    def done(self) -> bool:
        """Returns whether every record is delivered or has failed."""
        return all(delivery.done() for delivery in self)

    def result(self, timeout: float | None = None) -> list[WrittenRange]:
        """Waits until the brokers have acknowledged all records.

        Args:
            timeout: How many seconds to wait for each batch; None for no limit.

        Returns:
            Where the records were written, in their order within each partition.

        Raises:
            ClientTimeoutError: It took longer; the records may still be delivered.
            KafkaError: A record failed; this is the error of the first one.
        """
        found: list[WrittenRange] = []
        for batch, first, count in self._pieces:
            index = first
            while index < first + count:
                error = Delivery(batch, index, 0).exception(timeout)
                if error is not None:
                    raise error
                found.append(_range(batch, index, first + count))
                index += found[-1].records
        return found


def _range(batch: Batch, index: int, stop: int) -> WrittenRange:
    """The records from `index` on that were written together with it."""
    leaf, inner = leaf_of(batch, index)
    assert isinstance(leaf.outcome, Written)
    base = leaf.outcome.base_offset
    offset = NO_OFFSET if base < 0 else base + inner
    return WrittenRange(leaf.topic, leaf.partition, offset, min(stop - index, leaf.count - inner))


class AwaitableDeliveries(Deliveries):
    """The deliveries of many records. Awaiting it waits for all of them, as `result` does."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[WrittenRange]]:
        """Waits for all records; raises the first error."""
        return self._all().__await__()

    async def _all(self) -> list[WrittenRange]:
        found: list[WrittenRange] = []
        for batch, first, count in self._pieces:
            index = first
            while index < first + count:
                await Delivery(batch, index, 0)
                found.append(_range(batch, index, first + count))
                index += found[-1].records
        return found
