"""Several quorum nodes in one event loop, each over a disk of its own, with a network that can
lose, delay and cut. A node that is killed leaves its disk as it was at that moment.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from broker.metadata_node import CLUSTER, RecordingListener, config
from support.waiting import until

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.node.formatting import FormatOptions, format_node
from moldau.broker.quorum.quorum_network import OnEvent
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.quorum.snapshot_maker import SnapshotMaker
from moldau.config.broker import BrokerConfig
from moldau.core.quorum.events import NotDelivered, Responded
from moldau.core.quorum.rpc import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    Destination,
    Failure,
    FetchSnapshotRequest,
    Request,
    Response,
)
from moldau.core.quorum.voters import Voter, VoterEndpoint, VoterKey
from moldau.net.clock import ShiftedClock
from moldau.net.tasks import Tasks
from moldau.protocol.errors import KafkaError
from moldau.storage.directory.directory import LogDirectory
from moldau.testing.simulated_disk import SimulatedDisk
from moldau.types import ZERO_UUID, BrokerId, Uuid, uuid_text

if TYPE_CHECKING:
    from moldau.broker.quorum.listener import QuorumListener

DATA = Path("/data")
METADATA = f"{DATA}/__cluster_metadata-0"
FAST = {
    "metadata.max.idle.interval.ms": "0",
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.request.timeout.ms": "1000",
    "internal.metadata.delete.delay.millis": "0",
}


@dataclass
class Faults:
    cut: set[tuple[int, int]] = field(default_factory=set)
    """From the first node to the second nothing arrives, neither requests nor responses."""
    dead: set[int] = field(default_factory=set)
    """Nothing leaves these nodes any more, or arrives there."""
    loss: float = 0.0
    delay_ms_max: int = 0
    change: Callable[[Request, Response], Response] = lambda _request, response: response
    """The network's treatment of a response."""


class MemberNetwork:
    """A QuorumNetwork to the other members of the cluster."""

    def __init__(self, cluster: "QuorumCluster", node_id: int) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._on_event: OnEvent | None = None
        self._tasks = Tasks()
        self._under_way: dict[int, asyncio.Task[None]] = {}

    def start(self, on_event: OnEvent) -> None:
        self._on_event = on_event

    def send(self, destination: Destination, correlation: int, request: Request) -> None:
        before = self._under_way.pop(destination.node_id, None)
        if before is not None:
            before.cancel()
        self._under_way[destination.node_id] = self._tasks.start(
            self._exchange(destination, correlation, request), "exchange"
        )

    async def close(self) -> None:
        self._on_event = None
        await self._tasks.close()

    async def _exchange(self, to: Destination, correlation: int, request: Request) -> None:
        outcome = await self._cluster.exchange(self._node_id, to, request)
        if self._on_event is None or outcome is None:
            return
        if isinstance(outcome, Failure):
            self._on_event(NotDelivered(correlation, outcome))
        else:
            self._on_event(Responded(correlation, outcome))


@dataclass
class Member:
    id: int
    disk: SimulatedDisk
    config: BrokerConfig
    directory: LogDirectory
    quorum: QuorumNode
    feed: MetadataFeed
    snapshots: SnapshotMaker
    listener: RecordingListener
    clock: ShiftedClock
    failures: list[str] = field(default_factory=list)

    @property
    def values(self) -> dict[str, str]:
        """The values that the members have agreed on, by name."""
        return {
            name: value or ""
            for held in self.feed.image.configs.values()
            for name, value in held.items()
        }

    async def commit(self, name: str, value: str = "value") -> int:
        offset = self.quorum.append([config(name, value)], self.clock.wall_ms())
        await self.quorum.wait_committed(offset)
        return offset


