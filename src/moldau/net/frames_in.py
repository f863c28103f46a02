"""Cutting frames out of what a socket delivers, without copying more than a frame's first part.

Connections read into a scratch buffer; those of a node share one, so that an idle connection owns
no memory. A frame that is not complete moves into a buffer of its own, which grows with what
arrives, never with what a length merely announces.
"""

from collections.abc import Iterator
from struct import Struct

from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.frame import LENGTH_BYTES

SCRATCH_BYTES = 256 * 1024
_LENGTH = Struct(">i")
_FIRST_BYTES = 2 * 1024 * 1024
_HTTP = {b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC"}


class FramesIn:
    """One connection's incoming side. `buffer` is where the socket writes next; `received` gives
    the frames that are whole then. They are views: of the scratch buffer, to be used or copied
    before the next read, or of a buffer that belongs to the frame alone.
    """

    __slots__ = ("_filled", "_frame_bytes_max", "_own", "_scratch", "_wanted")

    def __init__(self, scratch: memoryview, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._own: bytearray | None = None
        self._filled = 0
        self._wanted = LENGTH_BYTES

    @property
    def pending_bytes(self) -> int:
        """What has arrived of a frame that is not complete."""
        return self._filled

    def buffer(self) -> memoryview:
        if self._own is None:
            return self._scratch
        if self._filled == len(self._own):
            larger = bytearray(min(self._wanted, 2 * len(self._own)))
            larger[: self._filled] = self._own
            self._own = larger
        return memoryview(self._own)[self._filled :]

    def received(self, count: int) -> Iterator[tuple[memoryview, bool]]:
        """Whole frames and whether they lie in the scratch buffer. Raises MalformedRequestError
        behind the last good one.
        """
        if self._own is None:
            size = count - LENGTH_BYTES
            if 0 <= size <= self._frame_bytes_max and size == _LENGTH.unpack_from(self._scratch)[0]:
                # The usual case: exactly one frame.
                return iter(((self._scratch[LENGTH_BYTES:count], True),))
            return self._cut(self._scratch[:count])
        self._filled += count
        if self._filled < self._wanted:
            return iter(())
        if self._wanted == LENGTH_BYTES:
            self._wanted += self._length(self._own)
            # A new one: the event loop may still hold a view of the old.
            self._own = self._own + bytes(min(self._wanted, _FIRST_BYTES) - LENGTH_BYTES)
            if self._filled < self._wanted:
                return iter(())
        frame = memoryview(self._own)[LENGTH_BYTES:]
        self._own, self._filled, self._wanted = None, 0, LENGTH_BYTES
        return iter(((frame, False),))

    def _cut(self, view: memoryview) -> Iterator[tuple[memoryview, bool]]:
        start, end = 0, len(view)
        while end - start >= LENGTH_BYTES:
            size = _LENGTH.unpack_from(view, start)[0]
            if not 0 <= size <= self._frame_bytes_max:
                size = self._length(view[start : start + LENGTH_BYTES])
            first, start = start, start + LENGTH_BYTES + size
            if start > end:
                self._keep(view[first:], LENGTH_BYTES + size)
                return
            yield view[start - size : start], True
        if start < end:
            self._keep(view[start:], LENGTH_BYTES)

    def _keep(self, part: memoryview, wanted: int) -> None:
        self._wanted = wanted
        self._filled = len(part)
        self._own = bytearray(min(wanted, max(_FIRST_BYTES, len(part))))
        self._own[: len(part)] = part

    def _length(self, head: memoryview | bytearray) -> int:
        size = int.from_bytes(head[:LENGTH_BYTES], "big", signed=True)
        if 0 <= size <= self._frame_bytes_max:
            return size
        raise MalformedRequestError(_what_it_is(bytes(head[:LENGTH_BYTES]), self._frame_bytes_max))


def _what_it_is(head: bytes, frame_bytes_max: int) -> str:
    if head in _HTTP:
        return "this is an HTTP request, and the port speaks Kafka's protocol"
    if head[0] == 0x16 and head[1] == 0x03:
        return "this is a TLS handshake, and the listener is not a TLS one"
    size = int.from_bytes(head, "big", signed=True)
    return f"a frame of {size} bytes; no more than {frame_bytes_max} are taken"
