"""Of what Spark raises, the line that says something."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.protocol.errors import MoldauError
from moldau.spark.runtime.task_errors import called_from, raised_in_python

_SPARKS = ("pyspark", "py4j")
_RAISED = "[USER_RAISED_EXCEPTION] "
"""By raise_error in a plan: ours, or the user's."""
_TEXT_MAX = 500


@contextmanager
def in_one_line(what: str) -> Iterator[None]:
    """Raises MoldauError in place of Spark's."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _SPARKS:
            raise
        raise MoldauError(f"{what}: {cause_of(error)}") from None


def cause_of(failure: BaseException) -> str:
    """Of a stack of causes."""
    text = str(failure)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("moldau.") and "Error: " in line]
    if own:
        return own[-1].partition(": ")[2]
    said = [line.partition(_RAISED)[2] for line in lines if _RAISED in line]
    if said:
        return said[0].partition(" SQLSTATE: ")[0]
    return _raised_by_task(text) or _with_place(_with_root(failure), called_from(text))


def _raised_by_task(text: str) -> str | None:
    raised = raised_in_python(text)
    if raised is None:
        return None
    if raised.said.startswith("["):
        return _with_place(short_text(ValueError(raised.said)), called_from(text))
    told = f"{raised.name.rpartition('.')[2]}: {raised.said}"[:_TEXT_MAX]
    if raised.function is not None:
        told = f"in {raised.function}: {told}"
    return _with_place(told, raised.place)


def _with_root(failure: BaseException) -> str:
    """Spark's own errors tell everything; of others the first cause says more than the last."""
    told = short_text(failure)
    root = failure
    while (cause := getattr(root, "_cause", None)) is not None:
        root = cause
    said = short_text(root)
    return told if told.startswith("[") or said in told else f"{told}, because of {said}"


def _with_place(told: str, place: str | None) -> str:
    return told if place is None else f"{place}: {told}"


def short_text(error: BaseException) -> str:
    """What Spark says, without its plans and stacks."""
    text = str(error).strip()
    # A parser's message has its point on the second line.
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    first = re.split(r"\s*SQLSTATE: \w+|;? line \d+,? pos \d+", lines[0])[0]
    if not text.startswith("["):
        first = f"{type(error).__name__}: {first}" if type(error).__name__ not in first else first
    return first.rstrip(" ;")[:_TEXT_MAX]
