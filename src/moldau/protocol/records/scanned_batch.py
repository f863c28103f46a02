"""One batch as `scan_batches` and `stamp_batch` return it: a tuple of thirteen numbers, which cost
less to make and to read than attributes. The constants are their indexes.
"""

from typing import Final, TypeAlias

from moldau.types import LeaderEpoch, Offset, ProducerEpoch

ScannedBatch: TypeAlias = tuple[
    int, int, Offset, Offset, LeaderEpoch, int, int, int, ProducerEpoch, int, int, int, int
]  # fmt: skip

POSITION: Final = 0
SIZE: Final = 1
BASE_OFFSET: Final = 2
LAST_OFFSET: Final = 3
LEADER_EPOCH: Final = 4
MAX_TIMESTAMP: Final = 5
ATTRIBUTES: Final = 6
PRODUCER_ID: Final = 7
PRODUCER_EPOCH: Final = 8
BASE_SEQUENCE: Final = 9
LAST_OFFSET_DELTA: Final = 10
RECORD_COUNT: Final = 11
BASE_TIMESTAMP: Final = 12
