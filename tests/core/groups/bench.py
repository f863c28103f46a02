"""A shard with a manual shell: time only moves when a test moves it, the log is a list, and both
appends and commits can be held or refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moldau.core.coordinator.effects import (
    AnyAppend,
    AnyEffect,
    AnyTicket,
    Append,
    Marker,
    Reply,
    Request,
    StartTimer,
    StopTimer,
    Ticket,
    TimerKey,
    Turn,
    Writer,
)
from moldau.core.coordinator.records import CoordinatorRecord, StoredPair, encode_record
from moldau.core.coordinator.refusals import as_coordinator_error
from moldau.core.groups.group_records import decode_group_record
from moldau.core.groups.group_shard import GroupShard
from moldau.core.groups.joining import Join
from moldau.core.groups.listing import GroupFilter
from moldau.core.groups.member import Caller
from moldau.core.groups.registry import GroupRegistry
from moldau.core.groups.settings import GroupSettings
from moldau.core.groups.turns import GroupTurn
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.messages.heartbeat import HeartbeatRequest
from moldau.protocol.messages.leave_group import MemberIdentity
from moldau.protocol.messages.list_groups import ListedGroup
from moldau.protocol.messages.offset_commit import OffsetCommitRequest
from moldau.protocol.messages.sync_group import SyncGroupRequest
from moldau.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from moldau.types import NO_PRODUCER_ID, ZERO_UUID, Offset, ProducerEpoch, Uuid

START_MS = 1_000_000
CALLER = Caller(client_id="c", client_host="/127.0.0.1", principal="User:ANONYMOUS")


@dataclass
class Bench:
    settings: GroupSettings = field(default_factory=GroupSettings)
    now_ms: int = START_MS
    log: list[StoredPair | Marker] = field(default_factory=list)
    producers: dict[int, int] = field(default_factory=dict)
    """The producers of records in a transaction, by offset."""
    refuses: ErrorCode | None = None
    holds_commits: bool = False
    answers: list[tuple[AnyTicket, object]] = field(default_factory=list)
    waiting: list[AnyAppend] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shard = GroupShard(lambda: self.settings)
        self.timers: dict[TimerKey, int] = {}
        self._tickets = 0
        self.load()

    # The shell

    def load(self) -> None:
        """Loads a new shard from the log."""
        self.shard = GroupShard(lambda: self.settings)
        self.timers = {}
        self.waiting = []
        replay_log(self.shard, self.log, self.producers)
        turn = self.turn()
        self.shard.loaded(turn)
        self.perform(turn)

    def unload(self) -> None:
        self.fail_all(ErrorCode.NOT_COORDINATOR)
        turn = self.turn()
        self.shard.unloaded(turn)
        self.timers = {}
        self.perform(turn)

    def turn(self) -> GroupTurn:
        return Turn(self.now_ms)

    def perform(self, turn: GroupTurn) -> None:
        for effect in turn.effects:
            self._perform_one(effect)

    def _perform_one(self, effect: AnyEffect) -> None:
        match effect:
            case Reply(ticket, answer):
                self.answers.append((ticket, answer))
            case StartTimer(key, delay_ms):
                self.timers[key] = self.now_ms + delay_ms
            case StopTimer(key):
                self.timers.pop(key, None)
            case Append():
                self._append(effect)
            case Request():
                raise AssertionError(effect)

    def _append(self, append: AnyAppend) -> None:
        if self.refuses is not None and (append.records or append.marker is not None):
            self._fail(append, as_coordinator_error(self.refuses))
            return
        if append.marker is not None:
            self.log.append(append.marker)
            self.shard.end_transaction(append.marker.producer_id, commits=append.marker.commits)
        for record in append.records:
            offset = len(self.log)
            self.log.append(encode_record(record))
            producer_id: int = NO_PRODUCER_ID
            if append.writer is not None:
                producer_id = self.producers[offset] = append.writer.producer_id
            if append.replays:
                self.shard.replay(_through_bytes(record), Offset(offset), producer_id)
        if append.sequel is not None:
            turn = self.turn()
            self.shard.appended(append.sequel, turn)
            self.perform(turn)
        self.waiting.append(append)
        if not self.holds_commits:
            self.commit_all()

    def commit_all(self) -> None:
        while self.waiting:
            append = self.waiting.pop(0)
            for reply in append.replies:
                self._perform_one(reply)
            if append.sequel is not None:
                turn = self.turn()
                self.shard.committed(append.sequel, turn)
                self.perform(turn)

    def fail_all(self, code: ErrorCode) -> None:
        while self.waiting:
            self._fail(self.waiting.pop(0), as_coordinator_error(code))

    def _fail(self, append: AnyAppend, code: ErrorCode) -> None:
        for reply in append.replies:
            self.answers.append((reply.ticket, code))
        if append.sequel is not None:
            turn = self.turn()
            self.shard.failed(append.sequel, code, turn)
            self.perform(turn)

    def advance(self, ms: int) -> None:
        """Advances the time. Timers fire in order, each at its own time."""
        until_ms = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda k: (self.timers[k], k))
            if self.timers[key] > until_ms:
                break
            self.now_ms = self.timers.pop(key)
            turn = self.turn()
            self.shard.timer_fired(key, turn)
            self.perform(turn)
        self.now_ms = until_ms

    # The requests

    def ticket(self) -> AnyTicket:
        self._tickets += 1
        return Ticket(self._tickets)

    def join(self, join: Join) -> None:
        turn = self.turn()
        self.shard.classic.join(join, turn)
        self.perform(turn)

    def sync(self, request: SyncGroupRequest, caller: Caller) -> AnyTicket:
        turn, ticket = self.turn(), self.ticket()
        self.shard.classic.sync(request, ticket, caller, turn)
        self.perform(turn)
        return ticket

    def heartbeat(self, request: HeartbeatRequest, caller: Caller) -> AnyTicket:
        turn, ticket = self.turn(), self.ticket()
        turn.reply(ticket, self.shard.classic.heartbeat(request, caller, turn))
        self.perform(turn)
        return ticket

    def leave(self, group_id: str, members: list[MemberIdentity]) -> AnyTicket:
        turn, ticket = self.turn(), self.ticket()
        self.shard.classic.leave(group_id, members, ticket, turn)
        self.perform(turn)
        return ticket

    def commit(self, request: OffsetCommitRequest, caller: Caller, version: int = 9) -> AnyTicket:
        turn, ticket = self.turn(), self.ticket()
        decision = self.shard.offsets.decide_commit(request, version, caller, turn)
        replies = [Reply(ticket, decision.response)]
        turn.append(Append(records=decision.records, replays=True, replies=replies))
        self.perform(turn)
        return ticket

    def commit_in_transaction(self, request: TxnOffsetCommitRequest) -> AnyTicket:
        turn, ticket = self.turn(), self.ticket()
        decision = self.shard.offsets.decide_transactional_commit(request, turn.now_ms)
        writer = Writer(request.producer_id, ProducerEpoch(request.producer_epoch))
        replies = [Reply(ticket, decision.response)]
        turn.append(Append(records=decision.records, replays=True, replies=replies, writer=writer))
        self.perform(turn)
        return ticket

    def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        turn = self.turn()
        marker = Marker(
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=0,
            transaction_version=1,
            commits=commits,
        )
        turn.append(Append(records=(), marker=marker))
        self.perform(turn)

    def delete_groups(self, *group_ids: str) -> list[ErrorCode]:
        decision = self.shard.decide_delete_groups(group_ids)
        self.write(list(decision.records))
        return [ErrorCode(result.error_code) for result in decision.response]

    def delete_topic(self, name: str, topic_id: Uuid = ZERO_UUID) -> None:
        turn = self.turn()
        self.shard.decide_topics_deleted([(name, topic_id)], turn)
        self.perform(turn)

    def write(self, records: list[CoordinatorRecord]) -> None:
        """Writes records like a decision without a response."""
        turn = self.turn()
        turn.append(Append(records=records, replays=True))
        self.perform(turn)


def replay_log(
    shard: GroupShard, log: list[StoredPair | Marker], producers: Mapping[int, int]
) -> None:
    for offset, entry in enumerate(log):
        if isinstance(entry, Marker):
            shard.end_transaction(entry.producer_id, commits=entry.commits)
            continue
        record = decode_group_record(entry.key, entry.value)
        if record is not None:
            shard.replay(record, Offset(offset), producers.get(offset, NO_PRODUCER_ID))


def _through_bytes(record: CoordinatorRecord) -> CoordinatorRecord:
    pair = encode_record(record)
    decoded = decode_group_record(pair.key, pair.value)
    assert decoded is not None
    return decoded


def listed_groups(registry: GroupRegistry) -> list[ListedGroup]:
    everything = GroupFilter((), ())
    return [listed for group in registry if (listed := everything.listed(group)) is not None]
