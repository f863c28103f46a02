"""The machine that a node runs on, apart from its clock. A simulation replaces it."""

from dataclasses import field
from random import Random

from moldau.frozen import frozen
from moldau.net.chance import SYSTEM_CHANCE
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem


@frozen(kw_only=True)
class Host:
    filesystem: FileSystem = field(default_factory=DiskFileSystem)
    chance: Random = SYSTEM_CHANCE
