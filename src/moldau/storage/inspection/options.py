"""Options of an inspection. All kinds of files share them."""

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
    # Decode the batches and yield every record.
    records: bool = False
    # Decode the batches, but yield only problems.
    check_records: bool = False
    decoding: Decoding = Decoding.AUTO
    # Stop a file after this many rows, or before the batch that ends beyond this many bytes.
    rows_max: int | None = None
    bytes_max: int | None = None
    # Show salts, keys and passwords that stored records contain.
    secrets: bool = False
    filesystem: FileSystem = field(default_factory=ReadOnlyDisk)
    on_progress: Callable[[int], None] | None = None
