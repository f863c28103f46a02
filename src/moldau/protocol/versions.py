"""Versions of requests and features from which they mean something else, where more than one module
goes by them: brokers and clients, or a handler and what it asks. A version that a single module
knows about stays in that module.
"""

from moldau.protocol.enums import ListOffsetsTimestamp

ADD_PARTITIONS_BY_BROKERS = 4
END_TXN_BUMPS_EPOCH = 5
FETCH_TOPIC_IDS = 13
FIND_COORDINATOR_BATCHES = 4
LEAVE_GROUP_MEMBERS = 3
OFFSET_COMMIT_TOPIC_IDS = 10
OFFSET_FETCH_GROUPS = 8
OFFSET_FETCH_TOPIC_IDS = 10
PRODUCE_ADDS_PARTITIONS = 12
PRODUCE_TOPIC_IDS = 13
TXN_OFFSET_COMMIT_ADDS_PARTITIONS = 5

LIST_OFFSETS_SPECIAL: dict[int, int] = {
    ListOffsetsTimestamp.LATEST: 1,
    ListOffsetsTimestamp.EARLIEST: 1,
    ListOffsetsTimestamp.MAX_TIMESTAMP: 7,
    ListOffsetsTimestamp.EARLIEST_LOCAL: 8,
    ListOffsetsTimestamp.LATEST_TIERED: 9,
    ListOffsetsTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
"""The version of ListOffsets that brought each special timestamp."""

BUMPS_EPOCH_FROM = 2
"""The `transaction.version` from which the end of a transaction raises the producer's epoch
(KIP-890).
"""
