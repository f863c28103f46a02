"""Views of files that only the kernel reads, while it writes to a socket: no copy of our own. Bytes
that a socket does not take at once are copied, so views are short-lived.

Compiled code only: in Python, creating a view would cost more than the copy it saves.
"""

from typing import TYPE_CHECKING

from moldau.compiled import USE_COMPILED

if TYPE_CHECKING or not USE_COMPILED:
    from moldau.storage.disk._file_views_twin import FileView, cached_view, forget
else:
    from moldau.storage.disk._file_views import FileView, cached_view, forget

__all__ = ["SIZE_MIN", "FileView", "cached_view", "forget", "view_of"]

SIZE_MIN = 96 * 1024
"""From this size on a copy costs more than the system calls that save it."""


def view_of(chunk: object) -> FileView | None:
    """The view that the chunk was made of, if the chunk covers all of it."""
    if type(chunk) is memoryview:
        view = chunk.obj
        if isinstance(view, FileView) and len(chunk) == len(view):
            return view
    return None
