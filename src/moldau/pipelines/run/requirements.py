"""Checks for the packages that pipelines need, before anything imports them."""

from importlib.util import find_spec

from moldau.protocol.errors import MoldauError

_NEEDED = ("pyspark", "pyarrow", "pandas", "yaml")


def missing_packages() -> list[str]:
    return [name for name in _NEEDED if _is_missing(name)]


def require_packages() -> None:
    """Raises MoldauError."""
    if missing := missing_packages():
        raise MoldauError(f"pipelines need {', '.join(missing)}: pip install 'moldau[spark]'")


def _is_missing(name: str) -> bool:
    try:
        return find_spec(name) is None
    except ValueError:
        # A module without a spec has been put in its place.
        return True
