"""The Python twin of _file_views.pyx, for installs without a compiler: it has the same names but
creates no views, so every byte is read.
"""

MAPS_KEPT = 32
"""The number of maps that are kept, over all files: the most recently used."""
MAP_BYTES = 5 << 20
ASKED_MAX = 128
"""The number of responses that are remembered: about as many as the maps could hold."""
VIEW_BYTES_MAX = 1 << 20
"""A larger view has a map of its own, which is not kept."""


class FileView:
    """Part of a file as a buffer that is sent but never read by this process. It has a descriptor
    of its own and outlives the `File` that it was made from.
    """

    def __len__(self) -> int:
        raise NotImplementedError

    def __buffer__(self, flags: int, /) -> memoryview:
        raise NotImplementedError

    def read_from(self, start: int) -> bytes:
        """The bytes from `start` to the end. Raises EOFError if the file was truncated."""
        raise NotImplementedError


def cached_view(_fd: int, _position: int, _size: int) -> FileView | None:
    """None unless all bytes are in the page cache and this system can report it; also None for the
    first request, since a map is only worth its cost for bytes that are requested again.
    """
    return None


def forget(_fd: int) -> None:
    """Drops the maps of a closed file, so that a deleted file frees its disk space."""
