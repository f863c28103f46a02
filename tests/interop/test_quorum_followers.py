"""A quorum node of ours follows the log of a live Apache controller over TCP, and an Apache
controller that of ours: as observers, also by way of a snapshot.
"""

import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest
from interop.apache import LOGGING, ApacheOracle, require_tool
from interop.live_broker import CLUSTER_ID, NODE_JVM, LiveBroker, LiveMoldau, free_ports
from interop.node_pair import Asker
from interop.quorum_talk import SETTINGS, described, quorum_of
from support.waiting import until, wait_for

from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.quorum.voter_connections import VoterConnections
from moldau.config.broker import BrokerConfig
from moldau.core.quorum import rpc
from moldau.core.quorum.events import NotDelivered, Responded
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.voters import VoterKey
from moldau.net.clock import Clock
from moldau.net.request_channel import Address
from moldau.protocol.error_codes import ErrorCode
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.filesystem import DiskFileSystem
from moldau.types import BrokerId, LeaderEpoch, Offset, Uuid

pytestmark = pytest.mark.interop

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
NODE_ID = 5


@pytest.fixture(scope="module")
def controller(
    apache: ApacheOracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveBroker]:
    with LiveBroker(apache, tmp_path_factory.mktemp("apache"), SETTINGS) as node:
        node.format()
        node.start()
        yield node


def settings_for(path: Path, controller_address: str) -> dict[str, str]:
    return {
        "process.roles": "controller",
        "node.id": str(NODE_ID),
        "log.dirs": str(path),
        "listeners": f"CONTROLLER://127.0.0.1:{free_ports(1)[0]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller_address,
    }


def config_for(path: Path, controller_address: str) -> BrokerConfig:
    return BrokerConfig.parse(settings_for(path, controller_address))


@asynccontextmanager
async def following(path: Path, controller_address: str) -> AsyncIterator[QuorumNode]:
    """An observer, over a directory that may be new."""
    config, disk = config_for(path, controller_address), DiskFileSystem()
    if not disk.exists(path / "meta.properties"):
        options = FormatOptions(cluster_id=CLUSTER_ID, no_initial_controllers=True)
        format_node(disk, config, options, 1_000)
    directory = LogDirectory.open(disk, path, cluster_id=CLUSTER_ID, node_id=BrokerId(NODE_ID))
    clock, failures = Clock(), list[str]()
    network = VoterConnections(config, CLUSTER_ID, clock)
    quorum = QuorumNode(directory, config, clock, failures.append, network=network)
    try:
        await quorum.start()
        yield quorum
        assert failures == []
    finally:
        await quorum.stop()
        clock.close()
        directory.close()


def high_watermark_of(node: LiveBroker) -> int:
    with Asker(node, node.controller_address) as asker:
        return quorum_of(asker).high_watermark


def segments(folder: Path) -> dict[str, bytes]:
    """The log's content by the name of the segment."""
    found = sorted((folder / "__cluster_metadata-0").glob("*.log"))
    return {path.name: path.read_bytes() for path in found}


