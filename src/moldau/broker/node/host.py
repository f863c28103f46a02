"""What a node takes from the machine that it runs on, apart from time. A simulation gives it
another.
"""

from dataclasses import field
from random import Random

from moldau.frozen import frozen
from moldau.net.chance import SYSTEM_CHANCE
from moldau.storage.disk.filesystem import DiskFileSystem, FileSystem


@frozen(kw_only=True)
class Host:
    filesystem: FileSystem = field(default_factory=DiskFileSystem)
    chance: Random = SYSTEM_CHANCE
