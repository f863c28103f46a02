"""`pytest -p platforms.broker_elsewhere`: the process of the tests has what Windows has. A test
that starts a broker gets one on Linux, in a process of its own: topics, faults, the clock and kills
reach it through its pipe.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from platforms import as_on_windows  # noqa: F401 - before anything of Moldau

from moldau import testing
from moldau.platforms import HAS_LOCKS
from moldau.testing.process_broker import ProcessBroker

assert not HAS_LOCKS


@contextlib.contextmanager
def _broker(
    settings: Mapping[str, str] | None = None,
    *,
    directory: Path | None = None,
    process: bool = True,
) -> Iterator[ProcessBroker]:
    made = ProcessBroker(settings or {}, directory)
    try:
        made.start()
        yield made
    finally:
        made.close()


testing.broker = _broker
testing.ThreadBroker = ProcessBroker  # type: ignore[misc, assignment]
