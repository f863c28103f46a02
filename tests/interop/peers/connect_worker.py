"""A worker of Kafka Connect in a JVM of its own, controlled over its REST interface."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from interop.live_broker import LiveNode, free_ports
from interop.peers.java_program import JavaProgram

ANSWER_TIMEOUT_S = 60
# One process is the whole cluster, and soon detects that its former session is gone.
SETTINGS = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "offset.storage.partitions": "2",
    "status.storage.replication.factor": "1",
    "status.storage.partitions": "1",
    "offset.flush.interval.ms": "500",
    "exactly.once.source.support": "enabled",
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "plugin.discovery": "hybrid_warn",
}


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


class ConnectWorker(JavaProgram):
    """In distributed mode. Leaving the `with` block ends it."""

    def __init__(self, classpath: str, node: LiveNode, folder: Path, plugins: Path) -> None:
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        settings = SETTINGS | {
            "bootstrap.servers": node.address,
            "listeners": self._url,
            "plugin.path": str(plugins),
        }
        properties = write_properties(folder / "connect.properties", settings)
        main_class = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__(classpath, main_class, folder / "connect.log", str(properties))
        self.wait_for(lambda: self._ask("GET", "/connectors") is not None, "Kafka Connect")

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Create or change a connector, and wait until it and its tasks run."""
        # A new worker refuses requests while it joins its group.
        self.wait_for(
            lambda: self._ask("PUT", f"/connectors/{name}/config", settings) is not None,
            f"the connector {name}",
        )

        def is_running() -> bool:
            status = self._ask("GET", f"/connectors/{name}/status")
            if status is None:
                return False
            parts = [status["connector"], *status["tasks"]]
            failed = [one for one in parts if one["state"] == "FAILED"]
            assert not failed, failed
            return len(parts) > 1 and all(one["state"] == "RUNNING" for one in parts)

        self.wait_for(is_running, f"tasks of {name}")

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """The response, or None if the worker is not ready yet."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(self._url + path, content, headers, method=method)
        try:
            with urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            said = error.read().decode()
            if error.code in {404, 409, 500, 503}:
                return None
            raise AssertionError(f"{method} {path}: {error.code} {said}") from error
        except URLError:
            return None
