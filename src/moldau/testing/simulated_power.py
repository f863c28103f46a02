"""The state of a simulated disk after a power failure: files and directories as a synced state plus
a list of changes, and the ways in which a write can be torn.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from moldau.frozen import frozen

SECTOR_BYTES = 512
_GARBAGE = bytes(range(0xA0, 0xB0)) * (SECTOR_BYTES // 16)
_TORN_SECTORS_MAX = 16


@frozen
class Write:
    effect: int
    path: str
    offset: int
    content: bytes

    def apply(self, file: bytearray) -> None:
        if len(file) < self.offset:
            file.extend(bytes(self.offset - len(file)))
        file[self.offset : self.offset + len(self.content)] = self.content


@frozen
class Resize:
    effect: int
    path: str
    size: int

    def apply(self, file: bytearray) -> None:
        del file[self.size :]
        file.extend(bytes(self.size - len(file)))


@frozen
class Link:
    """A name for a node, made or moved from the name `gone` in one step."""

    effect: int
    path: str
    name: str
    node: "Node"
    gone: str | None

    def apply(self, entries: dict[str, "Node"]) -> None:
        if self.gone is not None:
            entries.pop(self.gone, None)
        entries[self.name] = self.node


@frozen
class Unlink:
    effect: int
    path: str
    name: str

    def apply(self, entries: dict[str, "Node"]) -> None:
        entries.pop(self.name, None)


Change: TypeAlias = Write | Resize | Link | Unlink


class FileNode:
    """`content` is the programs' view; `durable` is the synced content; `pending` is the
    difference.
    """

    __slots__ = ("_dropped", "content", "durable", "modified_ms", "parent", "pending")

    def __init__(
        self,
        content: bytes = b"",
        *,
        parent: "DirectoryNode | None" = None,
        modified_ms: int = 0,
    ) -> None:
        self.content = bytearray(content)
        self.durable = content
        self.pending: list[Write | Resize] = []
        self.parent = parent
        self.modified_ms = modified_ms
        # Effects whose sync failed: they may have reached the disk, but no later sync writes them.
        self._dropped: set[int] = set()

    def change(self, change: Write | Resize) -> None:
        change.apply(self.content)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable = self.surviving(lambda change: change.effect not in self._dropped, None)
        self.pending = []
        self._dropped = set()

    def drop_pending(self) -> None:
        self._dropped.update(change.effect for change in self.pending)

    def surviving(self, keep: Callable[[Change], bool], torn: "Torn | None") -> bytes:
        content = bytearray(self.durable)
        for change in self.pending:
            if torn is not None and change.effect == torn.effect:
                torn.change.apply(content)
            elif keep(change):
                change.apply(content)
        return bytes(content)

    def copied(self, copies: dict[int, "Node"]) -> "FileNode":
        copy = FileNode(self.durable, modified_ms=self.modified_ms)
        copy.content = self.content[:]
        copy.pending = list(self.pending)
        copy._dropped = set(self._dropped)
        copies[id(self)] = copy
        return copy


class DirectoryNode:
    """`entries` is the programs' view; `durable` is the synced state."""

    __slots__ = ("durable", "entries", "modified_ms", "parent", "pending")

    def __init__(self, *, parent: "DirectoryNode | None" = None) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[Link | Unlink] = []
        self.parent = parent
        self.modified_ms = 0

    def change(self, change: Link | Unlink) -> None:
        change.apply(self.entries)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending = []

    def sync_until(self, effect: int) -> None:
        """Syncs everything up to and including that effect."""
        for change in [c for c in self.pending if c.effect <= effect]:
            change.apply(self.durable)
            self.pending.remove(change)

    def drop_pending(self) -> None:
        """Does nothing: after a failed sync of a directory its changes stay pending, because their
        state is unknown.
        """

    def walk(self) -> "Iterator[Node]":
        """This directory and every node that is or was in it, once each."""
        seen: set[int] = set()
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                if isinstance(node, DirectoryNode):
                    waiting.extend(node.known())

    def known(self) -> "list[Node]":
        linked = [change.node for change in self.pending if isinstance(change, Link)]
        return [*self.entries.values(), *self.durable.values(), *linked]

    def surviving(self, keep: Callable[[Change], bool]) -> dict[str, "Node"]:
        entries = dict(self.durable)
        for change in self.pending:
            if keep(change):
                change.apply(entries)
        return entries

    def copied(self, copies: dict[int, "Node"]) -> "DirectoryNode":
        copy = DirectoryNode()
        copies[id(self)] = copy
        copy.modified_ms = self.modified_ms

        def copy_of(node: Node) -> Node:
            made = copies.get(id(node)) or node.copied(copies)
            made.parent = copy
            return made

        copy.entries = {name: copy_of(node) for name, node in self.entries.items()}
        copy.durable = {name: copy_of(node) for name, node in self.durable.items()}
        copy.pending = [
            replace(change, node=copy_of(change.node)) if isinstance(change, Link) else change
            for change in self.pending
        ]
        return copy


