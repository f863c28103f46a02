"""Declares a client's setting from the broker's setting of the same name."""

from collections.abc import Mapping
from typing import Any

from moldau.config.schema import Check, Importance, Setting


def declared_from_broker(
    broker: Mapping[str, Setting],
    name: str,
    importance: Importance | None = None,
    *,
    check: Check | None = None,
    has_effect: bool = False,
) -> Any:
    """Type, default and doc are the broker's; a client's setting never changes at run time."""
    theirs = broker[name]
    own = Setting(name, theirs.kind, theirs.default, theirs.doc, has_effect=has_effect)
    own.importance = importance or theirs.importance
    own.check = check or theirs.check
    return own
