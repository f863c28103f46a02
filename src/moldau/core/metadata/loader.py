"""Turns committed batches into images. Batches that arrive together make one delta. A transaction's
records become visible when it ends, those of an aborted one never.
"""

from collections.abc import Sequence
from typing import NamedTuple

from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.core.metadata.replay_errors import MetadataReplayError
from moldau.protocol.log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from moldau.protocol.wire.schema import Message
from moldau.types import LeaderEpoch, Offset


class CommittedBatch(NamedTuple):
    """A batch of the metadata log below its high watermark. Control batches have no records."""

    base_offset: Offset
    last_offset: Offset
    epoch: LeaderEpoch
    append_time_ms: int
    records: Sequence[Message]


class Loaded(NamedTuple):
    delta: MetadataDelta
    image: MetadataImage


class MetadataLoader:
    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self.transaction_start: Offset | None = None
        """The offset of the open transaction's Begin record."""
        self._delta = MetadataDelta(image)
        self._transaction: list[Message] = []
        # The end of the next image: offset, epoch and time of the last replayed or skipped record.
        self._end = (image.offset, image.epoch, image.timestamp_ms)

    def load(self, batch: CommittedBatch) -> None:
        """Raises MetadataReplayError with the offset; the loader is unusable afterwards."""
        for index, record in enumerate(batch.records):
            offset = Offset(batch.base_offset + index)
            if isinstance(record, BeginTransactionRecord) and self.transaction_start is None:
                # Records before it are visible, so the image may end inside the batch.
                self._end = (Offset(offset - 1), batch.epoch, batch.append_time_ms)
            try:
                self._replay(record, offset)
            except MetadataReplayError as error:
                raise MetadataReplayError(
                    f"at offset {offset} of the metadata log: {error}"
                ) from error
        if self.transaction_start is None:
            self._end = (batch.last_offset, batch.epoch, batch.append_time_ms)

    def flush(self) -> Loaded | None:
        """The image with everything that was loaded, except an open transaction. None if nothing
        changed.
        """
        if self._end[0] == self.image.offset:
            return None
        delta = self._delta
        self.image = delta.finish(*self._end)
        self._delta = MetadataDelta(self.image)
        return Loaded(delta, self.image)

    def _replay(self, record: Message, offset: Offset) -> None:
        match record:
            case BeginTransactionRecord():
                if self.transaction_start is not None:
                    raise MetadataReplayError("a transaction begins inside another")
                self.transaction_start = offset
            case EndTransactionRecord():
                self._leave_transaction()
                for held in self._transaction:
                    self._delta.replay(held)
                self._transaction.clear()
            case AbortTransactionRecord():
                self._leave_transaction()
                self._transaction.clear()
            case _ if self.transaction_start is not None:
                self._transaction.append(record)
            case _:
                self._delta.replay(record)

    def _leave_transaction(self) -> None:
        if self.transaction_start is None:
            raise MetadataReplayError("a transaction ends that was never begun")
        self.transaction_start = None
