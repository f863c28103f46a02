"""Limits the number of segments with open files. Descriptors are shared by the whole process, and
connections need them too: often there are only 1,024. Beyond a share of them the segment that was
opened first closes its files; its next use opens them again.

Each thread has its own share, so that none closes a file that another one is using.
"""

import resource
import threading
from typing import Protocol
from weakref import WeakKeyDictionary

_SHARE = 5
_SEGMENTS_MIN = 16
_MANY = 1 << 20


class Holder(Protocol):
    """A segment."""

    pins: int
    """A flush is using its files: they must stay open."""

    def release(self) -> None: ...


class _Held(threading.local):
    def __init__(self) -> None:
        self.segments: WeakKeyDictionary[Holder, None] = WeakKeyDictionary()


_held = _Held()


def descriptor_limit() -> int:
    """The number of files and connections that this process may have open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY if limit == resource.RLIM_INFINITY else limit


def segments_open_max() -> int:
    return max(descriptor_limit() // _SHARE, _SEGMENTS_MIN)


def opened(segment: Holder) -> None:
    segments = _held.segments
    segments[segment] = None
    if len(segments) > segments_open_max():
        oldest = next(
            (other for other in segments if not other.pins and other is not segment), None
        )
        if oldest is not None:
            oldest.release()


def release_all() -> None:
    """Closes the files that this thread has opened; another thread is going to use the segments."""
    for segment in list(_held.segments):
        segment.release()


def closed(segment: Holder) -> None:
    _held.segments.pop(segment, None)
