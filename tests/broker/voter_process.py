"""A voter in a process of its own: a quorum node behind the controller's listener, without a
controller. It appends what its standard input says, and prints what happens.

`python -m broker.voter_process DIRECTORY NODE_ID ID@HOST:PORT,...`
"""

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

from broker.metadata_node import CLUSTER, QUIET

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.controller_handlers.table import controller_table
from moldau.broker.metrics.counters import Metrics
from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.broker.node.settings import Settings
from moldau.broker.quorum.listener import QuorumListener
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.quorum.voter_connections import VoterConnections
from moldau.broker.replicas.flush_backlog import FlushBacklog
from moldau.broker.server.connection_limits import ConnectionLimits
from moldau.broker.server.context import BrokerServices
from moldau.broker.server.dispatch import Dispatcher
from moldau.broker.server.listener import Listener, ListenerServices
from moldau.broker.server.memory_budget import MemoryBudget
from moldau.broker.server.turns import Turns
from moldau.config.broker import BrokerConfig
from moldau.core.metadata.loader import CommittedBatch
from moldau.net.clock import Clock
from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import ConfigRecord
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.types import BrokerId

LISTENER = "CONTROLLER"


def config_of(path: Path, node_id: int, voters: str) -> BrokerConfig:
    own = next(each for each in voters.split(",") if each.startswith(f"{node_id}@"))
    return BrokerConfig.parse(
        {
            **QUIET,
            "process.roles": "controller",
            "node.id": str(node_id),
            "log.dirs": str(path),
            "listeners": f"{LISTENER}://{own.partition('@')[2]}",
            "controller.listener.names": LISTENER,
            "controller.quorum.voters": voters,
        }
    )


class Reporter(QuorumListener):
    """Prints what the quorum says."""

    def on_committed(self, batch: CommittedBatch) -> None:
        for record in batch.records:
            if isinstance(record, ConfigRecord):
                say(f"committed {record.value}")

    def on_leader_change(self, epoch: int, leader_id: BrokerId) -> None:
        say(f"leader {leader_id} in {epoch}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def listener_of(config: BrokerConfig, clock: Clock, tasks: Tasks) -> Listener:
    budget = MemoryBudget(
        lambda: config.moldau_inflight_bytes_max, lambda: config.socket_request_max_bytes
    )
    services = ListenerServices(
        clock=clock,
        tasks=tasks,
        metrics=Metrics(),
        limits=ConnectionLimits(lambda: config, clock, 1_000_000),
        budget=budget,
        turns=Turns(),
        flush_backlog=FlushBacklog(clock),
        config=lambda: config,
    )
    (configured,) = config.advertised_controller_listeners
    return Listener(LISTENER, configured.host, configured.port, services, is_privileged=True)


def services_of(
    config: BrokerConfig, clock: Clock, quorum: QuorumNode, feed: MetadataFeed
) -> BrokerServices:
    absent = cast("Any", None)
    return BrokerServices(
        node_id=BrokerId(config.node_id),
        cluster_id=CLUSTER,
        clock=clock,
        settings=Settings(config),
        metadata=feed,
        controller=absent,
        replicas=absent,
        groups=absent,
        producer_ids=absent,
        transactions=absent,
        verification=absent,
        fetch_sessions=absent,
        topic_creation=absent,
        deadlines=absent,
        workers=absent,
        metrics=Metrics(),
        budget=absent,
        quorum=quorum,
    )


async def commands() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return reader


async def append(quorum: QuorumNode, clock: Clock, value: str) -> None:
    record = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=value)
    try:
        if not quorum.has_metadata_version:
            quorum.append(quorum.bootstrap_records(), clock.wall_ms())
        await quorum.wait_committed(quorum.append([record], clock.wall_ms()))
    except KafkaError as error:
        say(f"refused {value} {error.code.name}")
    else:
        say(f"acknowledged {value}")


async def take_part(path: Path, node_id: int, voters: str) -> None:
    config, disk = config_of(path, node_id, voters), DiskFileSystem()
    if not disk.exists(path / "meta.properties"):
        format_node(disk, config, FormatOptions(cluster_id=CLUSTER), 1_000)
    directory = LogDirectory.open(disk, path, cluster_id=CLUSTER, node_id=BrokerId(node_id))
    clock, tasks, feed = Clock(), Tasks(), MetadataFeed()
    network = VoterConnections(config, CLUSTER, clock)
    quorum = QuorumNode(directory, config, clock, say, network=network)
    quorum.add_listener(feed)
    quorum.add_listener(Reporter())
    listener = listener_of(config, clock, tasks)
    listener.bind()
    await quorum.start()
    await listener.serve(Dispatcher(services_of(config, clock, quorum, feed), controller_table()))
    say("started")
    reader = await commands()
    while line := (await reader.readline()).decode().split():
        if line[0] == "append":
            _ = tasks.start(append(quorum, clock, line[1]), "append")
    await quorum.stop()
    listener.stop_accepting()
    listener.drop_connections()
    await tasks.close()
    clock.close()
    directory.close()
    say("stopped")


if __name__ == "__main__":
    asyncio.run(take_part(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