class QuorumCluster:
    def __init__(
        self,
        voters: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        is_static: bool = False,
        disks: Mapping[int, SimulatedDisk] | None = None,
        seed: int = 1,
    ) -> None:
        """With `is_static` the voters are in the settings (kraft.version 0); `disks` are used."""
        self.faults = Faults()
        self.members: dict[int, Member] = {}
        """Those that run."""
        self.disks: dict[int, SimulatedDisk] = {}
        self.on_assembled: Callable[[Member], None] = lambda _member: None
        """Called with each member before it starts."""
        self.listeners: dict[int, list[QuorumListener]] = {}
        """More listeners of members that are started later."""
        self.requests: list[tuple[int, Request]] = []
        """All that were delivered, with their senders."""
        self.on_sent: Callable[[int, Request], None] = lambda _sender, _request: None
        self.on_response: Callable[[int, Request, Response], None] = lambda *_: None
        self.is_static = is_static
        self._voters = range(1, voters + 1)
        self._settings = {**FAST, **(settings or {})}
        self._chance = Random(seed)
        self._directory_ids: dict[int, Uuid] = {}
        for number in self._voters:
            self._directory_ids[number] = Uuid(bytes([number]) * 16)
        self.disks.update(disks or {})
        for number in self._voters:
            if number not in self.disks:
                self.disks[number] = self._formatted(number, is_voter=not is_static)

    # Disks

    @property
    def _static_voters(self) -> range:
        return self._voters if self.is_static else range(0)

    def _config(self, number: int, extra: Mapping[str, str]) -> BrokerConfig:
        address = f"127.0.0.1:{number}"
        voters = ",".join(f"{each}@127.0.0.1:{each}" for each in self._voters)
        servers = ",".join(f"127.0.0.1:{each}" for each in self._voters)
        where = {"controller.quorum.bootstrap.servers": servers}
        if number in self._static_voters:
            where = {"controller.quorum.voters": voters}
        return BrokerConfig.parse(
            {
                "process.roles": "controller",
                "node.id": str(number),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CONTROLLER://{address}",
                "log.dirs": str(DATA),
                **where,
                **self._settings,
                **extra,
            }
        )

    def _formatted(self, number: int, *, is_voter: bool) -> SimulatedDisk:
        disk = SimulatedDisk()
        controllers = ",".join(
            f"{each}@127.0.0.1:{each}:{uuid_text(self._directory_ids[each])}"
            for each in self._voters
        )
        options = FormatOptions(
            cluster_id=CLUSTER,
            initial_controllers=controllers if is_voter else None,
            no_initial_controllers=not is_voter and number not in self._static_voters,
        )
        format_node(disk, self._config(number, {}), options, 1, Random(number + 100))
        return disk

    def wipe(self, number: int) -> None:
        """The node's disk is replaced by an empty one, which is formatted with the old identity."""
        self.disks[number] = self._formatted(number, is_voter=not self.is_static)

    def add_node(self, number: int) -> None:
        """One that is not a voter yet."""
        self.disks[number] = self._formatted(number, is_voter=False)

    def files(self, number: int) -> dict[str, bytes]:
        """The segments of the node's metadata log."""
        return {
            name.removeprefix(METADATA): content
            for name, content in self.disks[number].files().items()
            if name.startswith(METADATA) and name.endswith(".log")
        }

    # Members

    async def start(self, number: int, settings: Mapping[str, str] | None = None) -> Member:
        disk, config = self.disks[number], self._config(number, settings or {})
        directory = LogDirectory.open(disk, DATA, cluster_id=CLUSTER, node_id=BrokerId(number))
        clock = ShiftedClock()
        failures: list[str] = []
        quorum = QuorumNode(
            directory,
            config,
            clock,
            failures.append,
            chance=self._chance,
            network=MemberNetwork(self, number),
        )
        feed, listener = MetadataFeed(), RecordingListener()
        snapshots = SnapshotMaker(quorum, config, clock)
        quorum.add_listener(listener)
        quorum.add_listener(feed)
        for each in self.listeners.get(number, []):
            quorum.add_listener(each)
        feed.subscribe(snapshots.image_changed)
        member = Member(
            number, disk, config, directory, quorum, feed, snapshots, listener, clock, failures
        )
        self.members[number] = member
        self.on_assembled(member)
        await quorum.start()
        return member

    async def start_all(self) -> None:
        for number in self._voters:
            await self.start(number)

    async def stop(self, number: int) -> None:
        member = self.members[number]
        await member.snapshots.stop()
        await member.quorum.stop()
        del self.members[number]
        member.clock.close()
        member.directory.close()

    async def kill(self, number: int, *, is_power_cut: bool = False) -> None:
        member = self.members.pop(number)
        disk = member.disk.fork()
        self.disks[number] = disk.crash(self._chance) if is_power_cut else disk
        # From here on its work has no effect: it has no network, and the disk is a copy.
        await finish_by_time(member.clock, self._stop_unseen(member))

    async def _stop_unseen(self, member: Member) -> None:
        await member.snapshots.stop()
        await member.quorum.stop()
        member.clock.close()
        member.directory.close()

    async def close(self) -> None:
        for number in list(self.members):
            await self.kill(number)

    # The quorum

    @property
    def leader(self) -> Member | None:
        leading = [each for each in self.members.values() if each.quorum.is_leader]
        epochs = [each.quorum.leader_epoch for each in leading]
        assert len(set(epochs)) == len(epochs), "two leaders in one epoch"
        return max(leading, key=lambda each: each.quorum.leader_epoch, default=None)

    async def wait_for_leader(self, *, other_than: int | None = None) -> Member:
        """One that all running members follow or observe."""

        def is_followed() -> bool:
            leader = self.leader
            return leader is not None and leader.id != other_than

        await until(is_followed)
        assert self.leader is not None
        return self.leader

    async def commit(self, name: str, value: str = "value", *, not_by: int | None = None) -> Member:
        """By the leader; by the next one if it loses its leadership. Returns the one that did."""
        while True:
            leader = await self.wait_for_leader(other_than=not_by)
            try:
                await leader.commit(name, value)
            except KafkaError:
                continue
            return leader

    async def wait_until_equal(self) -> None:
        """All running members have the same log, all of it committed and delivered."""

        def is_equal() -> bool:
            leader = self.leader
            return leader is not None and all(
                each.quorum.last_offset == leader.quorum.last_offset
                and each.feed.image.offset == leader.quorum.last_offset
                for each in self.members.values()
            )

        await until(is_equal)

    # The network

    async def exchange(
        self, sender: int, to: Destination, request: Request
    ) -> Response | Failure | None:
        """None if nothing comes back."""
        if sender in self.faults.dead:
            return None
        self.on_sent(sender, request)
        if not await self._passes(sender, to.port):
            return None
        target = self.members.get(to.port)
        if target is None or to.port in self.faults.dead:
            return Failure.REFUSED
        self.requests.append((sender, request))
        if isinstance(request, ApiVersionsRequest):
            response: Response = ApiVersionsResponse(kraft_versions=(0, 1))
        else:
            try:
                response = await target.quorum.answer(request)
            except KafkaError:
                return Failure.LOST
        if self.members.get(to.port) is not target or to.port in self.faults.dead:
            return Failure.LOST
        self.on_response(to.port, request, response)
        response = self.faults.change(request, response)
        is_delivered = await self._passes(to.port, sender) and sender not in self.faults.dead
        return response if is_delivered else None

    async def _passes(self, sender: int, receiver: int) -> bool:
        member = self.members.get(sender)
        if member is None:
            return False
        await member.clock.sleep(self._chance.uniform(0, self.faults.delay_ms_max))
        is_lost = self._chance.random() < self.faults.loss
        return (sender, receiver) not in self.faults.cut and not is_lost

    def isolate(self, number: int) -> None:
        for other in (*self._voters, *self.members):
            if other != number:
                self.faults.cut |= {(number, other), (other, number)}

    def heal(self) -> None:
        self.faults.cut.clear()

    # Requests of tests

    def voter(self, number: int) -> Voter:
        """The node as it would be among the voters."""
        directory_id = self.members[number].directory.meta.directory_id or ZERO_UUID
        return Voter(
            key=VoterKey(BrokerId(number), directory_id),
            endpoints=(VoterEndpoint("CONTROLLER", "127.0.0.1", number),),
        )

    def snapshot_pieces(self, sender: int) -> int:
        return sum(
            each == sender and isinstance(request, FetchSnapshotRequest)
            for each, request in self.requests
        )


async def finish_by_time(clock: ShiftedClock, work: Coroutine[None, None, None]) -> int:
    """Lets time pass until the work is done. Returns the milliseconds."""
    began_ms, task = clock.ahead_ms, asyncio.ensure_future(work)

    def is_done() -> bool:
        clock.advance(1_000)
        return task.done()

    await until(is_done)
    await task
    return clock.ahead_ms - began_ms


@asynccontextmanager
async def running_quorum(
    voters: int = 3, *, settings: Mapping[str, str] | None = None, is_static: bool = False
) -> AsyncIterator[QuorumCluster]:
    """All voters are started."""
    cluster = QuorumCluster(voters, settings=settings, is_static=is_static)
    try:
        await cluster.start_all()
        yield cluster
    finally:
        await cluster.close()
