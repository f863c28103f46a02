"""Names that clients chose, shortened for log lines: only a few of them, and none too long."""

from collections.abc import Sequence

_NAMES_MAX = 5
_CHARS_MAX = 100


def few_of(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(map(short, names[:_NAMES_MAX]))
    more = len(names) - _NAMES_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def short(text: str, chars_max: int = _CHARS_MAX) -> str:
    return text if len(text) <= chars_max else f"{text[:chars_max]}…"
