"""A proxy between clients and a broker that drops responses (the broker has executed the request)
or cuts a request or response in the middle.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, Self

from moldau.testing import broker

_PATIENCE_S = 30
_LONG_BYTES = 1000


class LossyProxy:
    """`with LossyProxy() as proxy, proxy.broker() as node:`"""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._broker_port = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._drops_responses = False
        self._has_dropped = threading.Event()
        self._request_bytes_left: int | None = None
        self._responses_to_cut = 0
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    @contextlib.contextmanager
    def broker(self) -> Iterator[Any]:
        """A broker that advertises the proxy's address."""
        with broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}) as node:
            self.serve(int(node.bootstrap.rpartition(":")[2]))
            yield node

    def serve(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._start(self._accept)

    def redirect_to(self, broker_port: int) -> None:
        """Connects to another broker from now on. Cuts open connections."""
        self._broker_port = broker_port
        self._cut()

    def drop_responses(self) -> None:
        self._has_dropped.clear()
        self._drops_responses = True

    def cut_in_the_middle(self, times: int) -> None:
        """Cuts the connection in the middle of the next `times` long responses."""
        self._responses_to_cut = times

    @property
    def has_cut_responses(self) -> bool:
        return self._responses_to_cut == 0

    def cut_after_dropped_response(self) -> None:
        """Waits until a response was dropped, then cuts all connections."""
        assert self._has_dropped.wait(_PATIENCE_S)
        self._drops_responses = False
        self._cut()

    def cut_after(self, request_bytes: int) -> None:
        """Cuts all connections once the broker has received `request_bytes` more."""
        self._request_bytes_left = request_bytes

    @property
    def has_cut_request(self) -> bool:
        """Whether the cut that `cut_after` plans has happened."""
        return self._request_bytes_left is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._cut()
        for thread in self._threads:
            thread.join()

    def _cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def _start(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                node = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                client.close()
                continue
            self._pairs.append((client, node))
            self._start(self._carry, client, node, False)
            self._start(self._carry, node, client, True)

    def _carry(self, source: socket.socket, target: socket.socket, are_responses: bool) -> None:
        with source:
            while True:
                try:
                    chunk = source.recv(65536)
                    if not chunk:
                        break
                    if are_responses and self._drops_responses:
                        self._has_dropped.set()
                        continue
                    if are_responses and self._responses_to_cut and len(chunk) > _LONG_BYTES:
                        self._responses_to_cut -= 1
                        target.sendall(chunk[: len(chunk) // 2])
                        break
                    if not are_responses and self._request_bytes_left is not None:
                        chunk = chunk[: self._request_bytes_left]
                        self._request_bytes_left -= len(chunk)
                    target.sendall(chunk)
                    if not are_responses and self._request_bytes_left == 0:
                        self._request_bytes_left = None
                        self._cut()
                except OSError:
                    break
            try:
                target.shutdown(socket.SHUT_RDWR)
            except OSError:
                return
