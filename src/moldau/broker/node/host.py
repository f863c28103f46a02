"""The machine that a node runs on, apart from its clock. A simulation replaces it. Threads and
outgoing connections come from the event loop: a node starts slow work only by `run_in_executor`
and connections only by `create_connection`.
"""

from dataclasses import field
from random import Random

from moldau.frozen import frozen
from moldau.net.chance import SYSTEM_CHANCE
from moldau.net.network import Network, SystemNetwork
from moldau.storage.directory.unsynced_names import DoAll
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem


@frozen(kw_only=True)
class Host:
    filesystem: FileSystem = field(default_factory=DiskFileSystem)
    network: Network = field(default_factory=SystemNetwork)
    chance: Random = SYSTEM_CHANCE
    do_all: DoAll | None = None
    """Syncs many files at once, for a caller that waits. None: in threads of the node."""
