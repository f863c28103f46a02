"""Interceptors: objects of the user that see records and outcomes. Their errors are logged and have
no other effect, as with Kafka's own clients.
"""

import logging
from collections.abc import Iterable
from typing import Any

from moldau.client.errors import ConfigError

_log = logging.getLogger(__name__)


def interceptors_of(choices: Iterable[Any]) -> list[Any]:
    """The interceptors of the setting `interceptor.classes`: objects, or classes to instantiate."""
    return [_made(choice) for choice in choices]


def notify(interceptor: Any, name: str, *arguments: Any) -> Any:
    """Calls a method of an interceptor. Returns None if there is no such method, or if it fails."""
    method = getattr(interceptor, name, None)
    try:
        return None if method is None else method(*arguments)
    except Exception:  # noqa: BLE001 - from the user's code
        _log.exception("%s of an interceptor failed", name)
        return None


def _made(choice: Any) -> Any:
    if isinstance(choice, str):
        raise ConfigError(f"interceptor.classes: give objects or classes, not the name '{choice}'")
    return choice() if isinstance(choice, type) else choice
