"""A broker in a thread of the test's process: a real node, a free port, a temporary directory."""

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from moldau.broker.node.event_loop import new_event_loop
from moldau.broker.node.node import Node, NodeOptions
from moldau.config.broker import BrokerConfig
from moldau.config.standalone import standalone_properties
from moldau.net.clock import ShiftedClock
from moldau.protocol.errors import MoldauError
from moldau.testing.faults import Faults

ResultT = TypeVar("ResultT")

START_DEADLINE_S = 60
TEST_SETTINGS = {
    "moldau.flush.policy": "os",
    "moldau.reserve.bytes": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
}
"""Settings that make a broker cheaper for tests. Any of them can be overridden."""


def properties_for_tests(
    log_dir: Path, settings: Mapping[str, str], port: int = 0
) -> dict[str, str]:
    base = standalone_properties(str(log_dir), host="127.0.0.1", port=port)
    return base | TEST_SETTINGS | {name: str(value) for name, value in settings.items()}


class BrokerClock:
    """The broker's time. It runs normally and can be moved ahead; only `reset` moves it back."""

    def __init__(self, owner: "ThreadBroker", ahead_ms: int) -> None:
        self._owner = owner
        self.shifted = ShiftedClock(ahead_ms)

    def advance(self, *, seconds: float = 0, ms: int = 0) -> None:
        """Move the broker's time ahead by `seconds` plus `ms`. Timeouts, retention and expiry that
        become due take effect now. The shift survives `restart`; `ThreadBroker.reset` undoes it.
        """
        self._owner.call(lambda: self.shifted.advance(ms + int(seconds * 1000)))


class ThreadBroker:
    """A broker in a thread of the test's process. Make one with `broker()`.

    Args:
        settings: Kafka's broker settings, by name.
        directory: The directory for the data; a temporary one if it is None.
        port: The port of its listener; 0 selects a free one.
        ahead_ms: How many milliseconds the broker's clock is ahead of real time at the start.

    Every method may be called from any thread. Methods that need a running broker raise MoldauError
    while it is stopped.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        directory: Path | None = None,
        *,
        port: int = 0,
        ahead_ms: int = 0,
    ) -> None:
        self._settings = dict(settings)
        self._cleanup = contextlib.ExitStack()
        self._directory = directory
        self._port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._node: Node | None = None
        self._faults: Faults | None = None
        self.clock = BrokerClock(self, ahead_ms)

    # Start and stop

    def start(self) -> None:
        """Start the broker and wait until clients can connect. Raises the error of a
        failed start.
        """
        if self._directory is None:
            made = tempfile.TemporaryDirectory(prefix="moldau-test-", ignore_cleanup_errors=True)
            self._directory = Path(self._cleanup.enter_context(made))
        properties = properties_for_tests(self._directory, self._settings, self._port)
        options = NodeOptions(formats_itself=True)
        config = BrokerConfig.parse(properties)
        config.refuse_unknown()
        node = Node(config, options, clock=self.clock.shifted)
        started: Future[None] = Future()
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, node, started), name="moldau-broker", daemon=True
        )
        self._thread.start()
        started.result(START_DEADLINE_S)
        self._node = node
        self._port = node.client_port
        self._faults = Faults(self.clock.shifted, node.handler_of)
        self.call(lambda: node.intercept(self._faults.intercept if self._faults else None))

    def _run(self, loop: asyncio.AbstractEventLoop, node: Node, started: Future[None]) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(node.start())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            loop.close()
            started.set_exception(error)
            return
        started.set_result(None)
        loop.run_forever()
        loop.run_until_complete(node.stop())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    def stop(self) -> None:
        """Shut the broker down cleanly. Its data and its port are kept for `start`. Raises
        MoldauError if the broker does not stop within a minute.
        """
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(START_DEADLINE_S)
            if self._thread.is_alive():
                raise MoldauError("the broker's thread does not end")
        self._loop = self._thread = self._node = None

    def restart(self) -> None:
        """Stop the broker cleanly and start it again on the same port and data."""
        self.stop()
        self.start()

    def reset(self) -> None:
        """Prepare the broker for the next test: no faults, real time, and running. Topics and data
        stay. Time cannot run backwards under a node, so a node whose clock was moved is restarted.
        """
        if self.clock.shifted.ahead_ms:
            self.stop()
            self.clock.shifted = ShiftedClock()
        if self._node is None:
            self.start()
        else:
            self.clear_faults()

    def close(self) -> None:
        """Stop the broker, and remove its directory unless it was passed in."""
        self.stop()
        self._cleanup.close()

    # Addresses and topics

    @property
    def bootstrap(self) -> str:
        """The broker's address, `host:port`: the value for a client's `bootstrap.servers`."""
        return f"127.0.0.1:{self._port}"

    @property
    def directory(self) -> Path:
        """The directory that holds the broker's logs."""
        assert self._directory is not None
        return self._directory

    @property
    def metrics_port(self) -> int | None:
        """The port of /metrics; None unless moldau.metrics.port is set."""
        return self._running().metrics_port

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until it can be used.

        Args:
            name: Name of the topic.
            partitions: Number of partitions.
            config: Settings of the topic, such as `{"cleanup.policy": "compact"}`.

        Raises:
            KafkaError: The controller refused it, with TOPIC_ALREADY_EXISTS for example.
        """
        node = self._running()
        self._wait(node.create_topic(name, partitions, config or {}))

    # Faults

    def fail_next(self, api: str, error: str, times: int = 1) -> None:
        """Make the next requests of an API fail; they change nothing.

            broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)

        Args:
            api: Kafka's name of the API.
            error: Kafka's name of the error. If the response has no place for an error, as with
                acks=0, the connection is closed.
            times: Number of requests that fail.

        Raises:
            ValueError: A name is unknown; the text names the closest one.
        """
        self._with_faults(lambda faults: faults.fail_next(api, error, times))

    def delay(self, api: str, ms: int, times: int | None = None) -> None:
        """Make requests of an API wait before they are handled.

        Args:
            api: Kafka's name of the API.
            ms: Milliseconds that each request waits.
            times: Number of requests to delay; None delays all until `clear_faults`.

        Raises:
            ValueError: The name is unknown; the text names the closest one.
        """
        self._with_faults(lambda faults: faults.delay(api, ms, times))

    def clear_faults(self) -> None:
        """Remove all faults and delays. Delayed requests are handled now."""
        self._with_faults(Faults.clear)

    def drop_connections(self) -> int:
        """Close all client connections. Returns the number of connections closed."""
        return self.call(self._running().drop_connections)

    def _with_faults(self, action: Callable[[Faults], None]) -> None:
        self._running()
        faults = self._faults
        assert faults is not None
        self.call(lambda: action(faults))

    # Calls into the thread

    def _running(self) -> Node:
        if self._node is None:
            raise MoldauError("the broker is not running")
        return self._node

    def call(self, action: Callable[[], ResultT]) -> ResultT:
        """Run a function in the broker's thread.

        Args:
            action: The function, called without arguments.

        Returns:
            The result of the function.

        Raises:
            MoldauError: The broker is not running.
        """

        async def called() -> ResultT:
            return action()

        return self._wait(called())

    def _wait(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        if self._loop is None:
            coroutine.close()
            raise MoldauError("the broker is not running")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_DEADLINE_S)
