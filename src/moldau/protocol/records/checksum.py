"""CRC-32C, the checksum of record batches and snapshots. The package `crc32c` reads its own version
from the disk when it is imported, a tenth of a node's start; so its compiled module is loaded
alone.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crc32c import crc32c
else:

    def _load() -> Any:
        package = find_spec("crc32c")
        folders = package.submodule_search_locations if package is not None else None
        spec = PathFinder.find_spec("crc32c._crc32c", folders)
        if spec is None or spec.loader is None:
            from crc32c import crc32c

            return crc32c
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.crc32c

    crc32c = _load()

__all__ = ["crc32c"]
