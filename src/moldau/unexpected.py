"""Unforeseen errors. Code that serves several independent requests wraps each in `apart`, so that a
bug in one does not affect the others. The log gets one traceback of a kind per interval, however
often a client causes the error.
"""

import logging
import time
from collections.abc import Callable
from typing import ParamSpec

INTERVAL_S = 10.0
_KINDS_MAX = 200

P = ParamSpec("P")


class _Kind:
    __slots__ = ("left_out", "quiet_until_s")

    def __init__(self) -> None:
        self.quiet_until_s = 0.0
        self.left_out = 0


_kinds: dict[tuple[str, str, type[BaseException]], _Kind] = {}


def log_unexpected(logger: logging.Logger, what: str, error: BaseException) -> None:
    """`what` must come from a bounded set of texts, never from a client."""
    if len(_kinds) >= _KINDS_MAX:
        _kinds.clear()
    kind = _kinds.setdefault((logger.name, what, type(error)), _Kind())
    now_s = time.monotonic()
    if now_s < kind.quiet_until_s:
        kind.left_out += 1
        return
    more = f" (and {kind.left_out} times since the last such line)" if kind.left_out else ""
    kind.quiet_until_s = now_s + INTERVAL_S
    kind.left_out = 0
    logger.error("%s failed unexpectedly%s", what, more, exc_info=error)


class Attempts:
    """Steps that do not depend on each other: each is made, although one before it failed. The
    first error is raised in the end, the others are logged.
    """

    def __init__(self, logger: logging.Logger, what: str) -> None:
        """`what` as in `log_unexpected`."""
        self._logger = logger
        self._what = what
        self._first: Exception | None = None

    def make(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - `end` raises it
            if self._first is None:
                self._first = error
            else:
                log_unexpected(self._logger, self._what, error)

    def end(self) -> None:
        if self._first is not None:
            raise self._first


def apart(
    logger: logging.Logger, what: str, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Calls `call`; an exception is logged instead of being passed on."""
    try:
        call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - the purpose of this module
        log_unexpected(logger, what, error)
