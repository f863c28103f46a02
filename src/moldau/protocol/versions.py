"""Versions of requests and features that change their meaning, if more than one module depends on
them: a broker and a client, or a handler and a coordinator. A version that only one module needs is
defined in that module.
"""

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.enums import ListOffsetsTimestamp
from moldau.protocol.error_codes import ErrorCode

ADD_PARTITIONS_BY_BROKERS = 4
END_TXN_BUMPS_EPOCH = 5
FETCH_TOPIC_IDS = 13
FETCH_NAMES_MAX = FETCH_TOPIC_IDS - 1
"""The last version of Fetch that names topics."""
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
"""The first version of ListOffsets with each special timestamp."""

_PRODUCER_FENCED: dict[int, int] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The version of each API whose clients know PRODUCER_FENCED."""


def code_for_version(code: ErrorCode, api_key: ApiKey, version: int) -> ErrorCode:
    """Older clients do not know PRODUCER_FENCED, and treat INVALID_PRODUCER_EPOCH the same way."""
    if code is ErrorCode.PRODUCER_FENCED and version < _PRODUCER_FENCED[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


BUMPS_EPOCH_FROM = 2
"""The `transaction.version` from which the end of a transaction raises the producer's epoch
(KIP-890).
"""
