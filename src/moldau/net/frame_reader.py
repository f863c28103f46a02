"""Cuts frames out of the bytes of a socket, without copying more than a frame's first part.

Connections read into a scratch buffer; those of a listener share one, so that an idle connection
owns no memory. Bytes that are not cut before the next read are moved out of it. An incomplete frame
gets a buffer of its own, which grows with the bytes that arrive, never with an announced length. A
large buffer is mapped from the kernel, whose pages cost nothing until they are written to, so that
growing never has to clear or copy much.
"""

import mmap
from struct import Struct

from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.wire.frame import LENGTH_BYTES

SCRATCH_BYTES = 256 * 1024
READ_BYTES_MAX = 1024 * 1024
"""The largest read into a frame's own buffer: a larger one would block the event loop."""
_LENGTH = Struct(">i")
_FIRST_BYTES = 4 * 1024
_COPIED_BYTES_MAX = 1024 * 1024
_PLAIN_BYTES_MAX = 2 * 1024 * 1024
_HTTP = {b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC"}
# Only Unix has a choice; its default would be memory that is shared with other processes.
_PRIVATE = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
)
_NOTHING = memoryview(b"")


class FrameReader:
    """One connection's incoming side. `buffer` is where the socket writes next, `received` reports
    how much it wrote, and `next_frame` returns the complete frames. They are views: of the
    scratch buffer, to be used or copied before the next read (`is_shared`), or of a buffer that
    is never written to again. A caller that stops before the last frame calls `keep`.
    """

    __slots__ = (
        "_filled", "_frame_bytes_max", "_is_scratch", "_own", "_scratch", "_start", "_stretch",
        "_wanted", "_whole", "is_shared",
    )  # fmt: skip

    def __init__(self, scratch: memoryview, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        # Complete frames, and the beginning of one after them; cut up to _start.
        self._stretch = _NOTHING
        self._start = 0
        self._is_scratch = False
        self.is_shared = False
        """Whether the latest frame lies in the scratch buffer."""
        # A frame that outgrew the scratch buffer; used once the stretch before it is cut.
        self._own: bytearray | mmap.mmap | None = None
        self._filled = 0
        self._wanted = LENGTH_BYTES
        self._whole: memoryview | None = None

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that have arrived of an incomplete frame."""
        return self._filled

    @property
    def unfinished_bytes(self) -> int:
        """The memory of an incomplete frame."""
        own = self._own
        if own is None:
            return 0
        return len(own) if isinstance(own, bytearray) else self._filled

    @property
    def wanted_bytes(self) -> int:
        """The number of bytes that an incomplete frame lacks."""
        return self._wanted - self._filled

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes that have arrived and are not cut."""
        waiting = len(self._stretch) - self._start
        return waiting if self._whole is None else waiting + len(self._whole)

    def buffer(self, bytes_max: int = READ_BYTES_MAX) -> memoryview:
        own = self._own
        if own is None:
            return self._scratch if bytes_max >= SCRATCH_BYTES else self._scratch[:bytes_max]
        if self._filled == len(own):
            own = self._grown(own)
        return memoryview(own)[self._filled : self._filled + bytes_max]

    def only_frame(self, count: int) -> memoryview | None:
        """Replaces `received` in the usual case: returns the bytes that have arrived, if they are
        exactly one frame and nothing waits before it.
        """
        size = count - LENGTH_BYTES
        if self._own is not None or self._stretch or self._whole is not None or size < 0:
            return None
        if size != _LENGTH.unpack_from(self._scratch)[0] or size > self._frame_bytes_max:
            return None
        return self._scratch[LENGTH_BYTES:count]

    def received(self, count: int) -> None:
        if self._own is None:
            arrived = self._scratch[:count]
            if self._start == len(self._stretch):
                self._stretch, self._is_scratch = arrived, True
            else:
                self._stretch = memoryview(b"".join((self._stretch[self._start :], arrived)))
                self._is_scratch = False
            self._start = 0
            return
        self._filled += count
        if self._filled < self._wanted:
            return
        if self._wanted == LENGTH_BYTES:
            # As a stretch, which may turn out to be a frame of no bytes at all.
            self._stretch, self._is_scratch = memoryview(self._own), False
            self._start = 0
        else:
            self._whole = memoryview(self._own)[LENGTH_BYTES:]
        self._forget_own()

    def next_frame(self) -> memoryview | None:
        """None if no frame is complete. Raises MalformedRequestError after the last good one."""
        whole = self._whole
        if whole is not None:
            self._whole, self.is_shared = None, False
            return whole
        stretch, first = self._stretch, self._start
        end = len(stretch)
        if first + LENGTH_BYTES > end:
            if first < end:
                self._begin_own(LENGTH_BYTES)
            else:
                self._stretch, self._start = _NOTHING, 0
            return None
        size: int = _LENGTH.unpack_from(stretch, first)[0]
        if not 0 <= size <= self._frame_bytes_max:
            head = bytes(stretch[first : first + LENGTH_BYTES])
            raise MalformedRequestError(_frame_problem(head, self._frame_bytes_max))
        first += LENGTH_BYTES
        if first + size > end:
            self._begin_own(LENGTH_BYTES + size)
            return None
        self._start = first + size
        self.is_shared = self._is_scratch
        return stretch[first : first + size]

    def keep(self) -> None:
        """Moves the uncut bytes out of the scratch buffer, which the next read overwrites."""
        if self._is_scratch:
            rest = self._stretch[self._start :]
            self._stretch = memoryview(bytes(rest)) if rest else _NOTHING
            self._start = 0
            self._is_scratch = False

    def _begin_own(self, wanted: int) -> None:
        part = self._stretch[self._start :]
        self._wanted, self._filled = wanted, len(part)
        own = self._own = _room_for(wanted, len(part))
        own[: len(part)] = part
        self._stretch, self._start, self._is_scratch = _NOTHING, 0, False

    def _grown(self, own: bytearray | mmap.mmap) -> bytearray | mmap.mmap:
        # A new one: the event loop may still hold a view of the old.
        self._own = larger = _room_for(self._wanted, self._filled)
        larger[: self._filled] = memoryview(own)[: self._filled]
        return larger

    def _forget_own(self) -> None:
        self._own, self._filled, self._wanted = None, 0, LENGTH_BYTES


def _room_for(wanted: int, filled: int) -> bytearray | mmap.mmap:
    """A larger buffer, in proportion to the bytes that it must hold."""
    if wanted <= min(max(8 * filled, _FIRST_BYTES), _PLAIN_BYTES_MAX):
        return bytearray(wanted)
    if 4 * filled < _COPIED_BYTES_MAX:
        return bytearray(min(wanted, max(4 * filled, _FIRST_BYTES)))
    try:
        return mmap.mmap(-1, wanted, **_PRIVATE)
    except OSError as error:
        raise MalformedRequestError(f"no memory for a frame of {wanted} bytes") from error


def _frame_problem(head: bytes, frame_bytes_max: int) -> str:
    if head in _HTTP:
        return "this is an HTTP request, and the port speaks Kafka's protocol"
    if head[0] == 0x16 and head[1] == 0x03:
        return "this is a TLS handshake, and the listener is not a TLS one"
    size = int.from_bytes(head, "big", signed=True)
    return f"a frame of {size} bytes; no more than {frame_bytes_max} are accepted"
