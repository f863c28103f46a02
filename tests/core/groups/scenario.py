"""Scenarios of groups as text: actions of clients, and after a line of dashes all their results.

    a joins [v=9] [static=name] [protocols=range,sticky] [type=consumer] [as=ID] [session=MS] …
    a syncs [a=x b=y]     a beats     a leaves [b]     a commits t-0=5     a fetches t-0
    a commits txn=7 t-0=5     transaction 7 commits | aborts     delete group g     delete topic t
    after MS | restart | unload | groups | offsets | log
    log refuses CODE | log accepts | commits wait | commits resume | commits fail CODE
    settings key=value …

Clients are named by letters; a member's id is shown as the name of its client. A client remembers
its id and generation from its last answers, as clients do.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from core.groups.bench import Bench, listed_groups

from moldau.core.coordinator.effects import AnyTicket, Marker
from moldau.core.groups.group_records import decode_group_record
from moldau.core.groups.joining import Join
from moldau.core.groups.listing import describe_group
from moldau.core.groups.member import NO_MEMBER_ID, Caller, Protocols
from moldau.core.groups.settings import GroupSettings
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records.group_metadata import GroupMetadataKey, GroupMetadataValue
from moldau.protocol.log_records.offset_commit import OffsetCommitKey, OffsetCommitValue
from moldau.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from moldau.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.protocol.messages.join_group import JoinGroupResponse
from moldau.protocol.messages.leave_group import LeaveGroupResponse, MemberIdentity
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from moldau.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.protocol.wire.codec import encode

DASHES = "----"


@dataclass
class Client:
    name: str
    group_id: str = "g"
    member_id: str = NO_MEMBER_ID
    generation: int = -1
    instance_id: str | None = None
    tries: int = 0

    @property
    def caller(self) -> Caller:
        return Caller(client_id=self.name, client_host="/127.0.0.1", principal="User:ANONYMOUS")


def subscription(*topics: str) -> bytes:
    return b"\x00\x01" + encode(ConsumerProtocolSubscription(topics=list(topics)), 1)


class Scenario:
    def __init__(self) -> None:
        self.bench = Bench()
        self.clients: dict[str, Client] = {}
        self.senders: dict[AnyTicket, tuple[Client, str]] = {}
        self.lines: list[str] = []
        self.logged = 0

    # Running

    def run(self, line: str) -> None:
        words = line.split()
        match words:
            case ["after", ms]:
                self.bench.advance(int(ms))
            case ["restart"]:
                self.bench.load()
            case ["unload"]:
                self.bench.unload()
            case ["groups"]:
                self._show_groups()
            case ["offsets"]:
                self._show_offsets()
            case ["log"]:
                self._show_log()
            case ["log", "refuses", code]:
                self.bench.refuses = ErrorCode[code]
            case ["log", "accepts"]:
                self.bench.refuses = None
            case ["commits", "wait"]:
                self.bench.holds_commits = True
            case ["commits", "resume"]:
                self.bench.holds_commits = False
                self.bench.commit_all()
            case ["commits", "fail", code]:
                self.bench.fail_all(ErrorCode[code])
            case ["settings", *pairs]:
                changes = {k: int(v) for k, v in (pair.split("=") for pair in pairs)}
                self.bench.settings = replace(self.bench.settings, **changes)
            case ["transaction", producer_id, ("commits" | "aborts") as end]:
                self.bench.end_transaction(int(producer_id), commits=end == "commits")
            case ["delete", "group", group_id]:
                (deleted,) = self.bench.delete_groups(group_id)
                self.lines.append(f"{group_id} deleted: {deleted.name}")
            case ["delete", "topic", name]:
                self.bench.delete_topic(name)
            case [name, action, *rest]:
                self._act(self._client(name), action, rest)
            case _:
                raise ValueError(f"not understood: {line!r}")
        self._show_answers()

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def _act(self, client: Client, action: str, words: list[str]) -> None:
        match action:
            case "joins":
                self._join(client, words)
            case "syncs":
                self._sync(client, words)
            case "beats":
                request = HeartbeatRequest(
                    group_id=client.group_id,
                    generation_id=client.generation,
                    member_id=client.member_id,
                    group_instance_id=client.instance_id,
                )
                self._sent(client, action, self.bench.heartbeat(request, client.caller))
            case "leaves":
                self._leave(client, words)
            case "commits":
                self._commit(client, words)
            case "fetches":
                self._fetch(client, words)
            case "forgets":
                client.member_id, client.generation = NO_MEMBER_ID, -1
            case _:
                raise ValueError(f"no such action: {action}")

    def _sent(self, client: Client, action: str, ticket: AnyTicket) -> None:
        self.senders[ticket] = (client, action)

    def _join(self, client: Client, words: list[str]) -> None:
        options = dict(word.split("=", 1) for word in words)
        client.group_id = options.get("group", client.group_id)
        client.instance_id = options.get("static", client.instance_id)
        if "as" in options:
            client.member_id = self._id_of(options["as"])
        client.tries += 1
        ticket = self.bench.ticket()
        self._sent(client, "joins", ticket)
        topics = options.get("topics", "t").split(",")
        names = [name for name in options.get("protocols", "range").split(",") if name]
        protocols: Protocols = tuple((name, subscription(*topics)) for name in names)
        self.bench.join(
            Join(
                ticket=ticket,
                version=int(options.get("v", "9")),
                caller=client.caller,
                group_id=client.group_id,
                member_id=client.member_id,
                instance_id=client.instance_id,
                session_timeout_ms=int(options.get("session", "10000")),
                rebalance_timeout_ms=int(options.get("rebalance", "60000")),
                protocol_type=options.get("type", "consumer"),
                protocols=protocols,
                fresh_id=f"{client.name}{client.tries}",
            )
        )

    def _id_of(self, name: str) -> str:
        client = self.clients.get(name)
        return client.member_id if client is not None else name

    def _sync(self, client: Client, words: list[str]) -> None:
        given = dict(word.split("=", 1) for word in words)
        request = SyncGroupRequest(
            group_id=client.group_id,
            generation_id=int(given.pop("generation", client.generation)),
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type=given.pop("type", "consumer"),
            protocol_name=given.pop("protocol", "range"),
            assignments=[
                SyncGroupRequestAssignment(member_id=self._id_of(k), assignment=v.encode())
                for k, v in given.items()
            ],
        )
        self._sent(client, "syncs", self.bench.sync(request, client.caller))

    def _leave(self, client: Client, words: list[str]) -> None:
        leaving = [MemberIdentity(member_id=client.member_id)] if not words else []
        for word in words:
            if word.startswith("static="):
                instance_id = word.removeprefix("static=")
                leaving.append(MemberIdentity(member_id="", group_instance_id=instance_id))
            else:
                leaving.append(MemberIdentity(member_id=self._id_of(word)))
        self._sent(client, "leaves", self.bench.leave(client.group_id, leaving))

    def _commit(self, client: Client, words: list[str]) -> None:
        options = dict(word.split("=", 1) for word in words)
        client.group_id = options.pop("group", client.group_id)
        try:
            if "txn" in options:
                ticket = self._commit_in_transaction(client, options)
            else:
                ticket = self._commit_at_once(client, options)
        except KafkaError as error:
            self.lines.append(f"{client.name} commits: {error.code.name}")
        else:
            self._sent(client, "commits", ticket)

    def _commit_at_once(self, client: Client, options: dict[str, str]) -> AnyTicket:
        generation = int(options.pop("generation", client.generation))
        version = int(options.pop("v", "9"))
        retention_ms = int(options.pop("retention", "-1"))
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for topic, index, offset, metadata in _offsets(options):
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = OffsetCommitRequest(
            group_id=client.group_id,
            generation_id_or_member_epoch=generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        return self.bench.commit(request, client.caller, version)

    def _commit_in_transaction(self, client: Client, options: dict[str, str]) -> AnyTicket:
        producer_id = int(options.pop("txn"))
        generation = int(options.pop("generation", client.generation))
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for topic, index, offset, metadata in _offsets(options):
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=f"of-{producer_id}",
            group_id=client.group_id,
            producer_id=producer_id,
            generation_id=generation,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        return self.bench.commit_in_transaction(request)

    def _fetch(self, client: Client, words: list[str]) -> None:
        stable = "stable" in words
        topics = [
            OffsetFetchRequestTopics(name=topic, partition_indexes=[int(index)])
            for topic, index in (w.rsplit("-", 1) for w in words if w != "stable")
        ]
        request = OffsetFetchRequestGroup(group_id=client.group_id, topics=topics or None)
        fetched = self.bench.shard.offsets.fetch(request, requires_stable=stable).response
        found = [
            f"{topic.name}-{p.partition_index}={_offset_text(p.committed_offset, p.error_code)}"
            + (f"/{p.metadata}" if p.metadata else "")
            for topic in fetched.topics
            for p in topic.partitions
        ]
        self.lines.append(f"{client.name} fetched {' '.join(found) or 'nothing'}")

    # Showing

    def _show_answers(self) -> None:
        for ticket, answer in self.bench.answers:
            client, action = self.senders.pop(ticket, (None, ""))
            if client is not None:
                self.lines.append(self._show(client, action, answer))
        self.bench.answers = []

    def _show(self, client: Client, action: str, answer: object) -> str:
        match answer:
            case JoinGroupResponse():
                return self._show_joined(client, answer)
            case SyncGroupResponse(error_code=0):
                return f"{client.name} synced {answer.assignment.decode() or 'nothing'}"
            case LeaveGroupResponse(error_code=0):
                codes = " ".join(ErrorCode(m.error_code).name for m in answer.members)
                return f"{client.name} left: {codes}"
            case OffsetCommitResponse() | TxnOffsetCommitResponse():
                results = [p for topic in answer.topics for p in topic.partitions]
                codes = " ".join(ErrorCode(p.error_code).name for p in results)
                return f"{client.name} committed: {codes}"
            case SyncGroupResponse() | HeartbeatResponse():
                return f"{client.name} {action}: {ErrorCode(answer.error_code).name}"
            case ErrorCode():
                return f"{client.name} {action}: {answer.name}"
            case _:
                raise AssertionError(answer)

    def _show_joined(self, client: Client, answer: JoinGroupResponse) -> str:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED or not answer.error_code:
            client.member_id = answer.member_id
        if answer.error_code:
            return f"{client.name} joins: {ErrorCode(answer.error_code).name}"
        client.generation = answer.generation_id
        line = (
            f"{client.name} joined generation={answer.generation_id} {answer.protocol_name} "
            f"leader={self.name_of(answer.leader)}"
        )
        if answer.members:
            line += " members=" + ",".join(self.names_of(m.member_id for m in answer.members))
        return line + (" skips assignment" if answer.skip_assignment else "")

    def names_of(self, member_ids: Iterable[str]) -> list[str]:
        return [self.name_of(member_id) for member_id in member_ids]

    @staticmethod
    def name_of(member_id: str) -> str:
        return member_id.rpartition("-")[2].rstrip("0123456789")

    def _show_groups(self) -> None:
        registry = self.bench.shard.registry
        for listed in sorted(listed_groups(registry), key=lambda one: one.group_id):
            described = describe_group(registry, listed.group_id, 6)
            members = [
                f"{self.name_of(m.member_id)}={m.member_assignment.decode() or '-'}"
                for m in described.members
            ]
            group = registry.classic(listed.group_id)
            generation = "" if group is None else f" generation={group.generation}"
            pending = (
                ""
                if group is None or not group.pending_members
                else " pending=" + ",".join(sorted(self.name_of(m) for m in group.pending_members))
            )
            self.lines.append(
                f"{listed.group_id} {listed.group_type} {listed.group_state}{generation}"
                f"{pending} {' '.join(members)}".rstrip()
            )
        if not len(registry):
            self.lines.append("no groups")

    def _show_offsets(self) -> None:
        shown = [f"{g} {place}={c.offset}" for g, place, c in self.bench.shard.store]
        self.lines += sorted(shown) or ["no offsets"]

    def _show_log(self) -> None:
        for pair in self.bench.log[self.logged :]:
            if isinstance(pair, Marker):
                end = "committed" if pair.commits else "aborted"
                self.lines.append(f"transaction {pair.producer_id} {end}")
                continue
            record = decode_group_record(pair.key, pair.value)
            assert record is not None
            match record.key, record.value:
                case GroupMetadataKey() as key, GroupMetadataValue() as value:
                    members = ",".join(self.name_of(m.member_id) for m in value.members)
                    text = f"group {key.group} generation={value.generation} members={members}"
                case OffsetCommitKey() as key, OffsetCommitValue() as value:
                    text = f"offset {key.group} {key.topic}-{key.partition}={value.offset}"
                case GroupMetadataKey() as key, None:
                    text = f"group {key.group} deleted"
                case OffsetCommitKey() as key, None:
                    text = f"offset {key.group} {key.topic}-{key.partition} deleted"
                case other:
                    text = repr(other)
            self.lines.append(text)
        self.logged = len(self.bench.log)


def _offsets(options: dict[str, str]) -> Iterator[tuple[str, int, int, str | None]]:
    for place, text in options.items():
        topic, index = place.rsplit("-", 1)
        offset, _, metadata = text.partition("/")
        yield topic, int(index), int(offset), metadata or None


def _offset_text(offset: int, error_code: int) -> str:
    return ErrorCode(error_code).name if error_code else str(offset)


def blocks_of(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Actions and expected results, block by block."""
    for block in text.strip().split("\n\n"):
        lines = [line.partition("#")[0].rstrip() for line in block.splitlines()]
        lines = [line for line in lines if line]
        if not lines:
            continue
        at = lines.index(DASHES) if DASHES in lines else len(lines)
        yield lines[:at], lines[at + 1 :]


def play(path: Path) -> tuple[str, str]:
    """The file's text, and the actual results in the same form."""
    scenario = Scenario()
    scenario.bench.settings = GroupSettings(initial_rebalance_delay_ms=3_000)
    expected: list[str] = []
    happened: list[str] = []
    for actions, outcomes in blocks_of(path.read_text()):
        scenario.lines = []
        for action in actions:
            scenario.run(action)
        expected += [*actions, DASHES, *outcomes, ""]
        happened += [*actions, DASHES, *scenario.lines, ""]
    return "\n".join(expected), "\n".join(happened)
