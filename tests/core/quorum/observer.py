"""An observer of all nodes of a simulated quorum, which checks Raft's promises at every step."""

from dataclasses import dataclass, field

from core.quorum.memory_log import Entry, MemoryLog

from moldau.core.quorum.election import Election
from moldau.core.quorum.events import (
    Appended,
    Event,
    Requested,
    SnapshotInstalled,
    Truncated,
)
from moldau.core.quorum.machine import QuorumMachine
from moldau.core.quorum.options import QuorumOptions
from moldau.core.quorum.roles import Leader
from moldau.core.quorum.rpc import (
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from moldau.core.quorum.voters import Voter, VoterKey, VoterSet
from moldau.types import Offset

_FROM_FOLLOWERS = (FetchRequest, FetchSnapshotRequest)


class BrokenPromiseError(AssertionError):
    """The findings of the observer."""


@dataclass
class Node:
    """Everything that survives a crash, and the machine, which does not."""

    voter: Voter
    options: QuorumOptions
    log: MemoryLog
    election: Election | None = None
    machine: QuorumMachine | None = None
    incarnation: int = 0
    """How often it was started: nothing from before may reach it."""
    is_flushing: bool = False
    partial: bytes = b""
    highest_epoch: int = 0
    paused_until_ms: float = 0.0
    is_stopping: bool = False
    fetched_ms: dict[VoterKey, float] = field(default_factory=dict)
    """When others last fetched from this node, as long as it leads."""

    @property
    def id(self) -> int:
        return self.voter.key.node_id

    @property
    def is_leading(self) -> bool:
        return self.machine is not None and self.machine.is_leader


class Observer:
    def __init__(self, nodes: dict[int, Node], counts: dict[str, int]) -> None:
        self.committed: list[Entry] = []
        self.counts = counts
        self.lost: list[Node] = []
        """Their disks were replaced. What they acknowledged before may be counted afterwards."""
        self._nodes = nodes
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[VoterKey, int], VoterKey] = {}
        self._committing_epoch = 0
        """The last one in which anything was committed."""

    def stepped(self, node: Node, machine: QuorumMachine, event: Event, now_ms: float) -> None:
        self._check_role(node, machine)
        self._check_voters(node, machine, event)
        self._check_majority_fetches(node, machine, event, now_ms)

    def _check_role(self, node: Node, machine: QuorumMachine) -> None:
        if machine.epoch < node.highest_epoch:
            raise BrokenPromiseError(
                f"node {node.id} went back from epoch {node.highest_epoch} to {machine.epoch}"
            )
        if isinstance(machine.role, Leader):
            other = self._leaders.setdefault(machine.epoch, node.id)
            if other != node.id:
                raise BrokenPromiseError(f"nodes {other} and {node.id} lead epoch {machine.epoch}")

    def _check_voters(self, node: Node, machine: QuorumMachine, event: Event) -> None:
        if isinstance(event, Appended | Truncated | SnapshotInstalled):
            named = [each.value for each in node.log.changes() if isinstance(each.value, VoterSet)]
            if machine.voters != (named[-1] if named else VoterSet({})):
                raise BrokenPromiseError(f"node {node.id} has other voters than its log")

    def _check_majority_fetches(
        self, node: Node, machine: QuorumMachine, event: Event, now_ms: float
    ) -> None:
        """A leader without a majority resigns. It may count a fetch that is one time-out old."""
        if not machine.is_leader:
            node.fetched_ms.clear()
            return
        keys = [voter.key for voter in machine.voters.by_id.values()]
        if list(node.fetched_ms) != keys:
            # A new leader, or new voters, get the whole time.
            node.fetched_ms = dict.fromkeys(keys, now_ms)
        heard = [node.voter.key]
        if isinstance(event, Requested) and isinstance(event.request, _FROM_FOLLOWERS):
            heard.append(event.request.replica)
        for key in heard:
            if key in node.fetched_ms:
                node.fetched_ms[key] = now_ms
        latest_ms = sorted(node.fetched_ms.values(), reverse=True)
        silent_ms = now_ms - latest_ms[len(latest_ms) // 2]
        if len(latest_ms) > 1 and silent_ms > 2 * node.options.check_quorum_ms + 1:
            raise BrokenPromiseError(f"node {node.id} leads without a majority for {silent_ms} ms")

    def stored(self, node: Node, election: Election) -> None:
        if election.epoch < node.highest_epoch:
            raise BrokenPromiseError(
                f"node {node.id} stored epoch {election.epoch} after a later one"
            )
        node.highest_epoch = election.epoch
        if election.leader_id == node.id:
            self.counts["election"] = self.counts.get("election", 0) + 1
            if election.epoch > self._committing_epoch:
                self._check_complete(node)
        if election.voted_for is not None:
            self._check_ballot(node, election.epoch, election.voted_for)

    def _check_complete(self, node: Node) -> None:
        """A leader has everything that was committed in the epochs before."""
        end = node.log.end.offset
        if end < len(self.committed):
            raise BrokenPromiseError(
                f"node {node.id} leads with {end} of {len(self.committed)} committed records"
            )
        self._check_prefix(node, len(self.committed))

    def sent(self, node: Node, request: Request) -> None:
        if isinstance(request, VoteRequest) and not request.is_pre_vote:
            self._check_stored(node, request)

    def _check_stored(self, node: Node, request: VoteRequest) -> None:
        stored = node.election
        if stored is None or (stored.epoch, stored.voted_for) != (request.epoch, request.candidate):
            raise BrokenPromiseError(f"node {node.id} gave a vote that is not on its disk")

    def responded(self, node: Node, request: Request, response: Response) -> None:
        if not isinstance(request, VoteRequest) or not isinstance(response, VoteResponse):
            return
        if request.is_pre_vote or not response.is_granted:
            return
        self._check_stored(node, request)
        self._check_ballot(node, request.epoch, request.candidate)

    def _check_ballot(self, node: Node, epoch: int, candidate: VoterKey) -> None:
        earlier = self._votes.setdefault((node.voter.key, epoch), candidate)
        if earlier != candidate:
            raise BrokenPromiseError(
                f"node {node.id} voted for {earlier} and for {candidate} in epoch {epoch}"
            )

    def committed_by(self, node: Node, high_watermark: Offset) -> None:
        assert node.machine is not None
        if high_watermark > node.log.end.offset:
            raise BrokenPromiseError(f"node {node.id} commits beyond its log")
        self._check_prefix(node, min(high_watermark, len(self.committed)))
        if high_watermark <= len(self.committed):
            return
        if self._leaders.get(node.machine.epoch) != node.id:
            raise BrokenPromiseError(f"node {node.id} follows and commits first")
        if node.log.entry(high_watermark - 1).epoch != node.machine.epoch:
            raise BrokenPromiseError(
                f"node {node.id} commits a record of an earlier epoch by itself"
            )
        self._check_majority(node, node.machine.voters, high_watermark)
        self._committing_epoch = max(self._committing_epoch, node.machine.epoch)
        for offset in range(len(self.committed), high_watermark):
            self.committed.append(node.log.entry(offset))

    def _check_majority(self, node: Node, voters: VoterSet, high_watermark: int) -> None:
        last = node.log.entry(high_watermark - 1)
        holders = [
            each
            for each in (*self._nodes.values(), *self.lost)
            if each.voter.key in voters
            and each.log.flushed_offset >= high_watermark
            and (
                each.log.start_offset >= high_watermark
                or each.log.entry(high_watermark - 1) == last
            )
        ]
        if len(holders) <= len(voters.by_id) // 2:
            raise BrokenPromiseError(
                f"node {node.id} commits offset {high_watermark - 1}, which "
                f"{len(holders)} of {len(voters.by_id)} voters have on their disks"
            )

    def _check_prefix(self, node: Node, end: int) -> None:
        """From its start on: before that there is a snapshot of what was committed."""
        for offset in range(max(node.log.start_offset, end - 16), end):
            if node.log.entry(offset) != self.committed[offset]:
                raise BrokenPromiseError(
                    f"node {node.id} has {node.log.entry(offset)} at offset {offset}, "
                    f"{self.committed[offset]} was committed there"
                )
