"""Loading: batches of a coordinator's log are replayed into its shard in the log's order, so later
records win. An unreadable record stops the load: skipping it could lose state.
"""

from collections.abc import Callable
from typing import TypeAlias

from moldau.core.coordinator.records import CoordinatorRecord
from moldau.core.coordinator.shard import AnyShard
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.records.batches import RecordBatch
from moldau.protocol.records.compression import STORED_OUTPUT_BYTES_MAX
from moldau.protocol.records.control_records import ControlType, marker_of
from moldau.types import NO_PRODUCER_ID, Buffer, Offset

Decoder: TypeAlias = Callable[[Buffer, Buffer | None], CoordinatorRecord | None]
"""Decodes key and value. None for a record type of a later release, which is skipped."""


def replay_batch(shard: AnyShard, batch: RecordBatch, decode: Decoder) -> int:
    """Returns the record count. Raises KafkaError or MalformedRequestError if one is invalid."""
    if batch.is_control:
        marker = marker_of(batch)
        if marker is not None:
            commits = marker.control_type is ControlType.COMMIT
            shard.end_transaction(batch.producer_id, commits=commits)
        return batch.record_count
    # Only a transaction's records wait for their marker; an idempotent writer's count at once.
    producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
    records = batch.records(STORED_OUTPUT_BYTES_MAX)
    for record in records:
        if record.key is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"the record at offset {record.offset} has no key"
            )
        decoded = decode(record.key, record.value)
        if decoded is not None:
            shard.replay(decoded, Offset(record.offset), producer_id)
    return len(records)
