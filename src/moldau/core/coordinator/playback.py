"""Loading: batches of a coordinator's log, replayed into its shard in the log's order, so that
later records win. What cannot be read stops the load: guessing would lose somebody's state.
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
from moldau.types import NO_PRODUCER_ID, Buffer

Decoder: TypeAlias = Callable[[Buffer, Buffer | None], CoordinatorRecord | None]
"""Key and value to a record; None for a type of a later release, which is left where it is."""


def replay_batch(shard: AnyShard, batch: RecordBatch, decode: Decoder) -> int:
    """How many records there were. Raises KafkaError or MalformedRequestError for a record that
    cannot be what it should be.
    """
    if batch.is_control:
        marker = marker_of(batch)
        if marker is not None:
            commits = marker.control_type is ControlType.COMMIT
            shard.end_transaction(batch.producer_id, commits=commits)
        return batch.record_count
    # An idempotent writer's records count at once; only a transaction's wait for their marker.
    producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
    records = batch.records(STORED_OUTPUT_BYTES_MAX)
    for record in records:
        if record.key is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"the record at offset {record.offset} has no key"
            )
        decoded = decode(record.key, record.value)
        if decoded is not None:
            shard.replay(decoded, record.offset, producer_id)
    return len(records)
