"""Ways to wait for deliveries: in a thread of the user, or in the event loop."""

import asyncio
import os
import threading
from typing import Any

from moldau.client.errors import ClientError, ClientTimeoutError, ClosedError
from moldau.core.producer.batching import Delivery, Outcome, leaf_of


def outcome_of(delivery: Delivery) -> Outcome | None:
    return leaf_of(delivery.batch, delivery.index)[0].outcome


class ThreadWaiter:
    """Waiting in threads, for the blocking producer."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def wait(self, delivery: Delivery, timeout: float | None) -> Outcome:
        if os.getpid() != self._process:
            raise ClosedError(
                "sent before the process was forked; only the parent gets the outcome"
            )
        arrived = threading.Event()
        if getattr(_own_thread, "is_client", False):
            raise ClientError("a callback runs in the client's own thread and must not wait")
        delivery.add_callback(lambda _: arrived.set())
        if not arrived.wait(timeout):
            raise ClientTimeoutError(f"no outcome within {timeout} seconds; it may still come")
        outcome = outcome_of(delivery)
        assert outcome is not None
        return outcome

    def awaited(self, delivery: Delivery) -> Any:  # noqa: ARG002 - LoopWaiter needs it
        raise ClientError("a delivery of the blocking producer has result(); await moldau.aio's")


class LoopWaiter:
    """Waiting in the event loop, for the asyncio producer."""

    def wait(self, delivery: Delivery, timeout: float | None) -> Outcome:  # noqa: ARG002
        raise ClientError("the outcome is not known yet; await the delivery")

    def awaited(self, delivery: Delivery) -> Any:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def complete(arrived: Delivery) -> None:
            if done.done():
                return
            error = arrived.exception()
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(arrived.result())

        delivery.add_callback(complete)
        return done


_own_thread = threading.local()


def mark_own_thread() -> None:
    """Marks the calling thread as the client's own, in which nothing may wait."""
    _own_thread.is_client = True
