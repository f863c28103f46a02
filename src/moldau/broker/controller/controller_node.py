"""The active controller: it makes a decision, appends its records to the metadata log, and answers
when they are committed. Deciding and appending are one step, so that decisions have the order of
the log; only the waits overlap. A large request is decided in a thread, and appended if no other
decision came in between; the next attempt makes the others wait.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.controller.decision_turns import DecisionTurns
from moldau.broker.controller.quorum_description import described_quorum
from moldau.broker.quorum.listener import QuorumListener
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.server.context import ConfigHolder
from moldau.config.values import SECOND_MS
from moldau.core.controller.activation import first_records
from moldau.core.controller.brokers.fencing import decide_fence_stale_broker
from moldau.core.controller.decision_context import DecisionContext
from moldau.core.controller.decisions import REPEATABLE, decide
from moldau.core.controller.machine import Controller, replayed
from moldau.core.controller.partitions.leadership import (
    preferred_leader_records,
    unclean_leader_records,
)
from moldau.core.decision import Decision
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.replay_errors import MetadataReplayError
from moldau.net.clock import Clock, Timer
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import AbortTransactionRecord
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.wire.primitives import BYTES_LIKE_ELEMENT
from moldau.protocol.wire.schema import Message, Struct
from moldau.storage.disk.failures import DiskFullError
from moldau.types import INT32_MAX, BrokerId, LeaderEpoch

_log = logging.getLogger(__name__)

# A broker is fenced at most an eighth of its session timeout after its session has expired.
_CHECKS_PER_SESSION = 8
_RECORDS_IN_SPLIT_BATCH = 1024
VOTER_CHANGES = frozenset({ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
"""The quorum decides them."""
_LARGE_FROM = 50
"""Counted in elements of a request, lengths of texts, or partitions that it creates."""
_CREATES_PARTITIONS: dict[int, str] = {
    ApiKey.CREATE_TOPICS: "num_partitions",
    ApiKey.CREATE_PARTITIONS: "count",
}
_WITH_HONOURED_TIMEOUT = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
}


def requested_timeout_ms(request: Message) -> int:
    """The request's own timeout, which Kafka honours for these APIs only."""
    if request.API_KEY not in _WITH_HONOURED_TIMEOUT:
        return INT32_MAX
    timeout_ms: int = getattr(request, "timeout_ms", INT32_MAX)
    return timeout_ms


def is_large(request: Message) -> bool:
    """Whether deciding it may take more than a few milliseconds."""
    if request.API_KEY == ApiKey.BROKER_REGISTRATION:
        # The broker epoch is the offset of its record, which must not move while it is decided.
        return False
    return _count(request, _CREATES_PARTITIONS.get(request.API_KEY)) > _LARGE_FROM


def _count(struct: Struct, makes: str | None) -> int:
    """Counts the request's elements, of which a long text is several, and stops once there are
    many.
    """
    count = 0
    for row in struct.FIELDS:
        value = getattr(struct, row[0])
        if isinstance(value, list):
            count += len(value)
            for each in value[: _LARGE_FROM + 1]:
                if isinstance(each, Struct):
                    count += _count(each, None)
                    count += getattr(each, makes) if makes is not None else 0
                else:
                    count += _count_of_text(each)
        else:
            count += _count_of_text(value)
    return count


def _count_of_text(value: object) -> int:
    return len(value) // BYTES_LIKE_ELEMENT if isinstance(value, str) else 0


def _outcome(request: Message, error: KafkaError, *, has_appended: bool) -> KafkaError:
    """The error to answer when the leadership ended. NOT_CONTROLLER makes brokers repeat the
    request, but its records may survive in the next leader's log.
    """
    is_over = error.code is ErrorCode.NOT_CONTROLLER
    if not is_over or not has_appended or request.API_KEY in REPEATABLE:
        return error
    detail = "the controller lost its leadership before this was committed; it may still happen"
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail)


def _decide_and_replay(
    context: DecisionContext, request: Message, version: int
) -> tuple[Decision[Message, Any], MetadataDelta | None]:
    """Pure: runs in any thread. Records that need not be atomic are replayed batch by batch."""
    decision = decide(context, request, version)
    delta = replayed(context.image, decision.records) if decision.is_atomic else None
    return decision, delta


@dataclass(slots=True)
class _Leadership:
    """State that is valid only while this node leads in one epoch."""

    epoch: LeaderEpoch
    last_appended: int = -1
    """Offset of the last record that it appended."""
    turns: DecisionTurns = field(default_factory=DecisionTurns)
    timers: dict[str, Timer] = field(default_factory=dict)
    checked_at_ms: float = 0.0
    """When it last looked for brokers whose sessions have expired."""


