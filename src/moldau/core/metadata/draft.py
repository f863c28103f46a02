"""A mapping of the next image under construction: shared until the first change, then a copy.
Tracks the keys that differ.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Draft(Generic[K, V]):
    __slots__ = ("_base", "_copy", "changed")

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self._copy: dict[K, V] | None = None
        self.changed: set[K] = set()
        """Keys that were added, replaced or dropped, compared with the base."""

    def get(self, key: K) -> V | None:
        return self.mapping.get(key)

    def put(self, key: K, value: V) -> None:
        self._writable()[key] = value
        self.changed.add(key)

    def drop(self, key: K) -> V | None:
        """Returns the dropped value."""
        dropped = self._writable().pop(key, None)
        if key in self._base:
            self.changed.add(key)
        else:
            self.changed.discard(key)
        return dropped

    def become(self, target: Mapping[K, V]) -> None:
        """Changes the content to `target` as if by records."""
        self._copy = dict(target)
        self.changed = differing_keys(self._base, target)

    @property
    def mapping(self) -> Mapping[K, V]:
        """The result, which becomes part of the image: the draft must not change afterwards."""
        return self._base if self._copy is None else self._copy

    def _writable(self) -> dict[K, V]:
        if self._copy is None:
            self._copy = dict(self._base)
        return self._copy


def differing_keys(before: Mapping[K, V], after: Mapping[K, V]) -> set[K]:
    """Keys that are in one mapping only or have different values."""
    if before is after:
        return set()
    if not before:
        return set(after)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
