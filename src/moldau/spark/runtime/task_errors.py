"""What a failed job says of its cause: the exception of a task in Python with its line, and whether
the same rows would raise it again.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_TRACEBACK = "Traceback (most recent call last):"
_CALL_FAILED = "An error occurred while calling "
_QUERY = "=== Streaming Query ==="
"""What comes behind it is Spark's description of the query."""
_EXCEPTION = re.compile(r"([A-Za-z_](?:[\w.]|<locals>)*)(?:: (.*))?$")
_FRAME = re.compile(r'  File "(.+)", line (\d+), in (.+)$')
_CALLED = re.compile(r"was called from\n(.+:\d+)\n")
# Of libraries, wherever a task's machine has them, and of packages that were sent to it as an
# archive; a user's line is above them.
_LIBRARIES = re.compile(
    r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<frozen |/python/pyspark/"
    r"|\.zip/(?:moldau|pyspark|py4j)/"
)
PIPELINE_MODULE = "__pipeline_"
"""So the module of a pipeline's file begins: its classes are a user's own."""
# Modules of Python's own that only look at values: the same values raise the same error.
_OF_VALUES = frozenset({
    "array", "ast", "base64", "binascii", "bz2", "calendar", "codecs", "configparser", "csv",
    "ctypes", "dataclasses", "datetime", "decimal", "email", "encodings", "enum", "fractions",
    "graphlib", "gzip", "html", "ipaddress", "json", "locale", "lzma", "marshal", "math", "numbers",
    "pickle", "plistlib", "pyexpat", "re", "sre_constants", "statistics", "string", "struct",
    "textwrap", "tomllib", "unicodedata", "uuid", "xml", "zipfile", "zlib", "zoneinfo",
})  # fmt: skip
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
    lines = rest.splitlines()
    for number, line in enumerate(lines):
        if (frame := _FRAME.match(line)) is not None:
            frames.append((frame[1], frame[2], frame[3]))
        elif frames and (found := _EXCEPTION.match(line)) is not None:
            users = [one for one in frames if is_users(one[0])]
            file, at, function = users[-1] if users else (None, None, None)
            place = None if file is None else f"{file}:{at}"
            said = _raised_in_jvm(lines[number:]) or (found[2] or "")
            return Raised(found[1], said, place, function)
    return None


def _raised_in_jvm(lines: list[str]) -> str | None:
    """Of a call into the JVM that has failed, the second line says why."""
    if _CALL_FAILED not in lines[0] or len(lines) < 2:
        return None
    return lines[1].removeprefix(": ")


def is_users(file: str) -> bool:
    """Of a frame of a traceback: neither Python's, nor a library's, nor ours."""
    if _LIBRARIES.search(file):
        return False
    path = Path(file)
    return not any(path.is_relative_to(folder) for folder in _OWN_FOLDERS)


def _folders(*names: str) -> list[Path]:
    """Of packages as they are found here, which is where tasks of this machine find them, and
    where links to them lead. A user's folder may have the same name.
    """
    specs = [spec for name in names if (spec := find_spec(name)) is not None]
    found = [Path(one) for spec in specs for one in spec.submodule_search_locations or ()]
    return [*found, *(one.resolve() for one in found)]


_OWN_FOLDERS = _folders("moldau", "pyspark", "py4j")


def called_from(text: str) -> str | None:
    """`file:line` where the part of a plan was written that has failed, if Spark tells it."""
    found = _CALLED.search(text)
    return None if found is None else found[1]


def is_of_rows(failure: BaseException) -> bool:
    """Whether Spark or a user's line fails at what it was given: some row has brought it there."""
    if _is_of_a_value(failure):
        return True
    raised = raised_in_python(str(failure))
    return raised is not None and raised.place is not None


def comes_again(failure: BaseException) -> bool:
    """Whether the same rows fail in the same way: nothing is gained by another attempt."""
    if _is_of_a_value(failure):
        return True
    raised = raised_in_python(str(failure))
    if raised is None or raised.place is None:
        # Ours, or Spark's.
        return False
    module, dot, _ = raised.name.partition(".")
    if not dot:
        return raised.name not in _PASSING
    # Of a library nothing is known. The parts of Python's modules in C have names like _csv.
    return module.startswith(PIPELINE_MODULE) or module.lstrip("_") in _OF_VALUES


def _is_of_a_value(failure: BaseException) -> bool:
    state = getattr(failure, "getSqlState", lambda: None)()
    return state is not None and state.startswith(_DATA_STATES)


def first_line(failure: BaseException) -> str:
    """What a task has raised, or else how Spark begins."""
    raised = raised_in_python(str(failure))
    if raised is not None:
        return f"{raised.name}: {raised.said}"
    lines = str(failure).strip().splitlines() or [type(failure).__name__]
    return _raised_in_jvm(lines) or lines[0]
