"""A broker in a process of its own: all of `ThreadBroker`'s methods, and it can be killed. The two
processes exchange JSON lines over the child's stdin and stdout.
"""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError

STOP_DEADLINE_S = 60


class ProcessClock:
    """The broker's time, which a test can move ahead. The shift survives restarts."""

    def __init__(self, owner: "ProcessBroker") -> None:
        self._owner = owner
        self.ahead_ms = 0

    def advance(self, *, seconds: float = 0, ms: int = 0) -> None:
        """Move the broker's time ahead by `seconds` plus `ms`. Timeouts, retention and expiry that
        become due take effect now. The shift remains for the life of the broker, across restarts.
        """
        self._owner.ask("advance", seconds=seconds, ms=ms)
        self.ahead_ms += ms + int(seconds * 1000)


class ProcessBroker:
    """A broker in a process of its own. Make one with `broker(process=True)`.

    Args:
        settings: Kafka's broker settings, by name.
        directory: The directory for the data; a temporary one if it is None.

    Every method may be called from any thread. All but `start`, `stop`, `kill`, `restart`, `close`,
    `bootstrap` and `directory` raise MoldauError while the broker is not running.
    """

    def __init__(self, settings: Mapping[str, str], directory: Path | None = None) -> None:
        self._settings = {name: str(value) for name, value in settings.items()}
        self._cleanup = contextlib.ExitStack()
        self._directory = directory
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._one_at_a_time = threading.Lock()
        self.clock = ProcessClock(self)

    def start(self) -> None:
        """Start the broker and wait until clients can connect. After `kill`, it recovers its logs.
        Raises MoldauError if the process ends instead.
        """
        if self._directory is None:
            made = tempfile.TemporaryDirectory(prefix="moldau-test-", ignore_cleanup_errors=True)
            self._directory = Path(self._cleanup.enter_context(made))
        arguments = {
            "directory": str(self._directory),
            "port": self._port,
            "settings": self._settings,
            "ahead_ms": self.clock.ahead_ms,
        }
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", __name__, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._port = self._answer()["port"]

    def stop(self) -> None:
        """Shut the broker down cleanly. Its data and its port are kept for `start`."""
        process, self._process = self._process, None
        if process is not None:
            # The end of its input makes the child stop.
            process.communicate(timeout=STOP_DEADLINE_S)

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait until it is gone. The data is kept for `start`."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate(timeout=STOP_DEADLINE_S)

    def restart(self) -> None:
        """Stop the broker cleanly and start it again on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker, and remove its directory unless it was passed in."""
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
        finally:
            self._cleanup.close()

    @property
    def bootstrap(self) -> str:
        """The broker's address, `host:port`: the value for a client's `bootstrap.servers`."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        return self._running().pid

    @property
    def directory(self) -> Path:
        """The directory that holds the broker's logs."""
        assert self._directory is not None
        return self._directory

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
        self.ask("create_topic", name=name, partitions=partitions, config=dict(config or {}))

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
        self.ask("fail_next", api=api, error=error, times=times)

    def delay(self, api: str, ms: int, times: int | None = None) -> None:
        """Make requests of an API wait before they are handled.

        Args:
            api: Kafka's name of the API.
            ms: Milliseconds that each request waits.
            times: Number of requests to delay; None delays all until `clear_faults`.

        Raises:
            ValueError: The name is unknown; the text names the closest one.
        """
        self.ask("delay", api=api, ms=ms, times=times)

    def clear_faults(self) -> None:
        """Remove all faults and delays. Delayed requests are handled now."""
        self.ask("clear_faults")

    def drop_connections(self) -> int:
        """Close all client connections. Returns the number of connections closed."""
        return int(self.ask("drop_connections"))

    def ask(self, action: str, **arguments: Any) -> Any:
        """Call a method of the broker in the child process.

        Args:
            action: Name of the method.
            **arguments: Its arguments.

        Returns:
            The result of the method.

        Raises:
            MoldauError: The broker is not running, or the method raised it.
        """
        with self._one_at_a_time:
            stdin = self._running().stdin
            assert stdin is not None
            # If the process is gone, reading its response reports it.
            with contextlib.suppress(BrokenPipeError):
                stdin.write(json.dumps({"action": action, "arguments": arguments}) + "\n")
                stdin.flush()
            return self._answer()["result"]

    def _answer(self) -> dict[str, Any]:
        process = self._running()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise MoldauError(f"the broker's process ended with status {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            _raise(answer)
        return answer

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise MoldauError("the broker is not running")
        return self._process


def main() -> None:
    """The entry point of the child process."""
    from moldau.testing.thread_broker import ThreadBroker

    # Ctrl-C is meant for the test; the child stops at the end of its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arguments = json.loads(sys.argv[1])
    directory = Path(arguments["directory"])
    made = ThreadBroker(
        arguments["settings"], directory, port=arguments["port"], ahead_ms=arguments["ahead_ms"]
    )
    try:
        made.start()
    except (MoldauError, OSError) as error:
        _respond(_refusal(error))
        return
    _respond({"port": int(made.bootstrap.rpartition(":")[2])})
    actions: dict[str, Callable[..., Any]] = {
        "advance": made.clock.advance,
        "create_topic": made.create_topic,
        "fail_next": made.fail_next,
        "delay": made.delay,
        "clear_faults": made.clear_faults,
        "drop_connections": made.drop_connections,
    }
    for line in sys.stdin:
        request = json.loads(line)
        try:
            _respond({"result": actions[request["action"]](**request["arguments"])})
        except (MoldauError, ValueError) as error:
            _respond(_refusal(error))
    made.close()


def _refusal(error: Exception) -> dict[str, Any]:
    if isinstance(error, KafkaError):
        return {"error": error.detail, "code": error.code.name}
    return {"error": str(error), "is_value": isinstance(error, ValueError)}


def _raise(refusal: dict[str, Any]) -> NoReturn:
    """Raises the error that the same call of a `ThreadBroker` would have raised."""
    if "code" in refusal:
        raise KafkaError(ErrorCode[refusal["code"]], refusal["error"])
    raise (ValueError if refusal["is_value"] else MoldauError)(refusal["error"])


def _respond(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
