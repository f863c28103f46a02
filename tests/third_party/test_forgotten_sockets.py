"""Only kafka-python's sockets may be left to the garbage collector."""

import gc
import socket
import warnings
from collections.abc import Callable

from kafka.net import inet, selector


def warns_when_forgotten(opened: Callable[[], tuple[socket.socket, ...]]) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        descriptors = [each.fileno() for each in opened()]
        gc.collect()
    texts = [str(each.message) for each in caught]
    return any(f"fd={number}," in text for number in descriptors for text in texts)


def test_kafka_python_may_forget_its_sockets() -> None:
    assert not warns_when_forgotten(lambda: (inet.socket.socket(),))
    assert not warns_when_forgotten(selector.socket.socketpair)


def test_nothing_else_may() -> None:
    assert warns_when_forgotten(lambda: (socket.socket(),))
    assert warns_when_forgotten(socket.socketpair)
