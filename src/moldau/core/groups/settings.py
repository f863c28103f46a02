"""Settings of the group coordinator. The shell takes them from the node's configuration."""

from moldau.frozen import frozen
from moldau.types import INT32_MAX

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member's first JoinGroup may wait. Without an id it cannot send heartbeats."""
PROTOCOL_METADATA_BYTES_MAX = 256 * 1024
PROTOCOLS_MAX = 64
PENDING_MEMBERS_MAX = 2_000
"""The most pending member ids of a shard. A request for one costs a client nothing, so the oldest
are dropped. A client that joins with a dropped id gets UNKNOWN_MEMBER_ID and requests another.
"""
MEMBER_NAME_CHARS_MAX = 1_000
"""A member id begins with this much of the client id. Kafka uses all of it, up to 32,767."""


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
