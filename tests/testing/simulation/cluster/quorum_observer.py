"""Watches all nodes of a simulated cluster after every callback: Raft's promises hold, and every
node has the same committed metadata (I7 to I10).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testing.simulation.cluster.leader_observer import LeaderObserver
from testing.simulation.cluster.log_mirror import Entry, LogMirror
from testing.simulation.cluster.metadata_history import MetadataHistory
from testing.simulation.cluster.wire_observer import Acknowledgement, WireObserver
from testing.simulation.history import expect

from moldau.broker.node.metadata_parts import MetadataParts
from moldau.broker.quorum.effects import QuorumParts
from moldau.broker.quorum.log_start import loaded
from moldau.broker.quorum.snapshots import SnapshotId
from moldau.core.metadata.image import EMPTY_IMAGE, MetadataImage
from moldau.core.quorum.roles import Leader, Role
from moldau.core.quorum.rpc import UNKNOWN_LEADERSHIP
from moldau.core.quorum.voters import Voter
from moldau.protocol.errors import MoldauError
from moldau.testing.simulation.node import SimulatedNode
from moldau.testing.simulation.process import Process
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.transport import End

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Watched:
    """A node, and what the observer last saw of it."""

    node: SimulatedNode
    mirror: LogMirror = field(default_factory=LogMirror)
    life: Process | None = None
    metadata: MetadataParts | None = None
    parts: QuorumParts | None = None
    """Those of this life, once its quorum runs."""
    role: Role | None = None
    ends: tuple[int, ...] = ()
    compared: int = 0
    """Everything before this offset is as it was committed."""
    image: MetadataImage = EMPTY_IMAGE
    snapshots: dict[SnapshotId, None] = field(default_factory=dict)
    """Compared already."""

    @property
    def name(self) -> str:
        return f"node {self.node.node_id}"


class QuorumObserver:
    def __init__(self, simulation: Simulation, nodes: list[SimulatedNode]) -> None:
        self.history = MetadataHistory()
        self.counts: Counter[str] = Counter()
        self.on_vote: Callable[[str], None] = _nothing
        """Called with the address of a voter, right after it has given its vote to another."""
        self.failure: AssertionError | None = None
        """The first promise that was broken. Raised by `check`, and from then on nothing is
        watched.
        """
        self._watched = {each.machine.address: Watched(each) for each in nodes}
        by_address = {each.machine.address: each for each in nodes}
        self._wire = WireObserver(by_address, self._check_acknowledgement)
        self._leaders: dict[int, int] = {}
        self._leading = LeaderObserver({each.node_id: each for each in nodes})
        self._loop = simulation.loop
        simulation.loop.on_turn = self._turned
        simulation.network.on_send = self._sent

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def leading(self) -> SimulatedNode | None:
        """The leader of the latest epoch, as long as it leads."""
        leading = {
            each.parts.machine.epoch: each.node
            for each in self._all_leading()
            if each.parts is not None
        }
        return leading[max(leading)] if leading else None

    def voters(self) -> dict[int, Voter]:
        """As the leader has them, committed or not."""
        leader = self.leading()
        if leader is None:
            return {}
        parts = self._watched[leader.machine.address].parts
        return {} if parts is None else dict(parts.machine.voters.by_id)

    def oldest_leading(self) -> int:
        """The end of the metadata that the most outdated of all nodes that lead has."""
        ends = [each.image.offset + 1 for each in self._all_leading()]
        return min([*ends, self.history.end_offset])

    def _all_leading(self) -> "list[Watched]":
        """Nodes that believe to lead."""
        return [
            each
            for each in self._watched.values()
            if each.parts is not None
            and each.life is not None
            and not each.life.is_dead
            and each.parts.machine.is_leader
        ]

    def image_of(self, node: SimulatedNode) -> MetadataImage:
        metadata = self._watched[node.machine.address].metadata
        return EMPTY_IMAGE if metadata is None else metadata.feed.image

    # Watching

    def _sent(self, end: End, chunk: bytes) -> None:
        if self.failure is None:
            try:
                self._wire.sent(end, chunk)
            except AssertionError as error:
                self.failure = error

    def _turned(self, process: Process) -> None:
        watched = self._watched.get(process.address)
        if watched is None or self.failure is not None:
            return
        if watched.life is not process:
            watched.life = process
            watched.metadata = watched.parts = None
            watched.role, watched.ends = None, ()
            watched.compared = 0
            watched.mirror.begin_life()
        try:
            if watched.parts is None:
                self._begin(watched)
            if watched.parts is not None:
                self._look(watched, watched.parts)
        except AssertionError as error:
            self.failure = error
        if self._wire.voted:
            for address in self._wire.voted:
                self.on_vote(address)
            self._wire.voted.clear()

    def _begin(self, watched: Watched) -> None:
        if watched.node.node is None:
            return
        try:
            metadata = watched.node.node.metadata
        except MoldauError:
            return
        if metadata.quorum.leadership is not UNKNOWN_LEADERSHIP:
            watched.metadata, watched.parts = metadata, metadata.quorum.parts

    def _look(self, watched: Watched, parts: QuorumParts) -> None:
        machine, log = parts.machine, parts.log.log
        assert watched.metadata is not None
        if watched.metadata.quorum.failure is None:
            self._leading.turned(watched.node, machine.role, self._loop.time() * 1000)
        ends = (
            log.log_end_offset,
            log.flushed_offset,
            log.log_start_offset,
            parts.log.truncations,
            machine.high_watermark,
            machine.epoch,
        )
        if ends != watched.ends or machine.role is not watched.role:
            self._check_role(watched, parts)
            self._check_log(watched, parts)
            watched.ends, watched.role = ends, machine.role
        image = watched.metadata.feed.image
        if image is not watched.image:
            watched.image = image
            self.history.check_image(watched.name, image)
        if len(watched.snapshots) != len(parts.log.snapshots.ids):
            self._check_snapshots(watched, parts)

    # Checks

    def _check_acknowledgement(self, fetch: Acknowledgement) -> None:
        """Only one that the leader counts: a fetch may leave after a truncation."""
        parts = self._watched[fetch.address].parts
        if parts is None or parts.machine.local.key not in parts.machine.voters:
            return
        counted = self._watched[fetch.leader_address].mirror.entry_at(fetch.offset - 1)
        if counted is None or counted.epoch != fetch.epoch:
            return
        flushed = parts.log.flushed_offset
        expect(
            fetch.offset <= flushed,
            f"{fetch.address} acknowledges offset {fetch.offset}, and has flushed {flushed}",
        )

    def _check_role(self, watched: Watched, parts: QuorumParts) -> None:
        machine = parts.machine
        promised = self._wire.promised[watched.node.machine.address]
        expect(
            machine.epoch >= promised,
            f"{watched.name} is in epoch {machine.epoch} after it spoke of {promised}",
        )
        if isinstance(machine.role, Leader) and machine.role is not watched.role:
            other = self._leaders.setdefault(machine.epoch, watched.node.node_id)
            expect(
                other == watched.node.node_id,
                f"nodes {other} and {watched.node.node_id} lead epoch {machine.epoch}",
            )
            self.counts["election"] += 1

    def _check_log(self, watched: Watched, parts: QuorumParts) -> None:
        was_truncated = bool(watched.ends) and parts.log.truncations != watched.ends[3]
        removed = watched.mirror.refresh(parts.log)
        if was_truncated:
            self.counts["truncation"] += 1
            watched.compared = 0
        for entry in removed:
            committed = self.history.entry_at(entry.base_offset)
            expect(
                committed is None or not committed.is_same(entry),
                f"{watched.name} has lost offset {entry.base_offset}, which is committed",
            )
        high_watermark = parts.machine.high_watermark
        expect(
            high_watermark <= parts.log.log.log_end_offset,
            f"{watched.name} commits beyond its log",
        )
        if high_watermark > self.history.end_offset:
            self._commit(watched, parts, high_watermark)
        self._compare(watched, min(high_watermark, self.history.end_offset))

    def _commit(self, watched: Watched, parts: QuorumParts, high_watermark: int) -> None:
        machine, name = parts.machine, watched.name
        expect(
            self._leaders.get(machine.epoch) == watched.node.node_id,
            f"{name} commits first, and does not lead epoch {machine.epoch}",
        )
        last = watched.mirror.entry_at(high_watermark - 1)
        expect(last is not None, f"{name} commits a part of a batch before {high_watermark}")
        assert last is not None
        expect(
            last.epoch == machine.epoch,
            f"{name} commits a record of epoch {last.epoch} in epoch {machine.epoch}",
        )
        self._check_majority(watched, parts, last)
        for entry in watched.mirror.entries(self.history.end_offset, high_watermark):
            self.history.commit(entry)
        expect(
            self.history.end_offset == high_watermark,
            f"{name} commits {high_watermark}, but has entries up to {self.history.end_offset}",
        )
        self._leading.committed(watched.node, self.history.image, self._loop.time() * 1000)

    def _check_majority(self, watched: Watched, parts: QuorumParts, last: Entry) -> None:
        voters = parts.machine.voters.by_id
        holders = [
            each.node.node_id
            for each in self._watched.values()
            if each.node.node_id in voters and each.mirror.holds(last)
        ]
        expect(
            len(holders) > len(voters) // 2,
            f"{watched.name} commits offset {last.last_offset}, which only nodes {holders} have on "
            "their disks",
        )

    def _compare(self, watched: Watched, end: int) -> None:
        start = max(watched.compared, watched.mirror.start_offset)
        for entry in watched.mirror.entries(start, end):
            committed = self.history.entry_at(entry.base_offset)
            expect(
                committed is not None and committed.is_same(entry),
                f"{watched.name} has {entry[:4]} at offset {entry.base_offset}, "
                f"{None if committed is None else committed[:4]} was committed",
            )
        watched.compared = max(end, watched.compared)

    def _check_snapshots(self, watched: Watched, parts: QuorumParts) -> None:
        store = parts.log.snapshots
        for snapshot_id in store.ids:
            if snapshot_id not in watched.snapshots and snapshot_id.offset > 0:
                image = loaded(snapshot_id, store.read(snapshot_id)).image
                self.history.check_image(f"a snapshot of {watched.name}", image)
                self.counts["snapshot"] += 1
        watched.snapshots = dict.fromkeys(store.ids)


def _nothing(_address: str) -> None:
    """In place of a fault."""
