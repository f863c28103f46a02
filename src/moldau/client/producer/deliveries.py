"""What becomes of many records that were sent in one call."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol

from moldau.core.producer.batching import Batch, Delivery, Piece, leaf_of
from moldau.core.producer.outcomes import RecordMetadata, Written
from moldau.types import NO_OFFSET


class WrittenRange(NamedTuple):
    """Records that follow each other in a partition."""

    topic: str
    partition: int
    first_offset: int
    """-1 if the broker did not say."""
    records: int


class Sent(Protocol):
    """What became, or will become, of a record that the blocking producer took."""

    @property
    def batch(self) -> Batch:
        """What it is sent in; of the producer's inside."""

    @property
    def index(self) -> int:
        """Its place in the batch, from 0."""

    def done(self) -> bool:
        """Whether its outcome is known."""

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The error that it failed with, or None; waits as `result` does."""

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where it was written. Waits for that, `timeout` seconds at most; raises what it failed
        with.
        """

    def add_callback(self, fn: Callable[["Sent"], object]) -> None:
        """`fn(sent)` runs when the outcome is known, in the client's own thread; at once if it is
        known already.
        """


class Deliveries:
    """In the order of the records, as far as they share a partition."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return sum(count for _, _, count in self._pieces)

    def __iter__(self) -> Iterator[Sent]:
        """One for each record; its time is that of the batch's first."""
        for batch, first, count in self._pieces:
            for index in range(first, first + count):
                yield Delivery(batch, index, batch.base_timestamp)

    def done(self) -> bool:
        """Whether the outcome of every record is known."""
        return all(one.done() for one in self)

    def result(self, timeout: float | None = None) -> list[WrittenRange]:
        """Waits for all of them, `timeout` seconds at most for each batch; raises the first
        error.
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
    """The records from `index` on that share an outcome with it, which is known and good."""
    leaf, inner = leaf_of(batch, index)
    assert isinstance(leaf.outcome, Written)
    base = leaf.outcome.base_offset
    offset = NO_OFFSET if base < 0 else base + inner
    return WrittenRange(leaf.topic, leaf.partition, offset, min(stop - index, leaf.count - inner))


class AwaitableDeliveries(Deliveries):
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[WrittenRange]]:
        """All of them; raises the first error."""
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
