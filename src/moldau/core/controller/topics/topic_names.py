"""Valid topic names. Metrics write `.` as `_`, so two names that differ only in these collide."""

import re
from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
"""Topics that clients see as internal. The metadata log is not a topic for clients."""

NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]*")


def name_problem(name: str) -> str | None:
    """The error message for clients; None if the name is valid."""
    reason = _reason(name)
    return f"Topic name is invalid: {reason}" if reason else None


def is_valid_name(name: str) -> bool:
    return _reason(name) is None


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def may_collide(name: str) -> bool:
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Equal for two names that collide."""
    return name.replace(".", "_")


def _reason(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        characters = "ASCII alphanumerics, '.', '_' and '-'"
        return f"'{name}' contains one or more characters other than {characters}"
    return None
