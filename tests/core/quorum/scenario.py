"""The language of the scenarios: one node, what happens to it, and what it does."""

from collections.abc import Iterator

from core.quorum.memory_log import Entry, MemoryLog, control_entries

from moldau.core.quorum.election import Election
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
    ResignRequested,
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
    UpgradeRequested,
    WriteRefused,
)
from moldau.core.quorum.history import Changes, KRaftVersion, QuorumChange
from moldau.core.quorum.machine import QuorumMachine, VotersError
from moldau.core.quorum.options import QuorumOptions
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.rpc import (
    AddVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    ChangeVotersResponse,
    Destination,
    EndQuorumEpochRequest,
    Failure,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Leadership,
    QuorumEpochResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)
from moldau.core.quorum.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from moldau.protocol.error_codes import ErrorCode
from moldau.types import NO_LEADER, NO_OFFSET, BrokerId, LeaderEpoch, Offset, Uuid

LISTENER = "CONTROLLER"


class FirstChance:
    """Election time-outs without their random part."""

    def randrange(self, _stop: int, /) -> int:
        return 0


def voter(
    node_id: int,
    port: int | None = None,
    *,
    has_directory: bool = True,
    listener: str = LISTENER,
) -> Voter:
    directory_id = Uuid(bytes([node_id]) * 16) if has_directory else Uuid(bytes(16))
    return Voter(
        key=VoterKey(BrokerId(node_id), directory_id),
        endpoints=(VoterEndpoint(listener, "host", node_id if port is None else port),),
    )


def steps(text: str) -> Iterator[tuple[str, list[str]]]:
    """Commands with their expected effects."""
    command, expected, below_the_line = "", [], False
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if line == "----":
            below_the_line = True
        elif below_the_line and line:
            expected.append(line)
        elif below_the_line:
            yield command, expected
            command, expected, below_the_line = "", [], False
        elif line:
            if command:
                yield command, []
            command = line


def position(text: str) -> LogPosition:
    """`2/30`: everything before offset 30, the last of it from epoch 2."""
    epoch, _, offset = text.partition("/")
    return LogPosition(LeaderEpoch(int(epoch)), Offset(int(offset)))


