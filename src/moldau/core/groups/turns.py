"""The turn of a group shard, with the sequels that its appends may have."""

from typing import TYPE_CHECKING, Never, TypeAlias

if TYPE_CHECKING:
    from moldau.core.coordinator.effects import Turn
    from moldau.core.groups.classic_protocol import Sequel

GroupTurn: TypeAlias = "Turn[Sequel, Never]"
"""Never: a group shard requests no work outside its log."""