class ControllerNode(QuorumListener):
    """The controller of this node. It listens to the quorum; register it after the metadata feed,
    whose image it starts from.
    """

    def __init__(
        self,
        quorum: QuorumNode,
        metadata: MetadataFeed,
        settings: ConfigHolder,
        clock: Clock,
        machine: Controller,
    ) -> None:
        self._quorum = quorum
        self._metadata = metadata
        self._settings = settings
        self._clock = clock
        self._controller = machine
        self._active = asyncio.Event()
        self._leadership: _Leadership | None = None
        session_ms = settings.current.broker_session_timeout_ms
        self._check_interval_ms = max(session_ms / _CHECKS_PER_SESSION, 1)

    @property
    def is_active(self) -> bool:
        return self._active.is_set()

    @property
    def image(self) -> MetadataImage:
        """The image that decisions are based on: ahead of the committed one."""
        return self._controller.image

    @property
    def leader_id(self) -> BrokerId:
        """The active controller, as far as this node knows; -1 if there is none."""
        return self._quorum.leader_id

    async def wait_active(self) -> None:
        """The caller bounds the wait."""
        await self._active.wait()

    async def handle(self, request: Message, version: int) -> Message:
        """Returns the response once it is committed. Raises KafkaError if the whole request is
        refused; with NOT_CONTROLLER if this node is not the active controller and did nothing, or
        if the request may be repeated.
        """
        if isinstance(request, DescribeQuorumRequest):
            return await self._describe_quorum(request, version)
        if request.API_KEY in VOTER_CHANGES:
            return await self._change_voters(request, version)
        leadership = self._leading()
        timeout_ms = requested_timeout_ms(request)
        if timeout_ms <= 0:
            detail = "nothing was done: timeout_ms left no time for it"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail)
        decision = await self._decide_and_append(leadership, request, version)
        self._controller.answered(request, self._clock.mono_ms())
        try:
            async with self._clock.timeout(timeout_ms):
                # Even without records of its own: the decision may depend on records that are not
                # committed yet.
                await self._quorum.wait_committed(leadership.last_appended)
        except TimeoutError:
            detail = f"not done within {timeout_ms} ms; it may still happen"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail) from None
        except KafkaError as error:
            raise _outcome(request, error, has_appended=bool(decision.records)) from None
        response: Message = decision.response
        return response

    async def _describe_quorum(self, request: DescribeQuorumRequest, version: int) -> Message:
        """Also where this node does not lead: the response says so."""
        status = self._quorum.describe()
        is_leader = self._quorum.is_leader
        describe = partial(described_quorum, status, request, version, is_leader=is_leader)
        return await asyncio.to_thread(describe) if is_large(request) else describe()

    def _leading(self) -> _Leadership:
        """Raises NOT_CONTROLLER."""
        if self._leadership is None or not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        return self._leadership

    async def _change_voters(self, request: Message, version: int) -> Message:
        # Imported here, because a node starts without it.
        from moldau.broker.quorum.quorum_requests import answered_by_quorum

        return await answered_by_quorum(
            self._quorum,
            request,
            version,
            cluster_id=self._controller.cluster_id,
            listener=self._settings.current.controller_names[0],
        )

    def close(self) -> None:
        """Makes no further decisions, unless this node is elected again."""
        self._active.clear()
        leadership, self._leadership = self._leadership, None
        if leadership is not None:
            for timer in leadership.timers.values():
                timer.cancel()

    # Events of the quorum

    def on_leader_change(self, epoch: int, leader_id: BrokerId) -> None:
        was_active = self.is_active
        self.close()
        if leader_id == self._settings.current.node_id:
            self._activate(LeaderEpoch(epoch))
        elif was_active:
            _log.info("node %s is no longer the active controller", self._settings.current.node_id)

    def _activate(self, epoch: LeaderEpoch) -> None:
        leadership = self._leadership = _Leadership(epoch)
        self._controller.load(self._metadata.image)
        try:
            self._append_first_records()
        except BaseException:
            self.close()
            raise
        if self._leadership is not leadership:
            # It ended while the first records were appended.
            return
        self._controller.activate(self._clock.mono_ms())
        self._active.set()
        self._schedule_tasks(leadership)
        node_id = self._settings.current.node_id
        _log.info("node %s is the active controller of epoch %s", node_id, epoch)

    def _append_first_records(self) -> None:
        if self._metadata.has_open_transaction:
            aborted = AbortTransactionRecord(reason="Controller failover")
            last_offset = self._quorum.append([aborted], self._clock.wall_ms())
            if self._leadership is not None:
                self._leadership.last_appended = last_offset
        if self.image.metadata_version is None:
            bootstrap = self._quorum.bootstrap_records()
            records = first_records(bootstrap, self._settings.current.min_insync_replicas)
            self._append(Decision(None, records, is_atomic=False))

    # Deciding

    def _decision_context(self) -> DecisionContext:
        return self._controller.context(
            self._settings.current,
            next_offset=self._quorum.last_offset + 1,
            now_ms=self._clock.mono_ms(),
            kraft_version=self._quorum.kraft_version,
        )

    async def _decide_and_append(
        self, leadership: _Leadership, request: Message, version: int
    ) -> Decision[Message, Any]:
        """A large request is decided in a thread, so that the event loop stays free. The decision
        is only valid if no other one was appended meanwhile; otherwise it is made once more, and
        the others wait.
        """
        turns = leadership.turns
        if not is_large(request):
            await turns.small()
            self._check_leads(leadership)
            decision = decide(self._decision_context(), request, version)
            self._append_decided(request, decision)
            return decision
        async with turns.large:
            decided = await self._decide_in_thread(leadership, request, version)
            if decided is not None:
                return decided
            with turns.alone():
                decided = await self._decide_in_thread(leadership, request, version)
            assert decided is not None, "another decision was appended out of turn"
            return decided

    async def _decide_in_thread(
        self, leadership: _Leadership, request: Message, version: int
    ) -> Decision[Message, Any] | None:
        """None, and nothing appended, if another decision was appended meanwhile."""
        self._check_leads(leadership)
        context = self._decision_context()
        decision, delta = await asyncio.to_thread(_decide_and_replay, context, request, version)
        self._check_leads(leadership)
        if self._controller.image is not context.image:
            return None
        self._append_decided(request, decision, delta)
        return decision

    def _check_leads(self, leadership: _Leadership) -> None:
        if self._leading() is not leadership:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the leadership ended meanwhile")

    def _append_decided(
        self, request: Message, decision: Decision[Message, Any], delta: MetadataDelta | None = None
    ) -> None:
        before = self._quorum.last_offset
        try:
            self._append(decision, delta)
        except DiskFullError:
            if request.API_KEY != ApiKey.DELETE_TOPICS or not self._quorum.make_room():
                raise
            self._append(decision)
        except KafkaError as error:
            has_appended = self._quorum.last_offset != before
            raise _outcome(request, error, has_appended=has_appended) from None

    def _append(self, decision: Decision[Message, Any], delta: MetadataDelta | None = None) -> None:
        """Appends all records or none if the decision is atomic; otherwise as many as there is room
        for. `delta`: the delta of all records, if it is known already.
        """
        records = decision.records
        if decision.kraft_version is not None:
            self._quorum.raise_kraft_version(decision.kraft_version)
        if delta is not None and records:
            self._append_batch(records, delta)
            return
        step = len(records) if decision.is_atomic else _RECORDS_IN_SPLIT_BATCH
        for start in range(0, len(records), max(step, 1)):
            some = records[start : start + step]
            self._append_batch(some, replayed(self._controller.image, some))

    def _append_batch(self, records: Sequence[Message], delta: MetadataDelta) -> None:
        leadership, epoch = self._leadership, self._quorum.leader_epoch
        last_offset = self._quorum.append(records, self._clock.wall_ms())
        self._controller.adopt(delta, records, last_offset, epoch)
        if leadership is not None:
            # Also if the append has shown that it is over: then this offset is never committed by
            # it, and the requests that wait for it are refused.
            leadership.last_appended = last_offset

    # Periodic tasks

    def _schedule_tasks(self, leadership: _Leadership) -> None:
        config = self._settings.current
        leadership.checked_at_ms = self._clock.mono_ms()
        self._every(self._check_interval_ms, "fence stale brokers", self._fence_stale_brokers)
        if config.auto_leader_rebalance_enable:
            interval_ms = config.leader_imbalance_check_interval_seconds * SECOND_MS
            self._every(interval_ms, "balance leaders", self._balance_leaders)
        interval_ms = config.unclean_leader_election_interval_ms
        self._every(interval_ms, "elect unclean leaders", self._elect_unclean_leaders)

    def _every(self, interval_ms: float, name: str, work: Callable[[], None]) -> None:
        leadership = self._leading()

        def run() -> None:
            # First, so that no error in the work ends the timer.
            leadership.timers[name] = self._clock.call_later(interval_ms, run)
            work_in_turn()

        def work_in_turn() -> None:
            if self._leadership is not leadership or leadership.turns.defer(name, work_in_turn):
                return
            try:
                work()
            except (KafkaError, MetadataReplayError) as error:
                _log.error("the controller could not %s: %s", name, error)

        leadership.timers[name] = self._clock.call_later(interval_ms, run)

    def _fence_stale_brokers(self) -> None:
        # Heartbeats wait in the same event loop: if this check is late, so are they.
        leadership, now_ms = self._leading(), self._clock.mono_ms()
        late_ms = now_ms - leadership.checked_at_ms - self._check_interval_ms
        leadership.checked_at_ms = now_ms
        if late_ms > self._check_interval_ms:
            self._controller.sessions.excuse(late_ms, now_ms)
        # One broker at a time: each decision assumes that the brokers before it are fenced.
        for _ in range(len(self.image.brokers) + 1):
            decision = decide_fence_stale_broker(self._decision_context())
            if decision.response is None:
                return
            self._append(decision)
            self._controller.sessions.end(*decision.response)
            if decision.records:
                _log.warning("broker %s is fenced: its session has expired", decision.response[0])

    def _balance_leaders(self) -> None:
        records = preferred_leader_records(self._decision_context())
        self._append(Decision(None, records, is_atomic=False))

    def _elect_unclean_leaders(self) -> None:
        records = unclean_leader_records(self._decision_context())
        self._append(Decision(None, records, is_atomic=False))