class Scenario:
    """One node, whose log changes at once. Responses answer the last request to their
    sender.
    """

    def __init__(self) -> None:
        self.local = voter(0)
        self.static = VoterSet({})
        self.formatted: Changes = ()
        self.log = MemoryLog()
        self.election: Election | None = None
        self.bootstrap: tuple[Destination, ...] = ()
        self.is_broker = self.joins = self.is_disk_full = False
        self.now_ms = 0.0
        self.sent: dict[int, int] = {}
        self.machine: QuorumMachine | None = None

    def run(self, command: str) -> list[str]:
        verb, *words = command.split()
        facts = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if self.prepare(verb, plain, facts):
            return []
        if verb == "start":
            self.machine = QuorumMachine(
                self.local, self.static, self.options(), self.log, FirstChance()
            )
        try:
            return self.step(self.event(verb, plain, facts))
        except VotersError as error:
            return [f"refused: {error}"]

    def options(self) -> QuorumOptions:
        return QuorumOptions(
            listener=LISTENER,
            bootstrap=self.bootstrap,
            may_become_voter=not self.is_broker,
            auto_join=self.joins,
        )

    # What is there before the start

    def prepare(self, verb: str, plain: list[str], facts: dict[str, str]) -> bool:
        match verb:
            case "node":
                port = int(facts["port"]) if "port" in facts else None
                self.local = voter(int(plain[0]), port)
                self.is_broker, self.joins = "broker" in plain, "joins" in plain
            case "voters":
                listener = facts.get("listener", LISTENER)
                named = VoterSet.of(voter(int(word), listener=listener) for word in plain)
                self.formatted = (
                    QuorumChange(NO_OFFSET, KRaftVersion(int(facts.get("version", 1)))),
                    QuorumChange(NO_OFFSET, named),
                )
                self.log = MemoryLog(self.formatted)
            case "static":
                self.static = VoterSet.of(voter(int(word), has_directory=False) for word in plain)
            case "bootstrap":
                self.bootstrap = tuple(
                    Destination(-2 - index, "host", int(word)) for index, word in enumerate(plain)
                )
            case "log":
                self.log.append([Entry(int(word), "record") for word in plain])
                self.log.flushed_offset = self.log.end.offset
            case "log-voters":
                epoch, *ids = plain
                named = VoterSet.of(voter(int(each)) for each in ids)
                self.log.append([Entry(int(epoch), named)])
                self.log.flushed_offset = self.log.end.offset
            case "snapshot-at":
                self.log.make_snapshot(int(plain[0]))
            case "stored":
                vote = facts.get("vote")
                self.election = Election(
                    epoch=LeaderEpoch(int(facts["epoch"])),
                    leader_id=BrokerId(int(facts.get("leader", NO_LEADER))),
                    voted_for=None if vote is None else voter(int(vote)).key,
                )
            case "disk":
                self.is_disk_full = plain == ["full"]
            case _:
                return False
        return True

    # What happens

    def event(self, verb: str, plain: list[str], facts: dict[str, str]) -> Event:
        match verb:
            case "start":
                return Started(election=self.election, changes=self.log.changes())
            case "after":
                self.now_ms += int(plain[0])
                return TimePassed()
            case "append":
                assert self.machine is not None
                self.log.append([Entry(self.machine.epoch, "record")] * int(plain[0]))
                return Appended(self.log.end.offset)
            case "flush":
                self.log.flushed_offset = Offset(int(plain[0])) if plain else self.log.end.offset
                return Flushed(self.log.flushed_offset)
            case "makes-snapshot":
                return SnapshotMade(self.log.make_snapshot(int(plain[0])))
            case "upgrade":
                return UpgradeRequested(int(plain[0]))
            case "resign":
                return ResignRequested(LeaderEpoch(int(plain[0])))
            case "stop":
                return Stopping()
            case "answers":
                return Responded(self.sent[int(plain[0])], self.response(plain, facts))
            case "refuses" | "loses" | "knows-not":
                failures = {
                    "refuses": Failure.REFUSED,
                    "loses": Failure.LOST,
                    "knows-not": Failure.UNSUPPORTED,
                }
                return NotDelivered(self.sent[int(plain[0])], failures[verb])
            case _:
                assert verb == "asks", verb
                return Requested(" ".join(plain[:2]), self.request(plain, facts))

    def request(self, plain: list[str], facts: dict[str, str]) -> Request:
        """`asks 2 vote epoch=3 end=2/30`"""
        sender, what, *flags = plain
        key, epoch = voter(int(sender)).key, LeaderEpoch(int(facts.get("epoch", 0)))
        end = position(facts["end"]) if "end" in facts else position("0/0")
        match what:
            case "vote":
                return VoteRequest(
                    epoch=epoch,
                    candidate=key,
                    last=end,
                    is_pre_vote="pre" in flags,
                    voter=voter(int(facts["voter"])).key if "voter" in facts else None,
                )
            case "begin":
                return BeginQuorumEpochRequest(
                    epoch=epoch, leader_id=key.node_id, endpoints=voter(int(sender)).endpoints
                )
            case "end":
                successors = [each for each in facts.get("successors", "").split(",") if each]
                return EndQuorumEpochRequest(
                    epoch=epoch,
                    leader_id=key.node_id,
                    endpoints=voter(int(sender)).endpoints,
                    successors=tuple(voter(int(each)).key for each in successors),
                )
            case "fetch":
                return FetchRequest(
                    replica=key,
                    epoch=epoch,
                    position=end,
                    high_watermark=int(facts.get("knows", 10**9)),
                    max_bytes=100,
                    max_wait_ms=int(facts.get("wait", 500)),
                )
            case "fetch-snapshot":
                return FetchSnapshotRequest(
                    replica=key, epoch=epoch, snapshot=end, position=int(facts["at"]), max_bytes=9
                )
            case "add":
                return AddVoterRequest(
                    voter=key,
                    endpoints=voter(int(sender)).endpoints,
                    is_acknowledged_when_committed="early" not in flags,
                )
            case "remove":
                return RemoveVoterRequest(voter=key)
            case _:
                assert what == "update", what
                return UpdateVoterRequest(
                    epoch=epoch,
                    voter=key,
                    endpoints=voter(int(sender), int(facts.get("port", sender))).endpoints,
                    kraft_versions=(0, int(facts.get("supports", 1))),
                )

    def response(self, plain: list[str], facts: dict[str, str]) -> Response:
        """`answers 2 fetch epoch=3 leader=2 records=3,3 committed=31`"""
        what, *flags = plain[1:]
        leader_id = BrokerId(int(facts.get("leader", NO_LEADER)))
        endpoints = (
            () if leader_id == NO_LEADER or "nowhere" in flags else voter(leader_id).endpoints
        )
        leadership = Leadership(LeaderEpoch(int(facts.get("epoch", 0))), leader_id, endpoints)
        error = ErrorCode[facts.get("error", "NONE")]
        match what:
            case "vote":
                return VoteResponse(
                    error=error, leadership=leadership, is_granted="granted" in flags
                )
            case "epoch":
                return QuorumEpochResponse(error=error, leadership=leadership)
            case "fetch":
                epochs = [int(each) for each in facts.get("records", "").split(",") if each]
                return FetchResponse(
                    error=error,
                    leadership=leadership,
                    high_watermark=Offset(int(facts.get("committed", NO_OFFSET))),
                    diverging=position(facts["diverging"]) if "diverging" in facts else None,
                    snapshot=position(facts["snapshot"]) if "snapshot" in facts else None,
                    records=bytes(epochs),
                )
            case "snapshot":
                return FetchSnapshotResponse(
                    error=error,
                    leadership=leadership,
                    snapshot=position(facts["of"]) if "of" in facts else None,
                    size=int(facts.get("size", 0)),
                    position=int(facts.get("at", 0)),
                    content=bytes(int(facts.get("bytes", 0))),
                )
            case "versions":
                low, _, high = facts.get("kraft", "0-1").partition("-")
                return ApiVersionsResponse(error=error, kraft_versions=(int(low), int(high)))
            case _:
                assert what == "voters", what
                return ChangeVotersResponse(error=error, leadership=leadership)

    # What it does

    def step(self, event: Event) -> list[str]:
        assert self.machine is not None
        effects = self.machine.step(event, self.now_ms)
        lines = [line for effect in effects if (line := shown(effect))]
        answers = [answer for effect in effects if (answer := self.perform(effect))]
        for answer in answers:
            lines += self.step(answer)
        return lines

    def perform(self, effect: Effect) -> Event | None:
        match effect:
            case Send(destination, correlation, _):
                self.sent[destination.node_id] = correlation
            case AppendControlBatch(epoch, values):
                if self.is_disk_full:
                    return WriteRefused("the disk is full")
                changes = self.log.append(control_entries(epoch, values))
                return Appended(self.log.end.offset, changes)
            case AppendFetched(_, records):
                if self.is_disk_full:
                    return WriteRefused("the disk is full")
                changes = self.log.append([Entry(epoch, "record") for epoch in records])
                return Appended(self.log.end.offset, changes)
            case TruncateLog(end_offset):
                self.log.truncate(end_offset)
                return Truncated(end_offset)
            case InstallSnapshot(snapshot):
                self.log.entries, self.log.start_offset = [], snapshot.offset
                self.log.snapshots, self.log.flushed_offset = [snapshot], snapshot.offset
                return SnapshotInstalled(snapshot, self.formatted)
            case _:
                pass
        return None


