"""The asyncio clients: the same names and behaviour as the blocking clients in `moldau`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.client.admin.aio import Admin
    from moldau.client.consumer.aio import Consumer
    from moldau.client.producer.aio import Producer

__all__ = ["Admin", "Consumer", "Producer"]

_CLIENTS = {
    "Admin": "moldau.client.admin.aio",
    "Consumer": "moldau.client.consumer.aio",
    "Producer": "moldau.client.producer.aio",
}


def __getattr__(name: str) -> Any:
    if name not in _CLIENTS:
        raise AttributeError(f"module 'moldau.aio' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_CLIENTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_CLIENTS])
