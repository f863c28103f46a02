"""The Python twin of _file_views.pyx, for installs without a compiler: there are no views, and all
is read. Here are the names, and what they mean.
"""

MAPS_KEPT = 32
"""Of all files together, the latest used."""
MAP_BYTES = 5 << 20
ASKED_MAX = 128
"""Answers that are remembered: about as many as the maps could hold."""
VIEW_BYTES_MAX = 1 << 20
"""Larger ones have a map of their own, which is not kept."""


class FileView:
    """Part of a file as a buffer that is sent and not looked into. It has a descriptor of its own,
    and outlives the file that it was made from.
    """

    def __len__(self) -> int:
        raise NotImplementedError

    def __buffer__(self, flags: int, /) -> memoryview:
        raise NotImplementedError

    def read_from(self, start: int) -> bytes:
        """The rest. Raises EOFError if the file was cut."""
        raise NotImplementedError


def cached_view(_fd: int, _position: int, _size: int) -> FileView | None:
    """None unless all of it is in the page cache, and this system can tell; and the first time, as
    a map is worth its making only for bytes that are asked for again.
    """
    return None


def forget(_fd: int) -> None:
    """The file is closed: keep no maps of it, so that a deleted file takes no room on the disk."""
