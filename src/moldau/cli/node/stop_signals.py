"""The signals that stop a node: the first asks for a clean stop, the second ends the process.

They are received in a thread of their own. A Python signal handler runs in the main thread only,
which may be waiting for a disk that does not answer.
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
_FORCED_MESSAGE = b"moldau: stopped at once; the next start checks the logs\n"


class StopSignals:
    """Enter it before other threads are started, so that they inherit the blocked signals."""

    def __init__(self, ask_to_stop: Callable[[], object]) -> None:
        self._ask_to_stop = ask_to_stop
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
        # The node has stopped: one that comes now must not make its exit status a failure.
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)

    def _receive(self) -> None:
        signal.sigwait(self._numbers)
        if not self._over:
            self._ask_to_stop()
            signal.sigwait(self._numbers)
        if not self._over:
            # It may be closed, or missing; its buffer may be in use by the main thread.
            with contextlib.suppress(AttributeError, ValueError, OSError):
                os.write(sys.stderr.fileno(), _FORCED_MESSAGE)
            os._exit(_FORCED_STATUS)
