"""Fetched records as Arrow tables."""

from collections.abc import Collection
from typing import Any

from moldau.client.consumer.fetching import Fetching
from moldau.client.errors import ClientError
from moldau.frozen import frozen
from moldau.protocol.errors import MoldauError
from moldau.protocol.records.arrow import (
    COLUMNS,
    ArrowRead,
    arrow_schema,
    decode_scanned_to_arrow,
    imported_pyarrow,
)
from moldau.protocol.records.compression import STORED_OUTPUT_BYTES_MAX

# Tables of this size are cheap to make and fit into a cache.
_BYTES_MAX_DEFAULT = 32 << 20


@frozen
class ArrowOptions:
    columns: tuple[str, ...]
    bytes_max: int

    @classmethod
    def of(cls, columns: Collection[str] | None, max_bytes: int | None) -> "ArrowOptions":
        chosen = COLUMNS if columns is None else tuple(columns)
        unknown = [name for name in chosen if name not in COLUMNS]
        if unknown or not chosen:
            raise ClientError(
                f"unknown column {', '.join(unknown)}; choose from {', '.join(COLUMNS)}"
                if unknown
                else f"no column chosen; choose from {', '.join(COLUMNS)}"
            )
        return cls(chosen, _BYTES_MAX_DEFAULT if max_bytes is None else max_bytes)


def take_table(fetching: Fetching, options: ArrowOptions) -> Any:
    """All records that have arrived, up to the size, but at least one batch. A batch that cannot be
    decoded raises an error every time, until a seek past it.
    """
    pa = imported_pyarrow()
    batches: list[Any] = []
    size_bytes = 0
    while size_bytes < options.bytes_max and (fetched := fetching.first_ready()) is not None:
        state = fetched.state
        topic, number = state.partition
        read = ArrowRead(
            topic=topic,
            partition=number,
            columns=options.columns,
            start_offset=max(fetched.start_offset, state.position or 0),
            decompressed_bytes_max=STORED_OUTPUT_BYTES_MAX,
        )
        room_bytes = options.bytes_max - size_bytes
        try:
            decoded = decode_scanned_to_arrow(fetched.buffer, fetched.visible, read, room_bytes)
        except MoldauError:
            if batches:
                break
            # The batches before the damaged one are returned first.
            decoded = decode_scanned_to_arrow(fetched.buffer, fetched.visible, read, 1)
        batches.append(decoded.rows)
        size_bytes += decoded.size_bytes
        fetching.mark_taken(fetched, decoded.batches)
    fetching.counts.records += sum(batch.num_rows for batch in batches)
    return pa.Table.from_batches(batches, schema=arrow_schema(options.columns))