def shown(effect: Effect) -> str:
    match effect:
        case StoreElection(election):
            vote = "" if election.voted_for is None else f" vote={election.voted_for.node_id}"
            leader = "" if election.leader_id == NO_LEADER else f" leader={election.leader_id}"
            return f"store epoch={election.epoch}{leader}{vote}"
        case StartEpoch(epoch):
            return f"epoch {epoch}"
        case AppendControlBatch(_, values):
            return " ".join(["append", *(kind.name for kind, _ in values)])
        case AppendFetched(_, records):
            return f"append {len(records)} records of the leader"
        case TruncateLog(end_offset):
            return f"truncate to {end_offset}"
        case BeginSnapshot(snapshot):
            return f"begin snapshot {shown_position(snapshot)}"
        case AppendSnapshot(_, at, content):
            return f"write snapshot bytes {at} to {at + len(content)}"
        case InstallSnapshot(snapshot):
            return f"install snapshot {shown_position(snapshot)}"
        case DropSnapshot(snapshot):
            return f"drop snapshot {shown_position(snapshot)}"
        case Send(destination, _, request):
            return f"to {destination.node_id}: {shown_request(request)}"
        case Respond(token, response):
            return f"reply {token}: {shown_response(response)}"
        case RespondWithRecords(token, response, offset, _):
            return f"reply {token}: {shown_response(response)} records from {offset}"
        case RespondWithSnapshot(token, response, _):
            return f"reply {token}: {shown_response(response)} bytes from {response.position}"
        case Commit(high_watermark):
            return f"commit {high_watermark}"
        case LeaderChanged(epoch, leader_id):
            return f"leader {'unknown' if leader_id == NO_LEADER else leader_id} epoch={epoch}"
        case Fail(reason):
            return f"fail: {reason}"
        case Noted():
            return ""


