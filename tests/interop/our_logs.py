"""Our side of a comparison: writers that append to our logs and remember their records, and a
reader that sees a log as a consumer of either isolation level does.
"""

from collections.abc import Iterable

from interop.live_broker import ServedRecord

from moldau.protocol.records.batch_builder import BatchOptions, build_batch
from moldau.protocol.records.batches import Record, RecordBatch, TimestampType, iterate_batches
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    committed_batches,
    end_transaction_marker,
)
from moldau.storage.log.log import Log
from moldau.storage.log.read import Isolation
from moldau.storage.producers.state import AppendOrigin
from moldau.types import LeaderEpoch, ProducerEpoch

READ_BYTES = 200_000
PlainRecord = tuple[int, bytes | None, bytes | None]


def read_all(log: Log, *, committed: bool = False) -> list[ServedRecord]:
    """The records that a consumer would get from the log's start to its end."""
    log.raise_high_watermark(log.log_end_offset)
    isolation = Isolation.COMMITTED if committed else Isolation.HIGH_WATERMARK
    end = log.last_stable_offset if committed else log.high_watermark
    records: list[ServedRecord] = []
    offset = log.log_start_offset
    while offset < end:
        result = log.read(offset, READ_BYTES, isolation=isolation)
        assert result.next_offset > offset, f"no progress at {offset}"
        batches: Iterable[RecordBatch] = iterate_batches(result.records)
        if committed:
            aborted = [(each.producer_id, each.first_offset) for each in result.aborted or ()]
            batches = committed_batches(batches, aborted)
        records += _served(batches, offset)
        offset = result.next_offset
    return records


def _served(batches: Iterable[RecordBatch], from_offset: int) -> list[ServedRecord]:
    served = []
    for batch in batches:
        batch.check_crc()
        if batch.is_control:
            continue
        stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        for record in batch.records():
            if record.offset >= from_offset:
                timestamp = batch.max_timestamp if stamped else record.timestamp
                served.append(ServedRecord(record.offset, timestamp, *record[2:]))
    return served


class Writer:
    """One producer of one log. Without an id it is a plain producer; transactions need an id."""

    def __init__(
        self,
        log: Log,
        *,
        codec: Compression = Compression.NONE,
        producer_id: int = -1,
        producer_epoch: int = 0,
        coordinator_epoch: int = 0,
    ) -> None:
        self.log = log
        self.codec = codec
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch if producer_id >= 0 else -1
        self.next_sequence = 0 if producer_id >= 0 else -1
        self.coordinator_epoch = coordinator_epoch
        self.written: list[ServedRecord] = []
        self._leader_epoch = max(log.epochs.latest_epoch or 0, 0)

    def append(
        self,
        records: Iterable[PlainRecord],
        now_ms: int,
        *,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        is_transactional: bool = False,
    ) -> None:
        """Append one batch and remember its records as they must be served."""
        built = [Record(n, *record, headers) for n, record in enumerate(records)]
        options = BatchOptions(
            compression=self.codec,
            producer_id=self.producer_id,
            producer_epoch=ProducerEpoch(self.producer_epoch),
            base_sequence=self.next_sequence,
            is_transactional=is_transactional,
        )
        result = self.log.append_as_leader(
            build_batch(built, options),
            LeaderEpoch(self._leader_epoch),
            now_ms,
            transaction_version=1,
        )
        assert result.last_offset - result.first_offset + 1 == len(built)
        if self.producer_id >= 0:
            self.next_sequence += len(built)
        for record in built:
            timestamp = result.append_time_ms if result.append_time_ms >= 0 else record.timestamp
            offset = result.first_offset + record.offset
            self.written.append(ServedRecord(offset, timestamp, *record[2:]))

    def end_transaction(self, now_ms: int, *, commit: bool) -> None:
        """Append the marker that a coordinator writes when a transaction ends."""
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker = EndTransactionMarker(control_type=kind, coordinator_epoch=self.coordinator_epoch)
        origin = MarkerOrigin(
            producer_id=self.producer_id, producer_epoch=ProducerEpoch(self.producer_epoch)
        )
        self.log.append_as_leader(
            end_transaction_marker(marker, origin, now_ms),
            LeaderEpoch(self._leader_epoch),
            now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=1,
        )