Node: TypeAlias = FileNode | DirectoryNode


@frozen
class Torn:
    """The change that reached the disk instead of the write with this effect number."""

    name: str
    effect: int
    change: Write


def zeroed(change: Write) -> Torn:
    """The file has its new size but its content is lost, as with delayed allocation."""
    return Torn("zeros", change.effect, replace(change, content=bytes(len(change.content))))


def torn_variants(change: Change) -> list[Torn]:
    """The write cut at sector boundaries of the file; after the cut the file ends, or holds zeros,
    or the cut sector holds garbage. All changes but writes are atomic.
    """
    if not isinstance(change, Write):
        return []
    content, end = change.content, change.offset + len(change.content)
    first = (change.offset // SECTOR_BYTES + 1) * SECTOR_BYTES
    cuts = [change.offset, *range(first, end, SECTOR_BYTES)]
    variants: list[Torn] = []
    for cut in cuts[:: -(-len(cuts) // _TORN_SECTORS_MAX)]:
        kept = content[: cut - change.offset]
        sector_end = min((cut // SECTOR_BYTES + 1) * SECTOR_BYTES, end)
        garbage = kept + _GARBAGE[: sector_end - cut]
        endings = {"cut": kept, "zeros": kept.ljust(len(content), b"\0"), "garbage": garbage}
        variants.extend(
            Torn(f"{name} at {cut}", change.effect, replace(change, content=ending))
            for name, ending in endings.items()
            if ending
        )
    return variants


def survivors(
    root: DirectoryNode, keep: Callable[[Change], bool], torn: Torn | None
) -> DirectoryNode:
    """The tree after a power failure; all of it is durable."""
    made: dict[int, Node] = {}

    def rebuilt(node: Node) -> Node:
        if id(node) in made:
            return made[id(node)]
        after: Node
        if isinstance(node, FileNode):
            after = FileNode(node.surviving(keep, torn), modified_ms=node.modified_ms)
            made[id(node)] = after
            return after
        after = DirectoryNode()
        made[id(node)] = after
        for name, child in node.surviving(keep).items():
            after.entries[name] = rebuilt(child)
            after.entries[name].parent = after
        after.durable = dict(after.entries)
        after.modified_ms = node.modified_ms
        return after

    tree = rebuilt(root)
    assert isinstance(tree, DirectoryNode)
    return tree


def durable_content(root: DirectoryNode, path: Path) -> bytes | None:
    """The content that the file has after every power failure; None if its name may be lost."""
    node: Node | None = root
    for name in path.parts[1:]:
        node = node.durable.get(name) if isinstance(node, DirectoryNode) else None
    return node.durable if isinstance(node, FileNode) else None


def contents_of(root: DirectoryNode) -> Iterator[tuple[str, bytes | None]]:
    """Every path with its content (None for a directory), in the order of the paths."""
    waiting: list[tuple[str, Node]] = [("", root)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, FileNode):
            yield path, bytes(node.content)
        else:
            yield path, None
            children = sorted(node.entries.items(), reverse=True)
            waiting.extend((f"{path}/{name}", child) for name, child in children)
