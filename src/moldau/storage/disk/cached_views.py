"""Views of files that only the kernel reads, when a socket is written to: no copy of our own. What
a socket does not take at once is read, so a view is gone soon.

Compiled, or there are none: their making must cost less than the copy they save.
"""

from typing import TYPE_CHECKING

from moldau.compiled import USE_COMPILED

if TYPE_CHECKING or not USE_COMPILED:
    from moldau.storage.disk._file_views_twin import FileView, cached_view, forget
else:
    from moldau.storage.disk._file_views import FileView, cached_view, forget

__all__ = ["SIZE_MIN", "FileView", "cached_view", "forget", "view_behind"]

SIZE_MIN = 96 * 1024
"""From here on a copy costs more than the calls that save it."""


def view_behind(chunk: object) -> FileView | None:
    """What the chunk was made of, if that is all of a view."""
    if type(chunk) is memoryview:
        behind = chunk.obj
        if isinstance(behind, FileView) and len(chunk) == len(behind):
            return behind
    return None
