"""What a job on Spark can do wrong, each with one line that says what to do."""

from collections.abc import Iterable
from difflib import get_close_matches

from moldau.protocol.errors import MoldauError

_SIMILAR = 0.6


class OptionError(MoldauError):
    """An option that does not exist, or a value that it does not take."""


class DataLossError(MoldauError):
    """Records that should have been read are not there any more."""


class StaleCheckpointError(MoldauError):
    """A checkpoint that is older than what its query has committed to the target."""


class FencedRunError(MoldauError):
    """Another run of the same job has taken over."""


class HttpError(MoldauError):
    """An address that does not answer as it should."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean x?`, or nothing."""
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), list(by_lower), n=1, cutoff=_SIMILAR)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
