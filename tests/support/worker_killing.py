"""Kills the worker of a task, as if its machine were gone. Tasks get it pickled by value, or as a
file beside a pipeline's.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

WORKER = "org.apache.spark.deploy.worker.Worker"


def kill_with_children(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            if one.pid != os.getpid():
                with suppress(psutil.NoSuchProcess):
                    one.kill()


def kill_own_worker() -> None:
    """Kills the worker, its executor, and finally this process."""
    parents = psutil.Process().parents()
    found = [one for one in parents if WORKER in " ".join(one.cmdline())]
    assert found, "not in a worker"
    kill_with_children(found[0].pid)
    psutil.Process().kill()


class KillOnce:
    """For `mapInArrow`: passes rows on; the first task that sees `number` kills its worker in the
    middle of a batch.
    """

    def __init__(self, mark: str, number: int) -> None:
        self._mark = mark
        self._number = number

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if self._number in batch["n"].to_pylist():
                with suppress(FileExistsError):
                    Path(self._mark).touch(exist_ok=False)
                    kill_own_worker()
            yield batch
