"""The numbers that groups are run by. The shell makes them from the node's settings."""

from moldau.frozen import frozen
from moldau.types import INT32_MAX

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A new member has no id to send heartbeats with while its first JoinGroup waits. This long."""
PROTOCOL_METADATA_BYTES_MAX = 256 * 1024
PROTOCOLS_MAX = 64
PENDING_MEMBERS_MAX = 2_000
"""Of a shard: ids given out that nobody has joined with yet. They cost their askers nothing, so the
oldest make room. Whoever still joins with one is told that it is unknown, and asks for another.
"""
MEMBER_NAME_CHARS_MAX = 1_000
"""Of a client's name in its member id. Kafka takes all 32,767 that a name can have."""


@frozen(kw_only=True)
class GroupSettings:
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    members_max: int = INT32_MAX
    new_member_join_timeout_ms: int = NEW_MEMBER_JOIN_TIMEOUT_MS
    protocol_metadata_bytes_max: int = PROTOCOL_METADATA_BYTES_MAX
    pending_members_max: int = PENDING_MEMBERS_MAX
    offset_metadata_chars_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_check_interval_ms: int = 600_000