def shown_position(at: LogPosition) -> str:
    return f"{at.epoch}/{at.offset}"


def shown_request(request: Request) -> str:
    match request:
        case VoteRequest():
            kind = "pre-vote" if request.is_pre_vote else "vote"
            return f"{kind} epoch={request.epoch} end={shown_position(request.last)}"
        case BeginQuorumEpochRequest():
            return f"begin epoch={request.epoch}"
        case EndQuorumEpochRequest():
            successors = ",".join(str(key.node_id) for key in request.successors)
            return f"end epoch={request.epoch} successors={successors}"
        case FetchRequest():
            return f"fetch epoch={request.epoch} end={shown_position(request.position)}"
        case FetchSnapshotRequest():
            return f"fetch snapshot {shown_position(request.snapshot)} from {request.position}"
        case AddVoterRequest() | RemoveVoterRequest():
            verb = "add" if isinstance(request, AddVoterRequest) else "remove"
            return f"{verb} voter {request.voter.node_id}"
        case UpdateVoterRequest():
            return f"update voter port={request.endpoints[0].port}"
        case ApiVersionsRequest():
            return "which versions"


def shown_response(response: Response) -> str:
    words = [] if response.error is ErrorCode.NONE else [response.error.name]
    if isinstance(response, VoteResponse):
        words.append("granted" if response.is_granted else "rejected")
    if isinstance(response, FetchResponse):
        words.append(f"committed={response.high_watermark}")
        if response.diverging is not None:
            words.append(f"diverging={shown_position(response.diverging)}")
        if response.snapshot is not None:
            words.append(f"snapshot={shown_position(response.snapshot)}")
    if not isinstance(response, ApiVersionsResponse):
        leader_id = response.leadership.leader_id
        leader = "unknown" if leader_id == NO_LEADER else str(leader_id)
        words += [f"leader={leader}", f"epoch={response.leadership.epoch}"]
    return " ".join(words)
