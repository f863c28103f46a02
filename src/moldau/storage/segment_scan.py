"""The recovery scan of a segment file, in pieces of bounded size. A batch that crosses the end of a
piece is scanned with the next one; what is wrong with the first bad batch is told at the end.
"""

from collections.abc import Iterator

from moldau.protocol.record_loops import BAD_OFFSETS, INCOMPLETE, ScannedBatch, scan_batches
from moldau.storage.filesystem import File

PIECE_BYTES = 8 << 20

_LOG_OVERHEAD = 12


class SegmentScan:
    """Iterate it: lists of batch headers. Afterwards `valid_end` is where the sound batches end and
    `problem` says what is there, None if that is the end of the file.
    """

    def __init__(
        self, file: File, start: int, end: int, *, verify_crc: bool, next_offset: int = 0
    ) -> None:
        self.valid_end = start
        self.problem: str | None = None
        self.next_offset = next_offset
        self._file = file
        self._end = end
        self._verify_crc = verify_crc

    def __iter__(self) -> Iterator[list[ScannedBatch]]:
        view = self._file.view(0, self._end)
        piece_bytes = PIECE_BYTES
        while self.valid_end < self._end:
            end = min(self.valid_end + piece_bytes, self._end)
            headers, scanned, problem = scan_batches(view, self.valid_end, end, self._verify_crc)
            if headers and headers[0][2] < self.next_offset:
                self.problem = BAD_OFFSETS
                return
            piece_bytes = PIECE_BYTES
            if problem == INCOMPLETE and end < self._end:
                # Cut by the end of the piece, not by the end of the file.
                length = int.from_bytes(
                    view[scanned + 8 : scanned + _LOG_OVERHEAD], "big", signed=True
                )
                piece_bytes = max(PIECE_BYTES, _LOG_OVERHEAD + length)
                problem = None
            self.valid_end = scanned
            if headers:
                self.next_offset = headers[-1][3] + 1
                yield headers
            if problem is not None:
                self.problem = problem
                return
