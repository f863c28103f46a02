"""What the user of an inspection may choose. Shared by all kinds of files."""

import enum
from collections.abc import Callable
from dataclasses import field

from moldau.frozen import frozen
from moldau.storage.disk.filesystem import FileSystem
from moldau.storage.inspection.source import ReadOnlyDisk


class Decoding(enum.Enum):
    """How keys and values of records are read."""

    AUTO = "auto"
    NONE = "none"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"
    METADATA = "metadata"
    SHARE = "share"


@frozen(kw_only=True)
class InspectionOptions:
    # Look inside the batches and yield every record.
    records: bool = False
    # Look inside the batches, but yield only what is wrong.
    check_records: bool = False
    decoding: Decoding = Decoding.AUTO
    # Stop a file after so many rows, or before the batch that ends beyond so many bytes.
    rows_max: int | None = None
    bytes_max: int | None = None
    # Show salts, keys and passwords that stored records carry.
    secrets: bool = False
    filesystem: FileSystem = field(default_factory=ReadOnlyDisk)
    on_progress: Callable[[int], None] | None = None
