"""A proxy between clients and a broker that drops one response to an EndTxn: the transaction has
ended, and its producer does not know it.
"""

import socket
import struct
import threading
from contextlib import suppress
from typing import Any, Self

END_TXN = 26


class ResponseDropper:
    def __init__(self, which: int) -> None:
        """Drops the response to the request with this number, counted from 0."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self._broker_port = 0
        self._which = which
        self._seen = 0
        self._lock = threading.Lock()
        self.has_dropped = False
        self._sockets: list[socket.socket] = []

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serve(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _start(self, target: Any, *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
                node = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                return
            self._sockets += [client, node]
            drops = threading.Event()
            self._start(self._carry_requests, client, node, drops)
            self._start(self._carry_responses, node, client, drops)

    def _carry_requests(
        self, client: socket.socket, node: socket.socket, drops: threading.Event
    ) -> None:
        with suppress(OSError):
            while (head := _exactly(client, 6)) is not None:
                size, api_key = struct.unpack(">ih", head)
                body = _exactly(client, size - 2)
                if body is None:
                    break
                if api_key == END_TXN:
                    with self._lock:
                        if self._seen == self._which:
                            drops.set()
                        self._seen += 1
                node.sendall(head + body)
        _shut(node)

    def _carry_responses(
        self, node: socket.socket, client: socket.socket, drops: threading.Event
    ) -> None:
        with suppress(OSError):
            while chunk := node.recv(65536):
                if drops.is_set():
                    self.has_dropped = True
                    break
                client.sendall(chunk)
        _shut(client)
        _shut(node)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _exactly(source: socket.socket, size: int) -> bytes | None:
    found = b""
    while len(found) < size:
        chunk = source.recv(size - len(found))
        if not chunk:
            return None
        found += chunk
    return found
