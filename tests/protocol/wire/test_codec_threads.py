"""Large messages may be read and written in threads without blocking other threads."""

import functools
import itertools
import operator
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from protocol.codec_loops import LOOPS

from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

TRIES_ON_A_BUSY_MACHINE = 200


@pytest.fixture(params=LOOPS)
def loops(request: pytest.FixtureRequest) -> Any:
    return LOOPS[request.param]


def test_other_threads_run_while_a_large_message_is_read_or_written(loops: Any) -> None:
    """Only C code runs between two readings of another thread's count, so it advances only if that
    code releases the interpreter lock.
    """
    message = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 20_000)
    wire = loops.encode(message, 0)
    counter = itertools.count()
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            next(counter)

    thread = threading.Thread(target=count)
    look = functools.partial(next, counter)

    def is_let_run(work: Callable[[], object]) -> bool:
        call: Any = operator.call
        before, _, after = tuple(map(call, (look, work, look)))
        return int(after) > int(before) + 1

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        for work in (
            functools.partial(loops.decode, MetadataRequest, 0, wire),
            functools.partial(loops.encode_chunks, message, 0),
        ):
            assert any(is_let_run(work) for _ in range(TRIES_ON_A_BUSY_MACHINE))
    finally:
        done.set()
        sys.setswitchinterval(interval_s)
        thread.join()
