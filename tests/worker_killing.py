"""Within a task: the machine that it runs on is gone, so to speak. Sent to tasks as it is."""

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
    """The worker, the executor that it started, and this process at last."""
    parents = psutil.Process().parents()
    found = [one for one in parents if WORKER in " ".join(one.cmdline())]
    assert found, "not in a worker"
    kill_with_children(found[0].pid)
    psutil.Process().kill()


class KillOnce:
    """For `mapInArrow`: rows pass; the first task that ever sees `number` kills its worker,
    in the middle of a batch.
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
