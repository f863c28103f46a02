"""Lines of stdin or of files, read without blocking the event loop: a thread reads into a bounded
queue. It is a daemon thread, because a read from a terminal cannot be cancelled.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from moldau.protocol.errors import MoldauError

_CHUNK_BYTES = 256 * 1024
_CHUNKS_MAX = 8
LINE_BYTES_MAX = 128 * 1024 * 1024


class LineTooLongError(MoldauError):
    """The input probably does not consist of lines."""


class Lines(NamedTuple):
    lines: list[bytes]
    """Without their ends."""
    read_bytes: int


async def read_lines(paths: Sequence[Path]) -> AsyncIterator[Lines]:
    """Lines as they arrive, of stdin if there are no paths. A last line need not end."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[Lines | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_MAX)

    def put(item: Lines | BaseException | None) -> None:
        room.acquire()
        # The command may have ended, and its loop with it.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(arrived.put_nowait, item)

    def read() -> None:
        try:
            for lines in _all_lines(paths):
                put(lines)
            put(None)
        except (OSError, MoldauError) as error:
            put(error)

    threading.Thread(target=read, name="read lines", daemon=True).start()
    while (item := await arrived.get()) is not None:
        room.release()
        if isinstance(item, BaseException):
            raise item
        yield item


def _all_lines(paths: Sequence[Path]) -> Iterator[Lines]:
    if not paths:
        yield from _lines_of(sys.stdin.fileno())
    for path in paths:
        with path.open("rb", buffering=0) as file:
            yield from _lines_of(file.fileno())


def _lines_of(descriptor: int) -> Iterator[Lines]:
    pending: list[bytes] = []
    pending_bytes = 0
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        head, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            pending.append(chunk)
            pending_bytes += len(chunk)
            if pending_bytes > LINE_BYTES_MAX:
                raise LineTooLongError(f"a line is longer than {LINE_BYTES_MAX} bytes")
            continue
        whole = b"".join([*pending, head])
        pending, pending_bytes = ([rest], len(rest)) if rest else ([], 0)
        yield Lines([line.removesuffix(b"\r") for line in whole.split(b"\n")], len(chunk))
    if pending:
        yield Lines([b"".join(pending).removesuffix(b"\r")], 0)
