"""What a failed job says of its cause: the exception of a task in Python with its line, and whether
the same rows would raise it again.
"""

import re
from typing import NamedTuple

_TRACEBACK = "Traceback (most recent call last):"
_QUERY = "=== Streaming Query ==="
"""What comes behind it is Spark's description of the query."""
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_FRAME = re.compile(r'  File "(.+)", line (\d+), in (.+)$')
_CALLED = re.compile(r"was called from\n(.+:\d+)\n")
# Of Spark's workers, of libraries and of this package; a user's line is above them.
_NOT_USERS = (
    "/pyspark/", "/py4j/", "/site-packages/", "/dist-packages/", "<frozen ", "/lib/python3",
    "/moldau/spark/", "/moldau/pipelines/", "/moldau/client/",
)  # fmt: skip
# What may be gone the next time: networks, disks, other processes.
_PASSING = (
    "OSError", "IOError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError",
    "ConnectionAbortedError", "BrokenPipeError", "TimeoutError", "InterruptedError", "MemoryError",
    "EOFError",
)  # fmt: skip
# A value that does not fit, division by zero, and what raise_error says.
_DATA_STATES = ("22", "P0001")


class Raised(NamedTuple):
    """By a task in Python."""

    name: str
    """Of the exception, with its module if that is not builtins."""
    said: str
    place: str | None = None
    """`file:line`, the last one that is the user's."""
    function: str | None = None


def raised_in_python(text: str) -> Raised | None:
    """Of several, one in another, the last is the cause: it may come from a task."""
    _, is_there, rest = text.partition(_QUERY)[0].rpartition(_TRACEBACK)
    if not is_there:
        return None
    frames: list[tuple[str, str, str]] = []
    for line in rest.splitlines():
        if (frame := _FRAME.match(line)) is not None:
            frames.append((frame[1], frame[2], frame[3]))
        elif frames and (found := _EXCEPTION.match(line)) is not None:
            users = [one for one in frames if not any(part in one[0] for part in _NOT_USERS)]
            file, number, function = users[-1] if users else (None, None, None)
            place = None if file is None else f"{file}:{number}"
            return Raised(found[1], found[2] or "", place, function)
    return None


def called_from(text: str) -> str | None:
    """`file:line` where the part of a plan was written that has failed, if Spark tells it."""
    found = _CALLED.search(text)
    return None if found is None else found[1]


def comes_again(failure: BaseException) -> bool:
    """Whether the same rows fail in the same way: nothing is gained by another attempt."""
    state = getattr(failure, "getSqlState", lambda: None)()
    if state is not None and state.startswith(_DATA_STATES):
        return True
    raised = raised_in_python(str(failure))
    if raised is None or raised.place is None or "." in raised.name:
        # Ours, Spark's, or a library's, of which nothing is known.
        return False
    return raised.name not in _PASSING


def first_line(failure: BaseException) -> str:
    """What a task has raised, or else how Spark begins."""
    raised = raised_in_python(str(failure))
    if raised is not None:
        return f"{raised.name}: {raised.said}"
    return (str(failure).strip() or type(failure).__name__).splitlines()[0]
