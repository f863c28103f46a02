"""Selects the compiled loops of compaction or their Python twins; all other modules import them
from here.
"""

from typing import TYPE_CHECKING

from moldau.compiled import USE_COMPILED

if TYPE_CHECKING or not USE_COMPILED:
    from moldau.storage.compaction._compaction_twin import (
        SLOT_BYTES,
        OffsetMap,
        filter_records,
        index_records,
        rebase_timestamps,
    )
else:
    from moldau.storage.compaction._compaction import (
        SLOT_BYTES,
        OffsetMap,
        filter_records,
        index_records,
        rebase_timestamps,
    )

__all__ = ["SLOT_BYTES", "OffsetMap", "filter_records", "index_records", "rebase_timestamps"]
