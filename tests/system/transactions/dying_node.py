"""A node that kills itself on the way to a transaction's end: with SIGKILL, before its nth write to
the logs or sync of them since the EndTxn of a certain id, or since its start. It can also drop
what was not synced yet, as a power cut does. Each effect is announced in the file `effects`
before it happens.

The class is the test's side, the rest is the child's.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.running_node import RunningNode

from moldau.broker.node.event_loop import run_in_loop
from moldau.broker.node.host import Host
from moldau.broker.node.node import Node, NodeOptions
from moldau.broker.server.context import RequestContext
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.net.clock import ShiftedClock
from moldau.protocol.messages.end_txn import EndTxnRequest
from moldau.protocol.wire.schema import Message
from moldau.storage.disk.filesystem import DiskFile, DiskFileSystem
from moldau.types import Buffer

_TESTS = Path(__file__).parents[2]
_COUNTED = (".log", ".txnindex")
_METADATA = "__cluster_metadata"


@dataclass(frozen=True)
class Death:
    """When it dies, and what is lost with it."""

    transactional_id: str
    """Empty: it counts from its start on."""
    effect: int
    loses_unsynced: bool = False


@dataclass
class DyingNode(RunningNode):
    """Like a RunningNode; start it again without a `death` to keep it alive."""

    death: Death | None = None
    ahead_ms: int = 0
    """How far its clock is ahead of the real one."""

    @property
    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def command(self) -> list[str]:
        if self.death is None and not self.ahead_ms:
            return super().command()
        (self.folder / "effects").unlink(missing_ok=True)
        orders = {
            "death": asdict(self.death or Death("", -1)),
            "ahead_ms": self.ahead_ms,
            "folder": str(self.folder),
            "port": self.port,
            "settings": dict(self.settings),
        }
        run = [
            "env",
            f"PYTHONPATH={_TESTS}",
            sys.executable,
            "-m",
            "system.transactions.dying_node",
        ]
        return [*run, json.dumps(orders)]


class Fate:
    """Counts effects once it is armed."""

    def __init__(self, death: Death, effects: Path) -> None:
        self._death = death
        self._effects = os.open(effects, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        self._lock = threading.Lock()
        self._is_armed = False
        self._count = 0
        self._synced: dict[Path, int] = {}

    def arm(self) -> None:
        self._is_armed = True

    def opened(self, path: Path, size: int) -> None:
        """Data from an earlier life counts as synced."""
        with self._lock:
            self._synced.setdefault(path, size)

    def synced(self, path: Path, size: int) -> None:
        with self._lock:
            self._synced[path] = max(size, self._synced[path])

    def truncated(self, path: Path, size: int) -> None:
        with self._lock:
            self._synced[path] = min(size, self._synced[path])

    def before(self, effect: str, path: Path) -> None:
        if not self._is_armed or path.suffix not in _COUNTED or _METADATA in str(path):
            return
        with self._lock:
            if self._count == self._death.effect:
                self._die()
            self._count += 1
            os.write(self._effects, f"{effect} {path.parent.name}{path.suffix}\n".encode())

    def _die(self) -> None:
        if self._death.loses_unsynced:
            for path, size in self._synced.items():
                if path.suffix in _COUNTED and path.exists():
                    os.truncate(path, min(size, path.stat().st_size))
        os.kill(os.getpid(), signal.SIGKILL)


class FatedFile(DiskFile):
    __slots__ = ("_fate",)

    def __init__(self, path: Path, fd: int, fate: Fate) -> None:
        super().__init__(path, fd)
        self._fate = fate
        fate.opened(path, self.size())

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._fate.before("write", self.path)
        super().append(buffers)

    def sync(self) -> None:
        self._fate.before("sync", self.path)
        size = self.size()
        super().sync()
        self._fate.synced(self.path, size)

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._fate.truncated(self.path, size)


class FatedFileSystem(DiskFileSystem):
    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        plain = super().open(path, create=create)
        descriptor = os.dup(plain.fileno())
        plain.close()
        return FatedFile(path, descriptor, self._fate)


async def live(orders: dict[str, Any]) -> None:
    folder = Path(orders["folder"])
    death = Death(**orders["death"])
    fate = Fate(death, folder / "effects")
    properties = standalone_properties(str(folder / "data"), host="127.0.0.1", port=orders["port"])
    config = BrokerConfig.parse(properties | orders["settings"])
    clock = ShiftedClock()
    host = Host(filesystem=FatedFileSystem(fate))
    node = Node(config, NodeOptions(formats_itself=True), clock=clock, host=host)
    clock.advance(orders["ahead_ms"])

    def look_for_the_end(_context: RequestContext, request: Message) -> None:
        if (
            isinstance(request, EndTxnRequest)
            and request.transactional_id == death.transactional_id
        ):
            fate.arm()

    if not death.transactional_id:
        fate.arm()
    await node.start()
    node.intercept(look_for_the_end)
    (folder / "ready").touch()
    # Only a signal ends it.
    await asyncio.Event().wait()


if __name__ == "__main__":
    run_in_loop(live(json.loads(sys.argv[1])))
