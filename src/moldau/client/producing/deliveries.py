"""What becomes of many records that were sent in one call."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol

from moldau.core.client.batching import Batch, Delivery, Piece, leaf_of
from moldau.core.client.outcomes import NO_OFFSET, RecordMetadata, Written


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
    def batch(self) -> Batch: ...
    @property
    def index(self) -> int: ...
    def done(self) -> bool: ...
    def exception(self, timeout: float | None = None) -> Exception | None: ...
    def result(self, timeout: float | None = None) -> RecordMetadata: ...
    def add_callback(self, fn: Callable[["Sent"], object]) -> None: ...


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
        return all(one.done() for one in self._last_ones())

    def result(self, timeout: float | None = None) -> list[WrittenRange]:
        """Waits for all of them, `timeout` seconds at most for each batch; raises the first
        error.
        """
        for last in self._last_ones():
            error = last.exception(timeout)
            if error is not None:
                raise error
        return self._ranges()

    def _last_ones(self) -> Iterator[Delivery]:
        """The last record of each stretch that shares one outcome."""
        for batch, first, count in self._pieces:
            index = first
            while index < first + count:
                leaf, inner = leaf_of(batch, index)
                stop = min(first + count, index + leaf.count - inner)
                yield Delivery(batch, stop - 1, 0)
                index = stop

    def _ranges(self) -> list[WrittenRange]:
        found: list[WrittenRange] = []
        for batch, first, count in self._pieces:
            index = first
            while index < first + count:
                leaf, inner = leaf_of(batch, index)
                taken = min(first + count - index, leaf.count - inner)
                assert isinstance(leaf.outcome, Written)
                base = leaf.outcome.base_offset
                offset = NO_OFFSET if base < 0 else base + inner
                found.append(WrittenRange(leaf.topic, leaf.partition, offset, taken))
                index += taken
        return found


class AwaitableDeliveries(Deliveries):
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[WrittenRange]]:
        """All of them; raises the first error."""
        return self._all().__await__()

    async def _all(self) -> list[WrittenRange]:
        for last in self._last_ones():
            await last
        return self._ranges()
