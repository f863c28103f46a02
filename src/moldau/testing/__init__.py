"""Shipped test support: a real broker for your tests (`with broker() as b:`), a simulated disk. In
a thread of the test's process by default, or in a process of its own; ready in a fraction of a
second.
"""

import contextlib
from typing import TYPE_CHECKING, Any

from moldau.platforms import refuse_windows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from moldau.testing.process_broker import ProcessBroker
    from moldau.testing.thread_broker import ThreadBroker

__all__ = ["ProcessBroker", "ThreadBroker", "broker"]


@contextlib.contextmanager
def broker(
    settings: "Mapping[str, str] | None" = None,
    *,
    directory: "Path | None" = None,
    process: bool = False,
) -> "Iterator[ThreadBroker | ProcessBroker]":
    """A running broker; `settings` are Kafka's. `process=True` runs it in a process of its own,
    which a test can kill. `directory` keeps the data there.
    """
    refuse_windows("a broker for tests")
    # Imported when used: the pytest plugin lives in this package and must cost nothing.
    from moldau.testing.process_broker import ProcessBroker
    from moldau.testing.thread_broker import ThreadBroker

    kind = ProcessBroker if process else ThreadBroker
    made: ThreadBroker | ProcessBroker = kind(settings or {}, directory)
    try:
        made.start()
        yield made
    finally:
        made.close()


def __getattr__(name: str) -> Any:
    if name == "ThreadBroker":
        from moldau.testing.thread_broker import ThreadBroker

        return ThreadBroker
    if name == "ProcessBroker":
        from moldau.testing.process_broker import ProcessBroker

        return ProcessBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
