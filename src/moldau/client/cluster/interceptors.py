"""Objects of the user that see records and outcomes on their way. What they do wrong is logged and
harms nobody, as with Kafka's own clients.
"""

import logging
from collections.abc import Iterable
from typing import Any

from moldau.client.errors import ConfigError

_log = logging.getLogger(__name__)


def interceptors_of(given: Iterable[Any]) -> list[Any]:
    """Of `interceptor.classes`: objects, or classes to make them of."""
    return [_made(one) for one in given]


def ask(interceptor: Any, name: str, *arguments: Any) -> Any:
    """None if it does not care or fails."""
    method = getattr(interceptor, name, None)
    try:
        return None if method is None else method(*arguments)
    except Exception:  # noqa: BLE001 - it is the user's
        _log.exception("%s of an interceptor failed", name)
        return None


def _made(given: Any) -> Any:
    if isinstance(given, str):
        raise ConfigError(f"interceptor.classes: give objects or classes, not the name '{given}'")
    return given() if isinstance(given, type) else given
