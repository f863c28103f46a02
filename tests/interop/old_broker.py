"""Kafka 2.1.1, the oldest version that our clients support, with the ZooKeeper it needs."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from interop.apache import (
    FETCH_TIMEOUT_S,
    SMALL_JVM,
    digest_of,
    made_once,
    require_tool,
    run_step,
)
from interop.live_broker import START_TIMEOUT_S, free_ports
from support.waiting import wait_for

POM = Path(__file__).with_name("pom-2.1.xml")
_LOGGING = """
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.SimpleLayout
"""
_BROKER = """
broker.id={number}
listeners=PLAINTEXT://127.0.0.1:{port}
zookeeper.connect=127.0.0.1:{zookeeper}
log.dirs={folder}/logs-{number}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
_ZOOKEEPER = """
dataDir={folder}/zookeeper
clientPort={zookeeper}
clientPortAddress=127.0.0.1
admin.enableServer=false
"""


def _jars(cache: Path) -> Path:
    def fetch(folder: Path) -> None:
        command = [require_tool("mvn"), "-q", "-B", "-f", str(POM)]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={folder}"]
        run_step(command, "fetching Kafka 2.1.1", timeout_s=FETCH_TIMEOUT_S)

    return made_once(cache / f"apache-kafka-2.1.1-{digest_of(POM)}", fetch)


@contextmanager
def old_broker(cache: Path, folder: Path, count: int = 1) -> Iterator[str]:
    """Yields the addresses of `count` brokers. All processes end with the block."""
    jars = _jars(cache)
    zookeeper, *ports = free_ports(count + 1)
    files = [("log4j.properties", _LOGGING, 0, 0), ("zoo.cfg", _ZOOKEEPER, 0, 0)]
    files += [
        (f"server-{number}.properties", _BROKER, number, port)
        for number, port in enumerate(ports, 1)
    ]
    for name, text, number, port in files:
        filled = text.format(folder=folder, number=number, port=port, zookeeper=zookeeper)
        (folder / name).write_text(filled)
    java = [
        require_tool("java"),
        *SMALL_JVM,
        f"-Dlog4j.configuration=file:{folder}/log4j.properties",
    ]
    java += ["-cp", f"{jars}/*"]
    mains = [
        ("org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg", zookeeper),
        *(("kafka.Kafka", name, port) for name, text, _, port in files if text is _BROKER),
    ]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for main, config, listens in mains:
            log = folder / f"{config}.log"
            with log.open("wb") as output:
                command = [*java, main, str(folder / config)]
                running.append(subprocess.Popen(command, stdout=output, stderr=output))
            _wait_for_port(running[-1], listens, log)
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        _wait_until_led(bootstrap, count)
        yield bootstrap
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    def listens() -> bool:
        assert process.poll() is None, f"it ended: {log.read_text()[-3000:]}"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    wait_for(listens, lambda: f"a listener: {log.read_text()[-3000:]}", START_TIMEOUT_S)


def _wait_until_led(bootstrap: str, count: int) -> None:
    """A broker listens before it knows itself. A client of librdkafka that has seen no broker and
    no controller does not ask again for minutes, so each attempt uses a new client.
    """

    def knows_all() -> bool:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        try:
            known = admin.list_topics(timeout=5)
        except KafkaException:
            return False
        return len(known.brokers) == count and known.controller_id in known.brokers

    wait_for(knows_all, "the old brokers and their controller", START_TIMEOUT_S)
