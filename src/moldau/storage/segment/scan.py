"""The recovery scan of a segment file, in pieces of bounded size. A batch that crosses the end of a
piece is scanned with the next one; the problem of the first bad batch is reported at the end.
"""

from collections.abc import Iterator
from itertools import takewhile

from moldau.protocol.records.batches import LOG_OVERHEAD
from moldau.protocol.records.record_loops import BAD_OFFSETS, INCOMPLETE, scan_batches
from moldau.protocol.records.scanned_batch import (
    BASE_OFFSET,
    LAST_OFFSET,
    POSITION,
    SIZE,
    ScannedBatch,
)
from moldau.storage.disk.filesystem import File
from moldau.types import INT64_MAX

PIECE_BYTES = 512 * 1024
"""A scan of a piece holds the interpreter lock: up to 4 ms, if batches are tiny."""

ALL_OFFSETS = range(INT64_MAX)
STRAY_OFFSETS = "offsets outside of the segment"


class SegmentScan:
    """Iterate over it for lists of batch headers. Afterwards `valid_end` is where the sound batches
    end, and `problem` describes the bytes there, None at the end of the file. Batches have
    `offsets`, in ascending order.
    """

    def __init__(
        self, file: File, start: int, end: int, *, verify_crc: bool, offsets: range = ALL_OFFSETS
    ) -> None:
        self.valid_end = start
        self.problem: str | None = None
        self.next_offset = offsets.start
        self._offset_limit = offsets.stop
        self._file = file
        self._end = end
        self._verify_crc = verify_crc

    def __iter__(self) -> Iterator[list[ScannedBatch]]:
        # One buffer for all pieces: none of its bytes are handed out.
        buffer = memoryview(bytearray(min(PIECE_BYTES, self._end - self.valid_end)))
        piece_bytes = PIECE_BYTES
        while self.valid_end < self._end:
            start, end = self.valid_end, min(self.valid_end + piece_bytes, self._end)
            if len(buffer) < end - start:
                buffer = memoryview(bytearray(end - start))
            piece = buffer[: end - start]
            got = self._file.read_into(piece, start)
            headers, self.valid_end, problem = scan_batches(piece, 0, got, self._verify_crc, start)
            if headers and headers[0][BASE_OFFSET] < self.next_offset:
                self.valid_end, self.problem = start, BAD_OFFSETS
                return
            if headers and headers[-1][LAST_OFFSET] >= self._offset_limit:
                headers = list(
                    takewhile(lambda each: each[LAST_OFFSET] < self._offset_limit, headers)
                )
                self.valid_end, problem = _end_of(headers, start), STRAY_OFFSETS
            piece_bytes = PIECE_BYTES
            if got < len(piece):
                # Shorter than it was when it was opened: the file was truncated.
                problem = problem or INCOMPLETE
            elif problem == INCOMPLETE and end < self._end:
                # Cut by the end of the piece, not by the end of the file.
                piece_bytes = max(PIECE_BYTES, self._whole_batch(piece, self.valid_end - start))
                problem = None
            if headers:
                self.next_offset = headers[-1][LAST_OFFSET] + 1
                yield headers
            if problem is not None:
                self.problem = problem
                return

    def _whole_batch(self, piece: memoryview, at: int) -> int:
        """The size of the batch that the end of the piece cuts off."""
        length = (
            self._file.read(self.valid_end + 8, 4)
            if at + LOG_OVERHEAD > len(piece)
            else (piece[at + 8 : at + LOG_OVERHEAD])
        )
        return LOG_OVERHEAD + int.from_bytes(length, "big", signed=True)


def _end_of(headers: list[ScannedBatch], start: int) -> int:
    return headers[-1][POSITION] + headers[-1][SIZE] if headers else start
