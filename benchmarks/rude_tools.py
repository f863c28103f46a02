"""The common part of misbehaving clients: connections, a deadline, and two ways to send."""

import contextlib
import select
import socket
import struct
from collections.abc import Iterator
from itertools import cycle
from time import perf_counter

from node_peers import HOST


class Deadline:
    def __init__(self, seconds: float) -> None:
        self._at = perf_counter() + seconds

    @property
    def left(self) -> float:
        return max(self._at - perf_counter(), 0.0)

    def wait(self) -> None:
        """Waits idly until the deadline."""
        while self.left:
            select.select([], [], [], self.left)


def send_and_drop(port: int, frames: bytes, deadline: Deadline) -> None:
    """Send the same bytes as fast as they are accepted, and discard the responses."""
    with connected(port) as connection:
        connection.setblocking(False)
        view = memoryview(frames)
        position = 0
        while deadline.left:
            readable, writable, _ = select.select([connection], [connection], [], deadline.left)
            if readable and not connection.recv(1 << 20):
                return
            if writable:
                position += connection.send(view[position:])
                if position == len(view):
                    position = 0


def one_after_the_other(port: int, frames: bytes | list[bytes], deadline: Deadline) -> None:
    """Send, wait for the whole response, repeat with the next frame. If the node closes the
    connection, open a new one.
    """
    endless = cycle([frames] if isinstance(frames, bytes) else frames)
    while deadline.left:
        with contextlib.suppress(OSError), connected(port) as connection:
            connection.settimeout(max(deadline.left, 0.01))
            while deadline.left:
                connection.sendall(next(endless))
                drop_answer(connection)


def drop_answer(connection: socket.socket) -> None:
    head = connection.recv(4, socket.MSG_WAITALL)
    if not head:
        raise ConnectionError
    left = struct.unpack(">i", head)[0]
    while left:
        got = len(connection.recv(min(left, 1 << 20)))
        if not got:
            raise ConnectionError
        left -= got


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection
