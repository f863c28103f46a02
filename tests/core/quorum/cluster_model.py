"""A quorum of machines with virtual time, a network that loses and delays, disks that forget what
was not flushed.
"""

import heapq
import pickle
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from core.quorum.memory_log import Entry, MemoryLog, control_entries
from core.quorum.observer import BrokenPromiseError, Node, Observer

from moldau.core.quorum.events import (
    AppendControlBatch,
    Appended,
    AppendFetched,
    AppendSnapshot,
    BeginSnapshot,
    Commit,
    DropSnapshot,
    Effect,
    Event,
    Fail,
    Flushed,
    InstallSnapshot,
    LeaderChanged,
    NotDelivered,
    Noted,
    Requested,
    Respond,
    Responded,
    RespondWithRecords,
    RespondWithSnapshot,
    Send,
    SnapshotInstalled,
    SnapshotMade,
    Started,
    StartEpoch,
    Stopping,
    StoreElection,
    TimePassed,
    Truncated,
    TruncateLog,
)
from moldau.core.quorum.history import Changes, KRaftVersion, QuorumChange
from moldau.core.quorum.machine import QuorumMachine
from moldau.core.quorum.options import QuorumOptions
from moldau.core.quorum.rpc import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Destination,
    Failure,
    RemoveVoterRequest,
    Request,
    Response,
    VoteRequest,
)
from moldau.core.quorum.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from moldau.types import NO_OFFSET, BrokerId, Uuid

LISTENER = "CONTROLLER"
_BOOTSTRAP_IDS = dict.fromkeys((1, 2, 3))
# Far more than any schedule needs.
_EVENTS_MAX = 100_000


@dataclass
class Faults:
    """Faults that may happen, and how often; all drawn from the seed."""

    loss: float = 0.0
    delay_ms: int = 5
    flush_ms: int = 5
    crash_after_vote: float = 0.0
    """The moment at which a forgotten vote shows."""
    blocked: dict[tuple[int, int], None] = field(default_factory=dict)


