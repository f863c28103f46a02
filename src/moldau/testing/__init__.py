"""Test support for users of Moldau: `broker()` runs a real broker for your tests, in a thread of
the test's process or in a process of its own, and `moldau.testing.simulated_disk` is a disk that
can fail. A broker is ready in a fraction of a second.
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
    """Run a broker for the duration of a `with` block.

        with broker({"message.max.bytes": "2000"}) as b:
            b.create_topic("orders", partitions=3)
            producer = moldau.Producer(b.bootstrap)

    Args:
        settings: Kafka's broker settings, by name. The listener's port is chosen automatically.
        directory: Keeps the data in this directory, also after the block. Without it a temporary
            directory is used and removed.
        process: Runs the broker in a process of its own, which a test can `kill`. It takes a little
            longer to start.

    Yields:
        The running broker: a `ThreadBroker`, or a `ProcessBroker` with `process=True`.

    Raises:
        OSError: This operating system is Windows.
        MoldauError: A setting is unknown or invalid.
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
