"""A disk in memory that can lose power, tear writes, fill up and fail. It is deterministic and has
no globals: randomness is passed in as a `random.Random`.

Every call that changes something is one *effect* with a number. Unsynced content, and names
(creations, renames, removals) whose directory was not synced, may be lost in a power failure.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from moldau.testing.simulated_faults import Effect, FaultPlan, SimulatedCrash
from moldau.testing.simulated_power import (
    Change,
    DirectoryNode,
    FileNode,
    Link,
    Node,
    Resize,
    Torn,
    Unlink,
    Write,
    contents_of,
    survivors,
    torn_variants,
    zeroed,
)
from moldau.types import Buffer

__all__ = ["Effect", "SimulatedCrash", "SimulatedDisk", "SimulatedFile"]

_PREFIX_VARIANTS_MAX = 16


class SimulatedFile:
    """An open file. It follows its node, so it survives renames as a descriptor does."""

    reports_cached = True

    def __init__(self, disk: "_SimulatedFileSystem", path: Path, node: FileNode) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._open = True

    def size(self) -> int:
        self._check()
        return len(self._node.content)

    def read(self, offset: int, length: int) -> bytes:
        self._check()
        self._disk.check_read(self.path)
        return bytes(self._node.content[offset : offset + length])

    def cached_view(self, _offset: int, _size: int) -> memoryview | None:
        return None

    def read_into(self, target: memoryview, offset: int, *, wait: bool = True) -> int:
        self._check()
        if not wait:
            self._disk.check_cached(self.path)
        content = self.read(offset, len(target))
        target[: len(content)] = content
        return len(content)

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        content = b"".join(buffers)
        self._write("append", len(self._node.content), content)

    def write_at(self, offset: int, content: Buffer) -> None:
        self._check()
        self._write("write", offset, bytes(content))

    def truncate(self, size: int) -> None:
        self._check()
        number, fault = self._disk.begin("truncate", self.path, size)
        if fault:
            raise fault.error
        self._node.change(Resize(number, str(self.path), size))
        self._disk.finish(self._node)

    def sync(self) -> None:
        self._check()
        _, fault = self._disk.begin("sync", self.path, 0)
        if fault:
            # As on Linux: the pages count as clean now, and no later sync writes them.
            self._node.drop_pending()
            raise fault.error
        if not self._disk.lying_sync:
            self._node.sync()
            if self._disk.sync_keeps_name and self._node.parent is not None:
                self._node.parent.sync()
        self._disk.finish(self._node)

    def close(self) -> None:
        self._open = False

    def _write(self, kind: str, offset: int, content: bytes) -> None:
        number, fault = self._disk.begin(kind, self.path, len(content))
        kept = content[: fault.bytes_written] if fault else content
        if kept or not fault:
            self._node.change(Write(number, str(self.path), offset, kept))
        self._disk.finish(self._node)
        if fault:
            raise fault.error

    def _check(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))


class _SimulatedFileSystem(FaultPlan):
    """The part that the log uses: a FileSystem."""

    def __init__(self, *, sync_keeps_name: bool, lying_sync: bool) -> None:
        super().__init__()
        self.sync_keeps_name = sync_keeps_name
        self.lying_sync = lying_sync
        self.free_space_bytes = 1 << 40
        self._root = DirectoryNode()
        self._locked: set[int] = set()

    def open(self, path: Path, *, create: bool = False) -> SimulatedFile:
        directory = self._directory(path.parent)
        node = directory.entries.get(path.name)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            node = FileNode(parent=directory)
            self._link("create", path, directory, node)
        if not isinstance(node, FileNode):
            raise _error(errno.EISDIR, path)
        return SimulatedFile(self, path, node)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def list_directory(self, path: Path) -> list[str]:
        return sorted(self._directory(path).entries)

    def make_directory(self, path: Path) -> None:
        directory, here = self._root, Path(path.anchor)
        for name in _names(path):
            here /= name
            child = directory.entries.get(name)
            if child is None:
                child = DirectoryNode(parent=directory)
                self._link("mkdir", here, directory, child)
            if not isinstance(child, DirectoryNode):
                raise _error(errno.EEXIST, path)
            directory = child

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._find(path), DirectoryNode)

    def rename(self, source: Path, target: Path) -> None:
        directory, into = self._directory(source.parent), self._directory(target.parent)
        node = directory.entries.get(source.name)
        if node is None:
            raise _error(errno.ENOENT, source)
        replaced = into.entries.get(target.name)
        if isinstance(replaced, DirectoryNode) and replaced.entries:
            raise _error(errno.ENOTEMPTY, target)
        if into is directory:
            self._link("rename", target, directory, node, gone=source.name)
        else:
            self._move(source, target, node)

    def _move(self, source: Path, target: Path, node: Node) -> None:
        """A move between directories is one effect on one path: both halves survive, or neither
        does.
        """
        number, fault = self.begin("rename", target, 0)
        if fault:
            raise fault.error
        into, where = self._directory(target.parent), str(source.parent)
        into.change(Link(number, where, target.name, node, None))
        self._directory(source.parent).change(Unlink(number, where, source.name))
        node.parent = into
        self.finish(into)

    def remove(self, path: Path) -> None:
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            raise _error(errno.EISDIR, path)
        if node is not None:
            self._unlink("remove", path)

    def remove_tree(self, path: Path) -> None:
        if not self.exists(path):
            return
        for name in self.list_directory(path):
            if self.is_directory(path / name):
                self.remove_tree(path / name)
            else:
                self._unlink("remove", path / name)
        self._unlink("rmdir", path)

    @contextlib.contextmanager
    def hold_directory(self, path: Path) -> Iterator[Callable[[], None]]:
        yield lambda: self.sync_directory(path)

    def sync_directory(self, path: Path) -> None:
        directory = self._directory(path)
        _, fault = self.begin("sync_directory", path, 0)
        if fault:
            directory.drop_pending()
            raise fault.error
        if not self.lying_sync:
            effects = {change.effect for change in directory.pending}
            for other in self._root.walk():
                # A journal writes both halves of a move together, along with everything before
                # them.
                if isinstance(other, DirectoryNode) and other is not directory:
                    shared = [c.effect for c in other.pending if c.effect in effects]
                    if shared:
                        other.sync_until(max(shared))
            directory.sync()
        self.finish(None)

    @contextlib.contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        self.open(path, create=True)
        key = id(self._find(path))
        if key in self._locked:
            raise BlockingIOError(errno.EAGAIN, "locked", str(path))
        self._locked.add(key)
        try:
            yield
        finally:
            self._locked.discard(key)

    def file_size(self, path: Path) -> int:
        return self.open(path).size()

    def modified_ms(self, path: Path) -> int:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node.modified_ms

    def free_bytes(self, path: Path) -> int:
        self._directory(path)
        return self.free_space_bytes

    def total_bytes(self, path: Path) -> int:
        return self.free_bytes(path) + sum(map(len, self._contents()))

    def _contents(self) -> Iterator[bytes]:
        return (content for _, content in contents_of(self._root) if content is not None)

    def _find(self, path: Path) -> Node | None:
        node: Node | None = self._root
        for name in _names(path):
            if not isinstance(node, DirectoryNode):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: Path) -> DirectoryNode:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, DirectoryNode):
            raise _error(errno.ENOTDIR, path)
        return node

    def _link(
        self,
        kind: str,
        path: Path,
        directory: DirectoryNode,
        node: Node,
        *,
        gone: str | None = None,
    ) -> None:
        number, fault = self.begin(kind, path, 0)
        if fault:
            raise fault.error
        directory.change(Link(number, str(path.parent), path.name, node, gone))
        self.finish(directory)

    def _unlink(self, kind: str, path: Path) -> None:
        directory = self._directory(path.parent)
        number, fault = self.begin(kind, path, 0)
        if fault:
            raise fault.error
        directory.change(Unlink(number, str(path.parent), path.name))
        self.finish(directory)


class SimulatedDisk(_SimulatedFileSystem):
    """A FileSystem that a test can break.

        disk = SimulatedDisk()
        ...  # write through the disk
        after = disk.crash(random.Random(7))  # the disk after a power failure

    Args:
        sync_keeps_name: As on ext4, a synced new file keeps its name. Without it only
            `sync_directory` makes names durable, which is all that POSIX promises.
        lying_sync: Syncs succeed but make nothing durable.
    """

    def __init__(self, *, sync_keeps_name: bool = False, lying_sync: bool = False) -> None:
        super().__init__(sync_keeps_name=sync_keeps_name, lying_sync=lying_sync)

    def plant(self, path: Path, content: bytes) -> None:
        """Create a file with durable content, without an effect: for preparing damage in a test.
        Raises OSError if a parent of `path` is a file.
        """
        directory = self._root
        for name in _names(path.parent):
            child = directory.entries.get(name)
            if child is None:
                child = DirectoryNode(parent=directory)
                directory.entries[name] = directory.durable[name] = child
            if not isinstance(child, DirectoryNode):
                raise _error(errno.ENOTDIR, path)
            directory = child
        node = FileNode(bytes(content), parent=directory, modified_ms=self.now_ms)
        directory.entries[path.name] = directory.durable[path.name] = node

    def files(self) -> dict[str, bytes]:
        """Returns path -> content of every file, as a running program sees it."""
        contents = contents_of(self._root)
        return {path: content for path, content in contents if content is not None}

    @property
    def root(self) -> DirectoryNode:
        """The whole tree, to look at: its content, and what of it is durable."""
        return self._root

    def unsynced(self) -> list[Change]:
        """Returns the changes that a power failure may undo, in the order in which they
        were made.
        """
        changes = [change for node in self._root.walk() for change in node.pending]
        return sorted(changes, key=lambda change: change.effect)

    def fork(self) -> "SimulatedDisk":
        """Returns an independent copy: content, unsynced changes, effects; no faults, no locks."""
        copy = self._like_this()
        copy._root = self._root.copied({})
        copy.effects = self.effects
        copy.trace = list(self.trace)
        return copy

    def after_crash(
        self, keep: Callable[[Change], bool], *, torn: Torn | None = None
    ) -> "SimulatedDisk":
        """Returns the disk after a power failure: the synced state plus the unsynced changes for
        which `keep` returns True. `torn` replaces one of them.
        """
        disk = self._like_this()
        disk._root = survivors(self._root, keep, torn)
        return disk

    def crash(self, rng: Random, *, any_subset: bool = False) -> "SimulatedDisk":
        """Returns the disk after a random power failure. For each file and directory, a prefix of
        the unsynced changes survives (with `any_subset`, any subset), and the last survivor of one
        of them may be torn. The same state of `rng` gives the same result.
        """
        kept: set[int] = set()
        last_kept: list[Change] = []
        for node in self._root.walk():
            pending = list(node.pending)
            count = rng.randint(0, len(pending))
            chosen = [c for c in pending if rng.getrandbits(1)] if any_subset else pending[:count]
            kept.update(change.effect for change in chosen)
            last_kept.extend(chosen[-1:])
        torn: Torn | None = None
        if last_kept and rng.getrandbits(1):
            options = torn_variants(rng.choice(last_kept))
            torn = rng.choice(options) if options else None
        return self.after_crash(lambda change: change.effect in kept, torn=torn)

    def variants_after_crash(self) -> Iterator[tuple[str, "SimulatedDisk"]]:
        """Yields every state that a power failure now could leave, once each, with a description:
        all or nothing of the unsynced changes, every cut in order, each file or directory alone,
        and each way to tear the last write.
        """
        seen: set[int] = set()
        for name, keep, torn in self._crash_choices():
            disk = self.after_crash(keep, torn=torn)
            state = hash(tuple(contents_of(disk._root)))
            if state not in seen:
                seen.add(state)
                yield name, disk

    def _crash_choices(self) -> Iterator[tuple[str, Callable[[Change], bool], Torn | None]]:
        changes = self.unsynced()
        yield "nothing unsynced is left", lambda _: False, None
        yield "everything is left", lambda _: True, None
        if not changes:
            return
        yield "content without names", lambda change: isinstance(change, Write | Resize), None
        yield "names without content", lambda change: isinstance(change, Link | Unlink), None
        for change in changes:
            if isinstance(change, Write):
                yield f"zeros for effect {change.effect}", lambda _: True, zeroed(change)
        step = -(-len(changes) // _PREFIX_VARIANTS_MAX)
        for cut in changes[::step]:
            yield f"up to effect {cut.effect}", _at_most(cut.effect), None
        for path in sorted({change.path for change in changes}):
            yield f"all but {path}", _not_on(path), None
            yield f"only {path}", _on(path), None
        last = changes[-1]
        for torn in torn_variants(last):
            yield f"effect {last.effect} torn: {torn.name}", lambda _: True, torn

    def _like_this(self) -> "SimulatedDisk":
        disk = SimulatedDisk(sync_keeps_name=self.sync_keeps_name, lying_sync=self.lying_sync)
        disk.now_ms = self.now_ms
        disk.free_space_bytes = self.free_space_bytes
        return disk


def _at_most(effect: int) -> Callable[[Change], bool]:
    return lambda change: change.effect <= effect


def _on(path: str) -> Callable[[Change], bool]:
    return lambda change: change.path == path


def _not_on(path: str) -> Callable[[Change], bool]:
    return lambda change: change.path != path


def _names(path: Path) -> tuple[str, ...]:
    return path.parts[1:] if path.is_absolute() else path.parts


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