async def test_it_follows_the_log_and_is_seen_to(
    apache: ApacheOracle, controller: LiveBroker, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    async with following(path, controller.controller_address) as quorum:
        for number in range(3):
            controller.create_topic(f"made-{number}")
            wanted = high_watermark_of(controller)
            await until(partial(has_reached, quorum, wanted))
        assert (quorum.leader_id, quorum.is_leader, quorum.is_voter) == (1, False, False)
        run = apache.run_tool(
            QUORUM, "--bootstrap-server", controller.address, "describe", "--replication"
        )
        assert run.status == 0, run
        assert re.search(
            rf"^{NODE_ID}\s+\S{{22}}\s+\d+\s+\d+\s.*Observer", run.output, re.MULTILINE
        )
    # It has what Apache has, byte for byte, from where its log begins.
    own, apaches = segments(path), b"".join(segments(controller.log_folder).values())
    (content,) = own.values()
    assert content
    assert content in apaches


def has_reached(quorum: QuorumNode, offset: int) -> bool:
    return quorum.high_watermark >= offset


async def test_it_starts_from_a_snapshot(controller: LiveBroker, tmp_path: Path) -> None:
    for number in range(8):
        controller.create_topic(f"more-{number}", 3)
    path = tmp_path / "data"
    wanted = high_watermark_of(controller)
    async with following(path, controller.controller_address) as quorum:
        await until(partial(has_reached, quorum, wanted))
        assert quorum.log.log.log_start_offset > 0
    snapshots = [each.name for each in (path / "__cluster_metadata-0").glob("*.checkpoint")]
    theirs = controller.log_folder / "__cluster_metadata-0"
    same = [name for name in snapshots if (theirs / name).exists()]
    assert same
    for name in same:
        if not name.startswith("0" * 20):
            ours = (path / "__cluster_metadata-0" / name).read_bytes()
            assert ours == (theirs / name).read_bytes()
    # After a restart it continues where it was.
    controller.create_topic("last")
    wanted = high_watermark_of(controller)
    async with following(path, controller.controller_address) as quorum:
        await until(partial(has_reached, quorum, wanted))


@contextmanager
def apache_following(apache: ApacheOracle, folder: Path, controller_address: str) -> Iterator[Path]:
    """Another controller of Apache's, which observes; its metadata log."""
    folder.mkdir()
    settings = settings_for(folder / "logs", controller_address)
    properties = folder / "controller.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    formatting = ["format", "-t", CLUSTER_ID, "-c", str(properties), "--no-initial-controllers"]
    run = apache.run_tool("kafka.tools.StorageTool", *formatting)
    assert run.status == 0, run
    command = [require_tool("java"), *NODE_JVM, f"-Dlog4j2.configurationFile={LOGGING}"]
    command += ["-cp", f"{apache.jar_folder}/*", "kafka.Kafka", str(properties)]
    with (folder / "node.log").open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield folder / "logs" / "__cluster_metadata-0"
    finally:
        process.kill()
        process.wait()


def test_apache_follows_our_log(apache: ApacheOracle, tmp_path: Path) -> None:
    """It begins with a snapshot, since the log has one."""
    (tmp_path / "moldau").mkdir()
    with LiveMoldau(tmp_path / "moldau", SETTINGS) as ours:
        ours.format()
        ours.start()
        for number in range(8):
            ours.create_topic(f"made-{number}", 3)
        address = ours.controller_address
        with Asker(ours, address) as asker:
            with apache_following(apache, tmp_path / "apache", address) as log:
                wanted = quorum_of(asker).high_watermark
                wait_for(partial(has_fetched, asker, wanted), "the observer to catch up")
                ours.create_topic("last")
                wanted = quorum_of(asker).high_watermark
                wait_for(partial(has_fetched, asker, wanted), "the observer to follow")
            assert quorum_of(asker).epoch == 1
        own = b"".join(segments(ours.log_folder).values())
        fetched = b"".join(path.read_bytes() for path in sorted(log.glob("*.log")))
        assert fetched.rstrip(b"\0")
        assert fetched.rstrip(b"\0") in own
        assert [path for path in log.glob("*.checkpoint") if not path.name.startswith("0" * 20)]


def has_fetched(asker: Asker, offset: int) -> bool:
    found = described(asker)
    return found is not None and any(
        each.replica_id == NODE_ID and each.log_end_offset >= offset for each in found.observers
    )


async def test_every_request_has_an_answer(controller: LiveBroker, tmp_path: Path) -> None:
    """In the version that our connections choose."""
    config = config_for(tmp_path, controller.controller_address)
    clock = Clock()
    network = VoterConnections(config, CLUSTER_ID, clock)
    events: list[Responded | NotDelivered] = []
    network.start(events.append)
    host, _, port = controller.controller_address.rpartition(":")
    destination = rpc.Destination(1, *Address(host, int(port)))
    me = VoterKey(BrokerId(NODE_ID), Uuid(b"d" * 16))
    start = LogPosition(LeaderEpoch(0), Offset(0))
    epoch = LeaderEpoch(1)
    requests: list[tuple[rpc.Request, ErrorCode]] = [
        (rpc.ApiVersionsRequest(), ErrorCode.NONE),
        (
            rpc.VoteRequest(epoch=epoch, candidate=me, last=start, is_pre_vote=True),
            ErrorCode.NONE,
        ),
        (
            rpc.BeginQuorumEpochRequest(epoch=LeaderEpoch(0), leader_id=me.node_id),
            ErrorCode.FENCED_LEADER_EPOCH,
        ),
        (
            rpc.EndQuorumEpochRequest(epoch=LeaderEpoch(0), leader_id=me.node_id),
            ErrorCode.FENCED_LEADER_EPOCH,
        ),
        (
            rpc.FetchRequest(replica=me, epoch=epoch, position=start, max_bytes=1, max_wait_ms=0),
            ErrorCode.NONE,
        ),
        (rpc.AddVoterRequest(voter=me, endpoints=()), ErrorCode.INVALID_REQUEST),
        (rpc.RemoveVoterRequest(voter=me), ErrorCode.VOTER_NOT_FOUND),
        (
            rpc.UpdateVoterRequest(epoch=epoch, voter=me, endpoints=(), kraft_versions=(0, 1)),
            ErrorCode.INVALID_REQUEST,
        ),
    ]
    try:
        for correlation, (request, error) in enumerate(requests, 1):
            network.send(destination, correlation, request)
            await until(partial(has_events, events, correlation))
            event = events[-1]
            assert isinstance(event, Responded), (request, event)
            assert (event.correlation, event.response.error) == (correlation, error)
    finally:
        await network.close()
        clock.close()
    versions = events[0]
    assert isinstance(versions, Responded)
    assert versions.response == rpc.ApiVersionsResponse(kraft_versions=(0, 1))


def has_events(events: list[Responded | NotDelivered], count: int) -> bool:
    return len(events) >= count
