"""Threads that work until they are stopped; a failure in them fails the test."""

import threading
from collections.abc import Iterable, Sized

from support.waiting import wait_for

_JOIN_DEADLINE_S = 120


class Problems:
    """Filled by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: list[str] = []

    def add(self, problem: str) -> None:
        with self._lock:
            self._found.append(problem)

    def __bool__(self) -> bool:
        return bool(self._found)

    def check(self) -> None:
        assert not self._found, "\n".join(self._found[:5])


class Worker(threading.Thread):
    def __init__(self, name: str, problems: Problems) -> None:
        super().__init__(name=name, daemon=True)
        self.problems = problems
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - the test tells
            self.problems.add(f"{self.name} died of {error!r}")

    def work(self) -> None:
        raise NotImplementedError


def finish(workers: Iterable[Worker]) -> None:
    """Each completes its current step."""
    every = list(workers)
    for worker in every:
        worker.stopped.set()
    for worker in every:
        worker.join(_JOIN_DEADLINE_S)
        assert not worker.is_alive(), f"{worker.name} does not end"


def wait_for_more(work: Sized, count: int, problems: Problems) -> None:
    """Waits until `count` more steps have begun."""
    wanted = len(work) + count
    wait_for(lambda: len(work) >= wanted or bool(problems), f"{count} more")
    problems.check()
