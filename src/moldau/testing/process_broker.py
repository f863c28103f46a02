"""A broker in a process of its own: what `ThreadBroker` can do, and it can be killed. The two
processes speak JSON lines over the child's stdin and stdout.
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
    """The broker's time, which can be moved ahead; it outlives restarts."""

    def __init__(self, owner: "ProcessBroker") -> None:
        self._owner = owner
        self.ahead_ms = 0

    def advance(self, *, seconds: float = 0, ms: int = 0) -> None:
        """Timeouts, retention and expiry that fall due happen now."""
        self._owner.ask("advance", seconds=seconds, ms=ms)
        self.ahead_ms += ms + int(seconds * 1000)


class ProcessBroker:
    """A node in a process of its own. Every method may be called from any thread."""

    def __init__(self, settings: Mapping[str, str], directory: Path | None = None) -> None:
        self._settings = {name: str(value) for name, value in settings.items()}
        self._cleanup = contextlib.ExitStack()
        self._directory = directory
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._one_at_a_time = threading.Lock()
        self.clock = ProcessClock(self)

    def start(self) -> None:
        """Returns when clients can connect; after `kill`, it recovers."""
        if self._directory is None:
            made = tempfile.TemporaryDirectory(prefix="moldau-test-", ignore_cleanup_errors=True)
            self._directory = Path(self._cleanup.enter_context(made))
        orders = {
            "directory": str(self._directory),
            "port": self._port,
            "settings": self._settings,
            "ahead_ms": self.clock.ahead_ms,
        }
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-m", __name__, json.dumps(orders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._port = self._answer()["port"]

    def stop(self) -> None:
        """A clean stop; the data is still there for `start`."""
        process, self._process = self._process, None
        if process is not None:
            # Its end of input tells the child to stop.
            process.communicate(timeout=STOP_DEADLINE_S)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate(timeout=STOP_DEADLINE_S)

    def restart(self) -> None:
        """On the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the directory unless it was given."""
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
        finally:
            self._cleanup.close()

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap.servers."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._running().pid

    @property
    def directory(self) -> Path:
        """Where its logs are."""
        assert self._directory is not None
        return self._directory

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Returns when it is there; `config` are settings of the topic."""
        self.ask("create_topic", name=name, partitions=partitions, config=dict(config or {}))

    def fail_next(self, api: str, error: str, times: int = 1) -> None:
        """The next requests of an API get an error: `fail_next("Produce", "NOT_LEADER…", 3)`."""
        self.ask("fail_next", api=api, error=error, times=times)

    def delay(self, api: str, ms: int, times: int | None = None) -> None:
        """Requests of an API wait before they are handled: all of them, or the next `times`."""
        self.ask("delay", api=api, ms=ms, times=times)

    def clear_faults(self) -> None:
        """No request fails or waits any more; those that wait are handled now."""
        self.ask("clear_faults")

    def drop_connections(self) -> int:
        """Cut all client connections; how many there were."""
        return int(self.ask("drop_connections"))

    def ask(self, action: str, **arguments: Any) -> Any:
        """What the child's broker answers. Raises what its method raises."""
        with self._one_at_a_time:
            stdin = self._running().stdin
            assert stdin is not None
            # If it is gone, reading its answer says so.
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
    """The child."""
    from moldau.testing.thread_broker import ThreadBroker

    # Ctrl-C is for the test; the end of input tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = json.loads(sys.argv[1])
    directory = Path(orders["directory"])
    made = ThreadBroker(
        orders["settings"], directory, port=orders["port"], ahead_ms=orders["ahead_ms"]
    )
    try:
        made.start()
    except (MoldauError, OSError) as error:
        _say(_refusal(error))
        return
    _say({"port": int(made.bootstrap.rpartition(":")[2])})
    actions: dict[str, Callable[..., Any]] = {
        "advance": made.clock.advance,
        "create_topic": made.create_topic,
        "fail_next": made.fail_next,
        "delay": made.delay,
        "clear_faults": made.clear_faults,
        "drop_connections": made.drop_connections,
    }
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            _say({"result": actions[asked["action"]](**asked["arguments"])})
        except (MoldauError, ValueError) as error:
            _say(_refusal(error))
    made.close()


def _refusal(error: Exception) -> dict[str, Any]:
    if isinstance(error, KafkaError):
        return {"error": error.detail, "code": error.code.name}
    return {"error": str(error), "is_value": isinstance(error, ValueError)}


def _raise(refusal: dict[str, Any]) -> NoReturn:
    """As the broker in a thread would have."""
    if "code" in refusal:
        raise KafkaError(ErrorCode[refusal["code"]], refusal["error"])
    raise (ValueError if refusal["is_value"] else MoldauError)(refusal["error"])


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
