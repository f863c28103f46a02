"""The system under test: Moldau unless KAFKA_UNDER_TEST says otherwise.

`apache` starts Apache Kafka 4.3.1 instead, with the same settings; `HOST:PORT` uses a running
broker. So each promise is first shown to hold for Apache Kafka, with the very same test.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from interop.apache import ApacheOracle
from interop.live_broker import LiveBroker, LiveMoldau, LiveNode

VARIABLE = "KAFKA_UNDER_TEST"
APACHE = "apache"
MOLDAU = "moldau"

# Settings of a single node of either kind. The clients' own suites expect several partitions in
# topics that are created automatically.
SETTINGS = {
    "num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Overdue transactions are detected soon.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


@dataclass(frozen=True, slots=True)
class Server:
    """The address and the kind of the system under test."""

    address: str
    kind: str
    node: LiveNode | None = None
    """The process and its files, if this run started it."""

    @property
    def is_moldau(self) -> bool:
        return self.kind == MOLDAU


def requested() -> str:
    """The value of KAFKA_UNDER_TEST for this run."""
    return os.environ.get(VARIABLE, MOLDAU)


def new_node(
    apache: ApacheOracle, folder: Path, settings: Mapping[str, str] | None = None
) -> LiveNode:
    """A node of the kind under test, not started yet, over an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = SETTINGS | dict(settings or {})
    if requested() == MOLDAU:
        return LiveMoldau(folder, chosen)
    return LiveBroker(apache, folder, chosen)
