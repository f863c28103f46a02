"""Members of consumer groups, each polled by a thread of its own, as in applications. Only that
thread uses the consumer: `ask` runs a function there and returns its result.

A consumer is touched by its thread alone: `ask` runs a piece of work there and gives its result.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from support.waiting import wait_for
from third_party.libraries import ConsumerOptions, Library, LibraryConsumer, Received

from moldau.types import TopicPartition

MEMBER_TIMEOUT_S = 60.0
Answer = TypeVar("Answer")
Work = Callable[[LibraryConsumer], Any]


class Member:
    def __init__(
        self, library: Library, address: str, topics: Sequence[str], options: ConsumerOptions
    ) -> None:
        self.library = library
        self.assignment: set[TopicPartition] = set()
        self.revoked: list[set[TopicPartition]] = []
        self.received: list[Received] = []
        self.problem: BaseException | None = None
        self._work: SimpleQueue[tuple[Future[Any], Work] | None] = SimpleQueue()
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._live, args=(address, tuple(topics), options), name=f"{library.name} member"
        )
        self._thread.start()

    def ask(self, work: Callable[[LibraryConsumer], Answer]) -> Answer:
        """Run `work` in the consumer's thread, between two polls."""
        future: Future[Answer] = Future()
        self._work.put((future, work))
        return future.result(MEMBER_TIMEOUT_S)

    def leave(self) -> None:
        """Close the consumer, which leaves the group."""
        self._work.put(None)
        self._thread.join(MEMBER_TIMEOUT_S)
        assert not self._thread.is_alive(), "the member did not leave"
        if self.problem is not None:
            raise self.problem

    def wait_for_share(self) -> None:
        self.wait_for(lambda: bool(self.assignment), "a share")

    def own(self, values: set[bytes]) -> set[bytes]:
        """Those of the values that this member received."""
        return {one.value or b"" for one in self.received} & values

    def wait_for_some(self, values: set[bytes], count: int) -> None:
        """Waits until this member has received `count` of the values."""
        self.wait_for(lambda: len(self.own(values)) == count, f"{count} of the records")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until a condition on what this member has received holds."""
        with self._changed:
            held = self._changed.wait_for(
                lambda: condition() or self.problem is not None, MEMBER_TIMEOUT_S
            )
        if self.problem is not None:
            raise self.problem
        assert held, f"{what}: {self.assignment}"

    def _live(self, address: str, topics: tuple[str, ...], options: ConsumerOptions) -> None:
        try:
            consumer = self.library.consumer(address, options)
            self.revoked = consumer.revoked
            try:
                consumer.subscribe(topics)
                while self._do_work(consumer):
                    self._look(consumer.poll(), consumer.assignment())
            finally:
                consumer.close()
        except BaseException as problem:  # noqa: BLE001 - handed to the test's thread
            self.problem = problem
        with self._changed:
            self._changed.notify_all()

    def _look(self, received: list[Received], assignment: set[TopicPartition]) -> None:
        with self._changed:
            self.received += received
            self.assignment = assignment
            self._changed.notify_all()

    def _do_work(self, consumer: LibraryConsumer) -> bool:
        while True:
            try:
                item = self._work.get_nowait()
            except Empty:
                return True
            if item is None:
                return False
            future, work = item
            try:
                future.set_result(work(consumer))
            except Exception as problem:  # noqa: BLE001 - handed to the caller
                future.set_exception(problem)


@contextmanager
def members(*wanted: tuple[Library, str, Sequence[str], ConsumerOptions]) -> Iterator[list[Member]]:
    """Members that join one after the other and leave at the end."""
    joined: list[Member] = []
    try:
        for each in wanted:
            joined.append(Member(*each))
            joined[-1].wait_for_share()
        yield joined
    finally:
        for member in joined:
            member.leave()


def wait_until_shared(group: Sequence[Member], topics: dict[str, int]) -> None:
    """Waits until each partition has exactly one owner and every possible owner has one."""
    everything = {TopicPartition(name, i) for name, count in topics.items() for i in range(count)}

    def is_shared() -> bool:
        for each in group:
            if each.problem is not None:
                raise each.problem
        return _is_shared(group, everything)

    wait_for(is_shared, f"shares of {sorted(everything)}", MEMBER_TIMEOUT_S)


def _is_shared(group: Sequence[Member], everything: set[TopicPartition]) -> bool:
    shares = [set(each.assignment) for each in group]
    if len(everything) >= len(group) and not all(shares):
        return False
    return sum(map(len, shares)) == len(everything) and set().union(*shares) == everything
