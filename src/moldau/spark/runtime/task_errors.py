"""Finds the cause of a failed job in its message: the Python exception of a task with its line, and
whether the same rows would raise it again.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_TRACEBACK = "Traceback (most recent call last):"
_CALL_FAILED = "An error occurred while calling "
_QUERY = "=== Streaming Query ==="
"""Spark's description of the query follows it."""
_EXCEPTION = re.compile(r"([A-Za-z_](?:[\w.]|<locals>)*)(?:: (.*))?$")
_FRAME = re.compile(r'  File "(.+)", line (\d+), in (.+)$')
_CALLED = re.compile(r"was called from\n(.+:\d+)\n")
# Paths of libraries on any machine, and of packages sent as an archive. The user's line is above
# them in a traceback.
_LIBRARIES = re.compile(
    r"/(?:site|dist)-packages/|/lib/python3\.\d+/|^<frozen |/python/pyspark/"
    r"|\.zip/(?:moldau|pyspark|py4j)/"
)
PIPELINE_MODULE = "__pipeline_"
"""The prefix of modules made of a pipeline's file: their classes are the user's."""
# Standard modules whose errors depend only on values: the same values raise the same error.
_DETERMINISTIC_MODULES = frozenset({
    "array", "ast", "base64", "binascii", "bz2", "calendar", "codecs", "configparser", "csv",
    "ctypes", "dataclasses", "datetime", "decimal", "email", "encodings", "enum", "fractions",
    "graphlib", "gzip", "html", "ipaddress", "json", "locale", "lzma", "marshal", "math", "numbers",
    "pickle", "plistlib", "pyexpat", "re", "sre_constants", "statistics", "string", "struct",
    "textwrap", "tomllib", "unicodedata", "uuid", "xml", "zipfile", "zlib", "zoneinfo",
})  # fmt: skip
# Errors that may not occur again: of networks, disks, other processes.
_TRANSIENT = (
    "OSError", "IOError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError",
    "ConnectionAbortedError", "BrokenPipeError", "TimeoutError", "InterruptedError", "MemoryError",
    "EOFError",
)  # fmt: skip
# SQL states of values that do not fit, division by zero, and raise_error.
_DATA_STATES = ("22", "P0001")


class Raised(NamedTuple):
    """An exception of a task in Python."""

    name: str
    """The exception's class, with its module unless that is builtins."""
    message: str
    location: str | None = None
    """`file:line` of the last frame in the user's code."""
    function: str | None = None


def raised_in_python(text: str) -> Raised | None:
    """The exception in the last traceback, which is the cause of the others; None without one."""
    _, marker, rest = text.partition(_QUERY)[0].rpartition(_TRACEBACK)
    if not marker:
        return None
    frames: list[tuple[str, str, str]] = []
    lines = rest.splitlines()
    for number, line in enumerate(lines):
        if (match := _FRAME.match(line)) is not None:
            frames.append((match[1], match[2], match[3]))
        elif frames and (exception := _EXCEPTION.match(line)) is not None:
            users = [frame for frame in frames if is_users_file(frame[0])]
            file, at, function = users[-1] if users else (None, None, None)
            location = None if file is None else f"{file}:{at}"
            message = _raised_in_jvm(lines[number:]) or (exception[2] or "")
            return Raised(exception[1], message, location, function)
    return None


def _raised_in_jvm(lines: list[str]) -> str | None:
    """The reason of a failed call into the JVM, which is in the second line."""
    if _CALL_FAILED not in lines[0] or len(lines) < 2:
        return None
    return lines[1].removeprefix(": ")


def is_users_file(file: str) -> bool:
    """Whether a file belongs to the user, and not to Python, a library or Moldau."""
    if _LIBRARIES.search(file):
        return False
    path = Path(file)
    return not any(path.is_relative_to(folder) for folder in _OWN_FOLDERS)


def _folders(*names: str) -> list[Path]:
    """The folders of packages on this machine, as they are named and with links resolved. Names
    alone are not enough: a user's folder may have the same name.
    """
    specs = [spec for name in names if (spec := find_spec(name)) is not None]
    folders = [Path(path) for spec in specs for path in spec.submodule_search_locations or ()]
    return [*folders, *(folder.resolve() for folder in folders)]


_OWN_FOLDERS = _folders("moldau", "pyspark", "py4j")


def called_from(text: str) -> str | None:
    """`file:line` of the part of a plan that has failed, if Spark reports it."""
    match = _CALLED.search(text)
    return None if match is None else match[1]


def is_caused_by_a_row(failure: BaseException) -> bool:
    """Whether a row has caused the failure, in Spark or in the user's code."""
    if _is_value_error(failure):
        return True
    raised = raised_in_python(str(failure))
    return raised is not None and raised.location is not None


def is_repeatable(failure: BaseException) -> bool:
    """Whether the same rows would fail in the same way, so that a retry is pointless."""
    if _is_value_error(failure):
        return True
    raised = raised_in_python(str(failure))
    if raised is None or raised.location is None:
        # Raised by our code or Spark's.
        return False
    module, dot, _ = raised.name.partition(".")
    if not dot:
        return raised.name not in _TRANSIENT
    # Errors of libraries may be transient. C parts of standard modules have names like _csv.
    return module.startswith(PIPELINE_MODULE) or module.lstrip("_") in _DETERMINISTIC_MODULES


def _is_value_error(failure: BaseException) -> bool:
    state = getattr(failure, "getSqlState", lambda: None)()
    return state is not None and state.startswith(_DATA_STATES)


def first_line(failure: BaseException) -> str:
    """The exception of a task, or the first line of Spark's message."""
    raised = raised_in_python(str(failure))
    if raised is not None:
        return f"{raised.name}: {raised.message}"
    lines = str(failure).strip().splitlines() or [type(failure).__name__]
    return _raised_in_jvm(lines) or lines[0]
