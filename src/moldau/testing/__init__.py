"""Shipped test support: a real broker in your tests (`broker`), and the simulated disk."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.testing.broker import ThreadBroker, broker
    from moldau.testing.broker_process import ProcessBroker

__all__ = ["ProcessBroker", "ThreadBroker", "broker"]


def __getattr__(name: str) -> Any:
    """Imported when used: the pytest plugin lives in this package and must cost nothing."""
    if name in {"ThreadBroker", "broker"}:
        from moldau.testing import broker as module

        return getattr(module, name)
    if name == "ProcessBroker":
        from moldau.testing.broker_process import ProcessBroker

        return ProcessBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
