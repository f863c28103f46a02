"""Pipeline runs in processes of their own, which can be killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from moldau.pipelines.run.run_folder import RunFolder


@contextmanager
def started(path: Path, *options: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Starts a run. Leaving the block kills it with all its processes."""
    command = [sys.executable, "-m", "moldau", "pipeline", "run", str(path), *options]
    with (path.parent / "errors").open("ab") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def batches_of(folder: RunFolder, pid: int) -> int:
    status = folder.status()
    if status.get("pid") != pid:
        return -1
    batches = [one["batch"] for one in status["queries"]]
    return min((-1 if batch is None else batch for batch in batches), default=-1)


def has_reached(
    batch: int, folder: RunFolder, running: "subprocess.Popen[bytes]"
) -> Callable[[], bool]:
    """Whether the run has reached that batch. Fails if the run has ended."""
    return lambda: batches_of(folder, running.pid) >= batch or running.poll() is not None
