"""Findings as names and values, in one vocabulary for plain text and JSON: the names that Apache's
kafka-dump-log prints.
"""

import base64
from typing import Any

from moldau.cli.shared.escaping import utf8_text
from moldau.storage.inspection.items import (
    AbortedTransactionFound,
    BatchFound,
    CheckpointOffsetFound,
    Decoded,
    EpochFound,
    OffsetIndexEntryFound,
    PartitionFound,
    ProducerFound,
    PropertyFound,
    RecordFound,
    Row,
    TimeIndexEntryFound,
)

Fields = dict[str, Any]

ROW_NAMES: dict[type, str] = {
    BatchFound: "batch",
    RecordFound: "record",
    OffsetIndexEntryFound: "offsetIndexEntry",
    TimeIndexEntryFound: "timeIndexEntry",
    AbortedTransactionFound: "abortedTransaction",
    ProducerFound: "producer",
    EpochFound: "leaderEpoch",
    CheckpointOffsetFound: "checkpointOffset",
    PropertyFound: "property",
    PartitionFound: "partition",
}


def fields_of(row: Row) -> Fields:
    match row:
        case BatchFound():
            return _batch(row)
        case RecordFound():
            return _record(row)
        case ProducerFound():
            return _producer(row)
        case OffsetIndexEntryFound():
            return {"offset": row.offset, "position": row.position}
        case TimeIndexEntryFound():
            return {"timestamp": row.timestamp, "offset": row.offset}
        case EpochFound():
            return {"epoch": row.epoch, "startOffset": row.start_offset}
        case CheckpointOffsetFound():
            return {"topic": row.topic, "partition": row.partition, "offset": row.offset}
        case PropertyFound():
            return {row.name: row.value}
        case _:
            return _entry_or_partition(row)


def _entry_or_partition(row: AbortedTransactionFound | PartitionFound) -> Fields:
    if isinstance(row, AbortedTransactionFound):
        return {
            "version": row.version,
            "producerId": row.producer_id,
            "firstOffset": row.first_offset,
            "lastOffset": row.last_offset,
            "lastStableOffset": row.last_stable_offset,
        }
    return {
        "partition": row.name,
        "state": row.state,
        "segments": row.segments,
        "startOffset": row.start_offset,
        "endOffset": row.end_offset,
        "batches": row.batches,
        "records": row.records,
        "size": row.size_bytes,
        "problems": row.problems,
    }


def _batch(row: BatchFound) -> Fields:
    return {
        "baseOffset": row.base_offset,
        "lastOffset": row.last_offset,
        "count": row.record_count,
        "baseSequence": row.base_sequence,
        "lastSequence": row.last_sequence,
        "producerId": row.producer_id,
        "producerEpoch": row.producer_epoch,
        "partitionLeaderEpoch": row.partition_leader_epoch,
        "isTransactional": row.is_transactional,
        "isControl": row.is_control,
        "deleteHorizonMs": row.delete_horizon_ms,
        "position": row.position,
        row.timestamp_type: row.max_timestamp,
        "size": row.size_bytes,
        "magic": row.magic,
        "compresscodec": row.compression,
        "crc": row.crc,
        "isvalid": row.crc_is_valid,
    }


def _record(row: RecordFound) -> Fields:
    fields: Fields = {
        "offset": row.offset,
        row.timestamp_type: row.timestamp,
        "keySize": -1 if row.key is None else len(row.key),
        "valueSize": -1 if row.value is None else len(row.value),
        "sequence": row.sequence,
    }
    if row.is_control:
        return fields | _control(row)
    fields |= _content("key", row.key, row.decoded_key)
    fields |= _content("payload", row.value, row.decoded_value)
    fields["headers"] = [[name, _text_or_base64(value)] for name, value in row.headers]
    return fields


def _control(row: RecordFound) -> Fields:
    if row.decoded_key is None:
        return {}
    value = row.decoded_value.fields if row.decoded_value else {}
    return {"controlType": row.decoded_key.name, "control": value}


def _content(name: str, content: bytes | None, decoded: Decoded | None) -> Fields:
    if decoded is not None:
        return {name: decoded_fields(decoded)}
    if content is None:
        return {name: None}
    text = utf8_text(content)
    return {name: text} if text is not None else {f"{name}Base64": _base64(content)}


def decoded_fields(decoded: Decoded) -> Fields:
    return {"type": decoded.name, "version": decoded.version, "data": decoded.fields}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _text_or_base64(content: bytes | None) -> Any:
    if content is None:
        return None
    text = utf8_text(content)
    return text if text is not None else {"base64": _base64(content)}


def _producer(row: ProducerFound) -> Fields:
    fields: Fields = {
        "producerId": row.producer_id,
        "producerEpoch": row.producer_epoch,
        "coordinatorEpoch": row.coordinator_epoch,
        "currentTxnFirstOffset": row.current_transaction_first_offset,
        "lastTimestamp": row.last_timestamp,
    }
    if row.last_offset >= 0:
        fields |= {
            "firstSequence": row.first_sequence,
            "lastSequence": row.last_sequence,
            "lastOffset": row.last_offset,
            "offsetDelta": row.offset_delta,
            "timestamp": row.last_timestamp,
        }
    return fields


def shown_bytes(content: bytes | None) -> str:
    """Printable text as it is, everything else as hexadecimal digits."""
    if content is None:
        return "null"
    text = utf8_text(content)
    return text if text is not None and text.isprintable() else "0x" + content.hex()
