"""The loops over records, compiled if possible. The twins document and type them."""

from typing import TYPE_CHECKING

from moldau.compiled import USE_COMPILED
from moldau.protocol.records._records_twin import (
    BAD_CRC,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_NULL,
    BAD_OFFSET_DELTA,
    BAD_OFFSETS,
    BAD_TIMESTAMP,
    INCOMPLETE,
    NO_KEY,
    RecordToEncode,
    StampLimits,
)

if TYPE_CHECKING or not USE_COMPILED:
    from moldau.protocol.records._record_columns_twin import ColumnSink, encode_columns
    from moldau.protocol.records._record_cursor_twin import ConsumerRecord, RecordCursor
    from moldau.protocol.records._record_times_twin import first_record_at
    from moldau.protocol.records._records_twin import (
        batches_within,
        decode_records,
        encode_records,
        scan_batches,
        stamp_batch,
        validate_records,
    )
else:
    from moldau.protocol.records._records import (
        ColumnSink,
        ConsumerRecord,
        RecordCursor,
        batches_within,
        decode_records,
        encode_columns,
        encode_records,
        first_record_at,
        scan_batches,
        stamp_batch,
        validate_records,
    )

__all__ = [
    "BAD_CRC",
    "BAD_LENGTH",
    "BAD_MAGIC",
    "BAD_NULL",
    "BAD_OFFSETS",
    "BAD_OFFSET_DELTA",
    "BAD_TIMESTAMP",
    "INCOMPLETE",
    "NO_KEY",
    "ColumnSink",
    "ConsumerRecord",
    "RecordCursor",
    "RecordToEncode",
    "StampLimits",
    "batches_within",
    "decode_records",
    "encode_columns",
    "encode_records",
    "first_record_at",
    "scan_batches",
    "stamp_batch",
    "validate_records",
]
