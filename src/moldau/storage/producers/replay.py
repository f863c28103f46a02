"""Replays batches of the log into a partition's producer table: after a crash, after a truncation,
and whenever a snapshot is older than the log.
"""

from collections.abc import Iterable

from moldau.protocol.records.batches import CONTROL_FLAG, TRANSACTIONAL_FLAG, RecordBatch
from moldau.protocol.records.control_records import ControlType, marker_of
from moldau.protocol.records.scanned_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
    ScannedBatch,
)
from moldau.storage.log.damaged_bytes import TolerantScan
from moldau.storage.producers.entry import DataBatch, EndMarker
from moldau.storage.producers.state import (
    AppendOrigin,
    CompletedTransaction,
    ProducerAppend,
    ProducerStateTable,
)
from moldau.storage.segment.segment import Segment
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.types import Offset, ProducerId


def end_marker(batch: RecordBatch, offset: Offset) -> EndMarker | None:
    """The marker in a control batch; None if the batch controls something else."""
    marker = marker_of(batch)
    if marker is None:
        return None
    return EndMarker(
        batch.producer_id,
        batch.producer_epoch,
        offset,
        batch.max_timestamp,
        marker.coordinator_epoch,
        marker.control_type is ControlType.ABORT,
    )


def data_batch(header: ScannedBatch) -> DataBatch:
    return DataBatch(
        header[PRODUCER_ID],
        header[PRODUCER_EPOCH],
        header[BASE_SEQUENCE],
        header[BASE_OFFSET],
        header[LAST_OFFSET],
        header[MAX_TIMESTAMP],
        bool(header[ATTRIBUTES] & TRANSACTIONAL_FLAG),
    )


def complete(
    table: ProducerStateTable, segment: Segment, completed: Iterable[CompletedTransaction]
) -> None:
    """Adds an aborted transaction to the index of the segment that holds its marker."""
    for transaction in completed:
        if transaction.is_aborted:
            segment.transaction_index.append(
                AbortedTransaction(
                    ProducerId(transaction.producer_id),
                    transaction.first_offset,
                    transaction.last_offset,
                    table.last_stable_offset_after(transaction),
                )
            )
        table.complete_transaction(transaction)


def replay_headers(
    table: ProducerStateTable,
    segment: Segment,
    headers: Iterable[ScannedBatch],
    *,
    index_aborts: bool,
) -> None:
    """Replays batches of the log. `index_aborts` also rebuilds the transaction index."""
    append: ProducerAppend | None = None
    for header in [h for h in headers if h[PRODUCER_ID] >= 0]:
        if append is None:
            append = table.begin_append(AppendOrigin.REPLICATION)
        if not header[ATTRIBUTES] & CONTROL_FLAG:
            append.add_data(data_batch(header))
            continue
        batch = RecordBatch(segment.file.read(header[POSITION], header[SIZE]))
        marker = end_marker(batch, header[BASE_OFFSET])
        if marker is not None:
            append.add_marker(marker)
        # The index entry of a marker must not depend on the batches after it.
        table.apply(append)
        if index_aborts:
            complete(table, segment, append.completed)
        else:
            for transaction in append.completed:
                table.complete_transaction(transaction)
        append = None
    if append is not None:
        table.apply(append)


def replay_segment(
    table: ProducerStateTable, segment: Segment, start_offset: Offset, end_offset: Offset
) -> None:
    """Replays the batches of the segment in [start_offset, end_offset), including the one that
    contains `start_offset`: some of its records may be deleted, but its producer is still known.
    """
    first = segment.locate(start_offset)
    if first is None:
        return
    offsets = range(first.base_offset, segment.offset_limit)
    scan = TolerantScan(segment.file, first.position, segment.size, offsets=offsets)
    for headers in scan:
        batches = [
            h for h in headers if start_offset <= h[LAST_OFFSET] and h[BASE_OFFSET] < end_offset
        ]
        replay_headers(table, segment, batches, index_aborts=False)
        if headers and headers[-1][LAST_OFFSET] >= end_offset:
            return
    if scan.damaged:
        segment.examine()
