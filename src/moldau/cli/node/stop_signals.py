"""The signals that stop a node: the first requests a clean stop, the second ends the process.

A thread of its own receives them. A Python signal handler runs in the main thread only, which may
be waiting for a disk that does not answer.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from threading import Thread
from types import TracebackType
from typing import Self

_FORCED_STATUS = 1
_FORCED_MESSAGE = b"moldau: stopped immediately; the next start checks the logs\n"


class StopSignals:
    """Enter it before other threads are started, so that they inherit the blocked signals."""

    def __init__(self, request_stop: Callable[[], object]) -> None:
        self._request_stop = request_stop
        self._numbers = {signal.SIGTERM, signal.SIGINT}
        # Under nohup a closed terminal does not stop the node.
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            self._numbers.add(signal.SIGHUP)
        self._over = False
        self._thread = Thread(target=self._receive, name="moldau-stop-signals", daemon=True)

    def __enter__(self) -> Self:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over = True
        assert self._thread.ident is not None
        signal.pthread_kill(self._thread.ident, signal.SIGTERM)
        self._thread.join()
        # The node has stopped: a signal from now on must not turn its exit status into a failure.
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)

    def _receive(self) -> None:
        signal.sigwait(self._numbers)
        if not self._over:
            self._request_stop()
            signal.sigwait(self._numbers)
        if not self._over:
            # stderr may be closed or missing, and the main thread may hold its buffer.
            with contextlib.suppress(AttributeError, ValueError, OSError):
                os.write(sys.stderr.fileno(), _FORCED_MESSAGE)
            os._exit(_FORCED_STATUS)