class Cluster:
    def __init__(self, seed: int, voters: int, observers: int = 0) -> None:
        self.chance = Random(seed)
        self.now_ms = 0.0
        self.faults = Faults()
        self.trace = 0
        self.events = 0
        self.counts: dict[str, int] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._tokens = count()
        self._values = count()
        self._voter_count = voters
        first = VoterSet.of(_voter(number, 1) for number in range(1, voters + 1))
        changes: Changes = (
            QuorumChange(NO_OFFSET, KRaftVersion(1)),
            QuorumChange(NO_OFFSET, first),
        )
        self.nodes: dict[int, Node] = {}
        self.observer = Observer(self.nodes, self.counts)
        for number in range(1, voters + observers + 1):
            self.add_node(number, changes if number <= voters else ())

    def add_node(self, number: int, changes: Changes = (), generation: int = 1) -> Node:
        bootstrap = tuple(Destination(-2 - each, "host", each) for each in _BOOTSTRAP_IDS)
        options = QuorumOptions(listener=LISTENER, bootstrap=bootstrap)
        node = Node(_voter(number, generation), options, MemoryLog(changes))
        self.nodes[number] = node
        return node

    # Time

    def at(self, delay_ms: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), work))

    def run(self, duration_ms: float) -> None:
        end_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, work = heapq.heappop(self._queue)
            work()
        self.now_ms = end_ms

    # Nodes

    def start(self, node: Node) -> None:
        node.incarnation += 1
        node.is_flushing, node.is_stopping, node.partial = False, False, b""
        node.log.flushed_offset = node.log.end.offset
        node.machine = QuorumMachine(
            node.voter, VoterSet({}), node.options, node.log, Random(self.chance.random())
        )
        self.step(node, Started(election=node.election, changes=node.log.changes()))

    def kill(self, node: Node, *, is_power_cut: bool) -> None:
        """A power cut takes any part of what was not flushed."""
        if node.machine is None:
            return
        self._count("power cut" if is_power_cut else "kill")
        node.machine = None
        node.incarnation += 1
        if is_power_cut:
            kept = self.chance.randint(node.log.flushed_offset, node.log.end.offset)
            node.log.truncate(max(kept, node.log.start_offset))

    def replace_disk(self, node: Node) -> None:
        """The node returns with its id and nothing else. Its directory is another one, so it is an
        observer, and as a voter it is lost for good. A quorum of three bears that once.
        """
        has_changed = {"voter change", "replaced disk"} & self.counts.keys()
        if has_changed or self._voter_count < 3 or node.id > self._voter_count:
            return
        self.kill(node, is_power_cut=True)
        self._count("replaced disk")
        self.observer.lost.append(node)
        self.add_node(node.id, generation=2)

    def step(self, node: Node, event: Event) -> None:
        machine = node.machine
        if machine is None:
            return
        self.events += 1
        if self.events > _EVENTS_MAX:
            raise BrokenPromiseError(f"node {node.id} does not come to rest: {event}")
        told = f"{self.now_ms:.3f} {node.id} {type(event).__name__} {machine.role.name}"
        self.trace = zlib.crc32(told.encode(), self.trace)
        effects = machine.step(event, self.now_ms)
        self.observer.stepped(node, machine, event, self.now_ms)
        answers = []
        for effect in effects:
            self.trace = zlib.crc32(type(effect).__name__.encode(), self.trace)
            if answer := self._perform(node, effect):
                answers.append(answer)
        for answer in answers:
            self.step(node, answer)
        if node.machine is machine and machine.wake_ms < float("inf"):
            self._wake(node, machine.wake_ms)
        self._flush(node)

    def _wake(self, node: Node, wake_ms: float) -> None:
        incarnation = node.incarnation

        def wake() -> None:
            machine = node.machine
            if machine is None or node.incarnation != incarnation:
                return
            if machine.wake_ms <= self.now_ms:
                self._deliver(node, incarnation, TimePassed())

        self.at(max(0.0, wake_ms - self.now_ms), wake)

    def _deliver(self, node: Node, incarnation: int, event: Event) -> None:
        """A paused process reads everything when it continues."""
        if node.incarnation != incarnation:
            return
        if self.now_ms < node.paused_until_ms:
            wait_ms = node.paused_until_ms - self.now_ms
            self.at(wait_ms, lambda: self._deliver(node, incarnation, event))
            return
        self.step(node, event)

    def _flush(self, node: Node) -> None:
        if node.is_flushing or node.machine is None:
            return
        if node.log.flushed_offset >= node.log.end.offset:
            return
        node.is_flushing = True
        incarnation, end = node.incarnation, node.log.end

        def flushed() -> None:
            if node.incarnation != incarnation:
                return
            node.is_flushing = False
            # What was truncated meanwhile does not count.
            has_all = node.log.end_of_epoch(end.epoch).offset >= end.offset
            if has_all and end.offset > node.log.flushed_offset:
                node.log.flushed_offset = end.offset
            self._deliver(node, incarnation, Flushed(node.log.flushed_offset))
            self._flush(node)

        self.at(self.chance.uniform(0.1, self.faults.flush_ms), flushed)

    # Effects

    def _perform(self, node: Node, effect: Effect) -> Event | None:
        log = node.log
        match effect:
            case StoreElection(election):
                self.observer.stored(node, election)
                node.election = election
            case AppendControlBatch(epoch, values):
                changes = log.append(control_entries(epoch, values))
                return Appended(log.end.offset, changes)
            case AppendFetched(_, records):
                changes = log.append(pickle.loads(records))
                return Appended(log.end.offset, changes)
            case TruncateLog(end_offset):
                self._count("truncation")
                log.truncate(end_offset)
                return Truncated(end_offset)
            case BeginSnapshot() | DropSnapshot():
                node.partial = b""
            case AppendSnapshot(_, position, content):
                assert len(node.partial) == position
                node.partial += content
            case InstallSnapshot(snapshot):
                self._count("snapshot")
                changes = log.install(snapshot, node.partial)
                return SnapshotInstalled(snapshot, changes)
            case Send(destination, correlation, request):
                self._send(node, destination, correlation, request)
            case Respond() | RespondWithRecords() | RespondWithSnapshot():
                self._respond(node, effect)
            case Commit(high_watermark):
                self.observer.committed_by(node, high_watermark)
            case Fail(reason):
                raise BrokenPromiseError(f"node {node.id}: {reason}")
            case StartEpoch() | LeaderChanged() | Noted():
                pass
        return None

    def _send(self, node: Node, to: Destination, correlation: int, request: Request) -> None:
        incarnation, target = node.incarnation, self.nodes.get(to.port)
        self.observer.sent(node, request)
        self.trace = zlib.crc32(f"{type(request).__name__} {to.port}".encode(), self.trace)

        def answer(response: Response | Failure) -> None:
            event: Event
            if isinstance(response, Failure):
                event = NotDelivered(correlation, response)
            else:
                event = Responded(correlation, response)
            self._deliver(node, incarnation, event)

        if target is None or target.machine is None:
            self.at(self._delay_ms(), lambda: answer(Failure.REFUSED))
        elif not self._is_lost(node.id, target.id):
            arrival = target.incarnation
            self.at(
                self._delay_ms(), lambda: self._arrive(target, arrival, node.id, request, answer)
            )

    def _arrive(
        self,
        target: Node,
        incarnation: int,
        sender: int,
        request: Request,
        answer: Callable[[Response | Failure], None],
    ) -> None:
        if target.incarnation != incarnation:
            answer(Failure.LOST)
            return
        if isinstance(request, ApiVersionsRequest):
            self.at(self._delay_ms(), lambda: answer(ApiVersionsResponse(kraft_versions=(0, 1))))
            return
        token = (next(self._tokens), sender, request, answer)
        self._deliver(target, incarnation, Requested(_Token(*token), request))

    def _respond(
        self, node: Node, effect: Respond | RespondWithRecords | RespondWithSnapshot
    ) -> None:
        token, response = effect.token, effect.response
        assert isinstance(token, _Token)
        if isinstance(effect, RespondWithRecords):
            entries = node.log.read(effect.offset, 8)
            content = pickle.dumps(entries) if entries else b""
            response = _filled(effect.response, records=content)
        elif isinstance(effect, RespondWithSnapshot):
            position = effect.response.position
            snapshot = effect.response.snapshot
            assert snapshot is not None
            whole = node.log.snapshot_bytes(snapshot)
            response = _filled(effect.response, content=whole[position : position + 200])
        self.observer.responded(node, token.request, response)
        if not self._is_lost(node.id, token.sender):
            self.at(self._delay_ms(), lambda: token.answer(response))
        is_vote = isinstance(token.request, VoteRequest) and not token.request.is_pre_vote
        if is_vote and self.chance.random() < self.faults.crash_after_vote:
            incarnation = node.incarnation
            self.at(0, lambda: self._crash_and_restart(node, incarnation))

    def _crash_and_restart(self, node: Node, incarnation: int) -> None:
        if node.incarnation == incarnation:
            self.kill(node, is_power_cut=True)
            self.start(node)

    def _delay_ms(self) -> float:
        if self.chance.random() < 0.01:
            return self.chance.uniform(10, 3_000 if self.faults.loss else 20)
        return self.chance.uniform(0.1, self.faults.delay_ms)

    def _is_lost(self, sender: int, receiver: int) -> bool:
        if (sender, receiver) in self.faults.blocked:
            return True
        return self.chance.random() < self.faults.loss

    # Clients

    def append(self, node: Node) -> bool:
        """Appends a value as the active controller does: after its epoch's first record."""
        machine = node.machine
        if machine is None or not machine.is_leader or machine.high_watermark < 0:
            return False
        if self.now_ms < node.paused_until_ms:
            return False
        changes = node.log.append([Entry(machine.epoch, f"value {next(self._values)}")])
        self._count("append")
        self.step(node, Appended(node.log.end.offset, changes))
        return True

    def make_snapshot(self, node: Node) -> None:
        machine = node.machine
        end = -1 if machine is None else machine.high_watermark
        if end > node.log.start_offset and end <= node.log.flushed_offset:
            snapshot = node.log.make_snapshot(end)
            self._count("compaction")
            self.step(node, SnapshotMade(snapshot))

    def change_voters(self, node: Node) -> None:
        """Adds a node that is not among the voters, or removes one that is."""
        machine = node.machine
        if machine is None or not machine.is_leader:
            return
        voters = machine.voters
        others = [each for each in self.nodes.values() if each.voter.key not in voters]
        request: Request
        if others and (len(voters.by_id) < 3 or self.chance.random() < 0.5):
            added = self.chance.choice(others).voter
            request = AddVoterRequest(voter=added.key, endpoints=added.endpoints)
        elif len(voters.by_id) > 1:
            removed = self.chance.choice(sorted(voters.by_id))
            if not (voters.by_id.keys() - {removed}) & _BOOTSTRAP_IDS.keys():
                # Then no observer could find the next leader: an operator changes the settings.
                return
            request = RemoveVoterRequest(voter=voters.by_id[removed].key)
        else:
            return
        self._count("voter change")
        token = _Token(next(self._tokens), node.id, request, lambda _response: None)
        self.step(node, Requested(token, request))

    def stop(self, node: Node) -> None:
        if node.machine is not None:
            self._count("planned stop")
            node.is_stopping = True
            self.step(node, Stopping())

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


class _Token:
    def __init__(
        self,
        number: int,
        sender: int,
        request: Request,
        answer: Callable[[Response | Failure], None],
    ) -> None:
        self.number = number
        self.sender = sender
        self.request = request
        self.answer = answer


def _filled(response: Response, **content: bytes) -> Response:
    return replace(response, **content)  # type: ignore[arg-type]


def _voter(number: int, generation: int) -> Voter:
    """Another generation has another directory: its disk was replaced."""
    key = VoterKey(BrokerId(number), Uuid(bytes([generation, number]) * 8))
    return Voter(key=key, endpoints=(VoterEndpoint(LISTENER, "host", number),))
