"""The fetched bytes of one partition, and how much of them has been handed out. Records are decoded
on demand; the bytes stay in the buffer of the response.
"""

from collections.abc import Sequence
from typing import Any

from moldau.core.consumer.positions import PartitionState
from moldau.frozen import frozen
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batches import (
    APPEND_TIME_FLAG,
    BATCH_HEADER_SIZE,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    TRANSACTIONAL_FLAG,
    RecordBatch,
)
from moldau.protocol.records.compression import STORED_OUTPUT_BYTES_MAX
from moldau.protocol.records.control_records import committed_batches
from moldau.protocol.records.record_loops import (
    ConsumerRecord,
    RecordCursor,
    scan_batches,
)
from moldau.protocol.records.scanned_batch import (
    ATTRIBUTES,
    LAST_OFFSET,
    LEADER_EPOCH,
    POSITION,
    RECORD_COUNT,
    SIZE,
    ScannedBatch,
)
from moldau.types import Buffer

Deserializers = tuple[Any, Any]
"""Deserializers of keys and of values; None keeps the bytes."""


@frozen(kw_only=True)
class FetchedBytes:
    buffer: Buffer
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions in read_committed; None reads everything.
    """
    check_crcs: bool = True


class DamagedBatchError(KafkaError):
    """The batch at the consumer's position is damaged."""

    def __init__(self, problem: str, next_offset: int | None) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, problem)
        self.next_offset = next_offset
        """The offset after the batch, by its header; None if the header is invalid."""


class Fetched:
    """The batches of one partition, up to a damaged one. Raises DamagedBatchError if the first one
    is damaged.
    """

    def __init__(self, state: PartitionState, fetched: FetchedBytes) -> None:
        self.state = state
        self.version = state.version
        self.buffer = fetched.buffer
        self.start_offset = state.fetch_offset
        self.aborted = fetched.aborted
        batches, end, problem = scan_batches(
            fetched.buffer, 0, len(fetched.buffer), fetched.check_crcs
        )
        is_progress = bool(batches) and batches[-1][LAST_OFFSET] >= state.fetch_offset
        if problem is not None and not is_progress:
            raise DamagedBatchError(problem, _claimed_end(fetched.buffer, end, state.fetch_offset))
        self.size_bytes = batches[-1][POSITION] + batches[-1][SIZE] if batches else 0
        self.next_offset = batches[-1][LAST_OFFSET] + 1 if batches else state.fetch_offset
        self.last_epoch = batches[-1][LEADER_EPOCH] if batches else state.fetch_epoch
        self.visible = self._visible(batches)
        """The batches without markers, and in read_committed without aborted ones."""
        self._batches = iter(self.visible)
        self._cursor: RecordCursor | None = None
        self._batch_end = 0
        self._epoch = -1

    @property
    def is_stale(self) -> bool:
        return self.version != self.state.version

    def _visible(self, batches: list[ScannedBatch]) -> list[ScannedBatch]:
        data = [
            each
            for each in batches
            if not each[ATTRIBUTES] & CONTROL_FLAG and each[RECORD_COUNT] > 0
        ]
        if not self.aborted or not any(each[ATTRIBUTES] & TRANSACTIONAL_FLAG for each in data):
            return data
        views = (RecordBatch(self.buffer, each[POSITION]) for each in batches)
        kept = {batch.position for batch in committed_batches(views, self.aborted)}
        return [each for each in data if each[POSITION] in kept]

    def take(self, into: list[ConsumerRecord], count: int, readers: Deserializers) -> bool:
        """Appends up to `count` records and moves the position. False if nothing is left."""
        state = self.state
        while count > 0:
            if self._cursor is None and not self._open_next(readers):
                self.finish()
                return False
            assert self._cursor is not None
            count -= self._cursor.take(into, count)
            state.position_epoch = self._epoch
            if self._cursor.left:
                state.position = self._cursor.next_offset
            else:
                state.position = self._batch_end
                self._cursor = None
        return True

    def hand_out(self, count: int) -> bool:
        """Hands out `count` visible batches as a whole. False if nothing is left."""
        if count == len(self.visible):
            self.finish()
            return False
        last = self.visible[count - 1]
        self.start_offset = self.state.position = last[LAST_OFFSET] + 1
        self.state.position_epoch = last[LEADER_EPOCH]
        self._cursor = None
        return True

    def finish(self) -> None:
        """Everything has been handed out."""
        self.state.position = self.next_offset
        self.state.position_epoch = self.last_epoch
        self.state.taken(self.size_bytes)

    def _open_next(self, readers: Deserializers) -> bool:
        for position, size, base, last, epoch, latest, flags, *_, count, first in self._batches:
            if last < self.start_offset:
                continue
            buffer: Buffer = self.buffer
            bounds = position + BATCH_HEADER_SIZE, position + size
            if flags & COMPRESSION_MASK:
                buffer, _ = RecordBatch(buffer, position).body(STORED_OUTPUT_BYTES_MAX)
                bounds = 0, len(buffer)
            topic, number = self.state.partition
            self._cursor = RecordCursor(
                buffer,
                bounds,
                count,
                (base, first, latest if flags & APPEND_TIME_FLAG else None),
                (topic, number, epoch, self.start_offset),
                readers,
            )
            self._batch_end = last + 1
            self._epoch = epoch
            return True
        return False


def _claimed_end(buffer: Buffer, position: int, fetch_offset: int) -> int | None:
    if len(buffer) - position < BATCH_HEADER_SIZE:
        return None
    batch = RecordBatch(buffer, position)
    is_possible = batch.base_offset <= batch.last_offset >= fetch_offset
    return batch.last_offset + 1 if is_possible else None
