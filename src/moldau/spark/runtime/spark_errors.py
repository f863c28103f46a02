"""Finds the meaningful line in the errors that Spark raises."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.task_errors import called_from, raised_in_python

_SPARK_PACKAGES = ("pyspark", "py4j")
_RAISED = "[USER_RAISED_EXCEPTION] "
"""Marks errors of raise_error in a plan, ours or the user's."""
_TEXT_MAX = 500


@contextmanager
def in_one_line(prefix: str) -> Iterator[None]:
    """Raises MoldauError with one line in place of Spark's errors."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _SPARK_PACKAGES:
            raise
        raise MoldauError(f"{prefix}: {cause_of(error)}") from None


def cause_of(failure: BaseException) -> str:
    """The line of an error and its causes that explains it best."""
    text = str(failure)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("moldau.") and "Error: " in line]
    if own:
        return own[-1].partition(": ")[2]
    raised = [line.partition(_RAISED)[2] for line in lines if _RAISED in line]
    if raised:
        return raised[0].partition(" SQLSTATE: ")[0]
    return _raised_by_task(text) or _with_location(_with_root(failure), called_from(text))


def _raised_by_task(text: str) -> str | None:
    raised = raised_in_python(text)
    if raised is None:
        return None
    if raised.message.startswith("["):
        return _with_location(short_text(ValueError(raised.message)), called_from(text))
    line = f"{raised.name.rpartition('.')[2]}: {raised.message}"[:_TEXT_MAX]
    if raised.function is not None:
        line = f"in {raised.function}: {line}"
    return _with_location(line, raised.location)


def _with_root(failure: BaseException) -> str:
    """The error, with its root cause unless it is one of Spark's own, which explain themselves."""
    text = short_text(failure)
    root = failure
    while (cause := getattr(root, "_cause", None)) is not None:
        root = cause
    root_text = short_text(root)
    is_enough = text.startswith("[") or root_text in text
    return text if is_enough else f"{text}, because of {root_text}"


def _with_location(text: str, location: str | None) -> str:
    return text if location is None else f"{location}: {text}"


def short_text(error: BaseException) -> str:
    """Spark's message without plans and stacks."""
    text = str(error).strip()
    # The parser's messages begin with an empty line.
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    first = re.split(r"\s*SQLSTATE: \w+|;? line \d+,? pos \d+", lines[0])[0]
    if not text.startswith("["):
        first = f"{type(error).__name__}: {first}" if type(error).__name__ not in first else first
    return first.rstrip(" ;")[:_TEXT_MAX]
