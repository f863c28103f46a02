"""kafka-python leaves sockets to the garbage collector, which may run during any later test. Only
its sockets may be forgotten: a socket that our own code leaves open fails the test in which it is
collected.
"""

import socket
from typing import Any

from kafka.net import inet, selector


class ForgottenSocket(socket.socket):
    """Closes without a warning when it is collected."""

    def __del__(self) -> None:
        self.close()


class SocketModule:
    """The module `socket` as kafka-python sees it."""

    socket = ForgottenSocket

    @staticmethod
    def socketpair() -> tuple[ForgottenSocket, ForgottenSocket]:
        first, second = socket.socketpair()
        return ForgottenSocket(fileno=first.detach()), ForgottenSocket(fileno=second.detach())

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


def let_kafka_python_forget_sockets() -> None:
    inet.socket = SocketModule()
    selector.socket = SocketModule()
