"""Errors of Spark jobs. Each message is one line that says what to do."""

from collections.abc import Iterable
from difflib import get_close_matches

from moldau.protocol.errors import MoldauError

_SIMILAR = 0.6


class OptionError(MoldauError):
    """An unknown option or an invalid value."""


class DataLossError(MoldauError):
    """Records were deleted before the query read them."""


class StaleCheckpointError(MoldauError):
    """The checkpoint is older than the query's last commit in the target."""


class FencedRunError(MoldauError):
    """Another run of the same job has taken over."""


class HttpError(MoldauError):
    """An address did not respond as expected."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean x?`, or nothing."""
    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), list(by_lower), n=1, cutoff=_SIMILAR)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
