"""Of what Spark raises, the line that says something."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.pipelines.flow_frames import short_text
from moldau.protocol.errors import MoldauError

_SPARKS = ("pyspark", "py4j")
_RAISED = "[USER_RAISED_EXCEPTION] "
"""By raise_error in a plan: ours, or the user's."""
_TRACEBACK = "Traceback (most recent call last):"
_QUERY = "=== Streaming Query ==="
"""What comes behind it is Spark's description of the query."""
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*: ")
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
    return _end_of_traceback(text) or short_text(failure)


def _end_of_traceback(text: str) -> str | None:
    """What a batch has raised in Python. Of several, one in another, the last is the cause: it may
    come from a task.
    """
    rest = text.partition(_QUERY)[0].rpartition(_TRACEBACK)
    raised = next((line for line in rest[2].splitlines() if _EXCEPTION.match(line)), None)
    if not rest[1] or raised is None:
        return None
    name, _, said = raised.partition(": ")
    if said.startswith("["):
        return short_text(ValueError(said))
    return f"{name.rpartition('.')[2]}: {said}"[:_TEXT_MAX]
