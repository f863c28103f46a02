"""Of what Spark raises, the line that says something."""

from collections.abc import Iterator
from contextlib import contextmanager

from moldau.pipelines.flow_frames import short_text
from moldau.protocol.errors import MoldauError

_SPARKS = ("pyspark", "py4j")
_RAISED = "[USER_RAISED_EXCEPTION] "
"""By raise_error in a plan: ours, or the user's."""


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
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("moldau.") and "Error: " in line]
    if own:
        return own[-1].partition(": ")[2]
    said = [line.partition(_RAISED)[2] for line in lines if _RAISED in line]
    return said[0].partition(" SQLSTATE: ")[0] if said else short_text(failure)
