"""A turn of a shard of groups: which sequels its appends may have."""

from typing import TYPE_CHECKING, Never, TypeAlias

if TYPE_CHECKING:
    from moldau.core.coordinator.effects import Turn
    from moldau.core.groups.classic_protocol import Sequel

GroupTurn: TypeAlias = "Turn[Sequel, Never]"
"""Nothing but the log is asked for anything."""
