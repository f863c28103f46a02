"""The active controller: it makes a decision, appends its records to the metadata log, and answers
when they are committed. Deciding and appending are one step, so that decisions have the order of
the log; only the waits overlap. What takes long is decided in a thread, and appended if no other
decision came in between; the next attempt makes the others wait.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from moldau.broker.cluster.metadata_feed import MetadataFeed
from moldau.broker.controller.decision_turns import DecisionTurns
from moldau.broker.controller.periodic_tasks import PeriodicTasks
from moldau.broker.controller.quorum_description import described_quorum
from moldau.broker.quorum.listener import QuorumListener
from moldau.broker.quorum.quorum_node import QuorumNode
from moldau.broker.server.context import ConfigHolder
from moldau.config.values import SECOND_MS
from moldau.core.controller.activation import first_records
from moldau.core.controller.decision_context import DecisionContext
from moldau.core.controller.decision_size import (
    PARTITIONS_AT_ONCE,
    is_large,
    walks_all_partitions,
)
from moldau.core.controller.decisions import (
    REPEATABLE,
    balance_leaders,
    decide,
    elect_unclean_leaders,
    fence_stale_broker,
)
from moldau.core.controller.machine import Controller, replayed
from moldau.core.decision import Decision
from moldau.core.metadata.delta import MetadataDelta
from moldau.core.metadata.image import MetadataImage
from moldau.net.clock import Clock
from moldau.net.slices import Slices, free_later
from moldau.net.tasks import Tasks
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError
from moldau.protocol.log_records import AbortTransactionRecord
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.wire.schema import Message
from moldau.types import INT32_MAX, BrokerId, LeaderEpoch, Offset

_log = logging.getLogger(__name__)

# A broker is fenced at most an eighth of its session timeout after its session has expired.
_CHECKS_PER_SESSION = 8
_RECORDS_IN_PIECE = 250
"""Records of a decision that is not atomic are appended in batches of this size: two milliseconds
of work, after which other tasks have a turn."""
Decide = Callable[[DecisionContext], Decision[Message, Any]]
VOTER_CHANGES = frozenset({ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})
"""The quorum decides them."""
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


class _Made(NamedTuple):
    """A large decision, and the delta of its records."""

    decision: Decision[Message, Any]
    delta: MetadataDelta

    @property
    def is_long(self) -> bool:
        """Whether it is appended in several pieces."""
        return not self.decision.is_atomic and len(self.decision.records) > _RECORDS_IN_PIECE


def _decide_and_replay(context: DecisionContext, decide_it: Decide) -> _Made:
    """Pure: runs in any thread."""
    decision = decide_it(context)
    return _Made(decision, replayed(context.image, decision.records))


class _Done(NamedTuple):
    """A decision whose records are appended."""

    response: Any
    has_records: bool


class _MayHappenError(KafkaError):
    """The leadership ended after records had been appended: the next leader's log may have them."""

    def __init__(self) -> None:
        detail = "the controller lost its leadership before this was committed; it may still happen"
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, detail)


class _Leadership:
    """State that is valid only while this node leads in one epoch."""

    def __init__(self, epoch: LeaderEpoch, periodic: PeriodicTasks) -> None:
        self.epoch = epoch
        self.periodic = periodic
        self.last_appended = -1
        """Offset of the last record that it appended."""
        self.turns = DecisionTurns()
        self.checked_at_ms = 0.0
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
        self._tasks = Tasks(are_measured=True)
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
        try:
            done = await self._decide_and_append(leadership, request, version)
            self._controller.answered(request, self._clock.mono_ms())
            await self._commit(leadership, done, timeout_ms)
        except _MayHappenError as error:
            if request.API_KEY in REPEATABLE:
                # Brokers repeat it after this error.
                raise KafkaError(ErrorCode.NOT_CONTROLLER, error.detail) from None
            raise
        response: Message = done.response
        return response

    async def _commit(self, leadership: _Leadership, done: _Done, timeout_ms: int) -> None:
        try:
            async with self._clock.timeout(timeout_ms):
                # Even without records of its own: the decision may depend on records that are not
                # committed yet.
                await self._quorum.wait_committed(leadership.last_appended)
        except TimeoutError:
            detail = f"not done within {timeout_ms} ms; it may still happen"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail) from None
        except KafkaError as error:
            raise _outcome(error, has_appended=done.has_records) from None

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
            leadership.periodic.close()

    # Events of the quorum

    def on_leader_change(self, epoch: int, leader_id: BrokerId) -> None:
        was_active = self.is_active
        self.close()
        if leader_id == self._settings.current.node_id:
            self._activate(LeaderEpoch(epoch))
        elif was_active:
            _log.info("node %s is no longer the active controller", self._settings.current.node_id)

    def _activate(self, epoch: LeaderEpoch) -> None:
        periodic = PeriodicTasks(self._clock, self._tasks)
        leadership = self._leadership = _Leadership(epoch, periodic)
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
    ) -> _Done:
        """The response must not be sent before the records are committed."""

        def decide_request(context: DecisionContext) -> Decision[Message, Any]:
            return decide(context, request, version)

        if not is_large(request):
            await leadership.turns.small()
            self._check_leads(leadership)
            context = self._decision_context()
            if not walks_all_partitions(context, request):
                decision = decide_request(context)
                self._append(decision)
                return _Done(decision.response, bool(decision.records))
        return await self._make_large(leadership, decide_request)

    async def _make_large(
        self, leadership: _Leadership, decide_it: Decide, *, is_alone: bool = False
    ) -> _Done:
        """Decides in a thread, so that the event loop stays free. The decision is only valid if no
        other one was appended meanwhile; otherwise it is made once more, and the others wait.
        `is_alone`: they wait at once.
        """
        turns = leadership.turns
        async with turns.large:
            made = None if is_alone else await self._decide_in_thread(leadership, decide_it)
            if made is not None and not made.is_long:
                self._append(made.decision, made.delta)
                return _Done(made.decision.response, bool(made.decision.records))
            with turns.alone():
                if made is None:
                    made = await self._decide_in_thread(leadership, decide_it)
                assert made is not None, "another decision was appended out of turn"
                has_records = bool(made.decision.records)
                await self._append_to_the_end(leadership, made)
                return _Done(made.decision.response, has_records)

    async def _decide_in_thread(self, leadership: _Leadership, decide_it: Decide) -> _Made | None:
        """None if another decision was appended meanwhile."""
        self._check_leads(leadership)
        context = self._decision_context()
        made = await asyncio.to_thread(_decide_and_replay, context, decide_it)
        self._check_leads(leadership)
        return made if self._controller.image is context.image else None

    def _check_leads(self, leadership: _Leadership) -> None:
        if self._leading() is not leadership:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the leadership ended meanwhile")

    # Appending

    def _append(self, decision: Decision[Message, Any], delta: MetadataDelta | None = None) -> None:
        """Appends all records or none if the decision is atomic; otherwise as many as there is room
        for. `delta`: the delta of all records, if it is known already.
        """
        records = decision.records
        before = self._quorum.last_offset
        try:
            if decision.kraft_version is not None:
                self._quorum.raise_kraft_version(decision.kraft_version)
            for piece in _pieces(decision):
                known = delta if len(piece) == len(records) else None
                changes = known or replayed(self._controller.image, piece)
                epoch = self._quorum.leader_epoch
                last_offset = self._append_piece(piece, frees_disk=decision.frees_disk)
                self._controller.adopt(changes, last_offset, epoch)
        except KafkaError as error:
            raise _outcome(error, has_appended=self._quorum.last_offset != before) from None

    def _append_piece(self, records: Sequence[Message], *, frees_disk: bool) -> Offset:
        leadership = self._leadership
        last_offset = self._quorum.append(records, self._clock.wall_ms(), frees_disk=frees_disk)
        self._controller.note(records, last_offset)
        if leadership is not None:
            # Also if the append has shown that it is over: then this offset is never committed by
            # it, and the requests that wait for it are refused.
            leadership.last_appended = last_offset
        return last_offset

    async def _append_to_the_end(self, leadership: _Leadership, made: _Made) -> None:
        """Also if the caller is cancelled: the image must not miss what is in the log."""
        appending = self._tasks.start(
            self._append_in_pieces(leadership, made), "append a decision", expects=(KafkaError,)
        )
        try:
            await asyncio.shield(appending)
        except asyncio.CancelledError:
            while not appending.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([appending])
            raise

    async def _append_in_pieces(self, leadership: _Leadership, made: _Made) -> None:
        """The image changes once, at the end: no other decision is made meanwhile."""
        before, (decision, delta) = self._controller.image, made
        appended, last_offset, epoch = 0, before.offset, leadership.epoch
        end_before = self._quorum.last_offset
        slices = Slices()
        try:
            for piece in _pieces(decision):
                if slices.is_over:
                    await slices.next()
                    self._check_leads(leadership)
                last_offset = self._append_piece(piece, frees_disk=decision.frees_disk)
                appended += len(piece)
        except KafkaError as error:
            if appended:
                some = decision.records[:appended]
                delta = await asyncio.to_thread(replayed, before, some)
                if self._leadership is leadership:
                    self._controller.adopt(delta, last_offset, epoch)
            has_appended = self._quorum.last_offset != end_before
            raise _outcome(error, has_appended=has_appended) from None
        if appended:
            self._controller.adopt(delta, last_offset, epoch)
        records = decision.records
        free_later(*delta.leftovers(), records if isinstance(records, list) else [])

    # Periodic tasks

    def _schedule_tasks(self, leadership: _Leadership) -> None:
        config = self._settings.current
        leadership.checked_at_ms = self._clock.mono_ms()
        every = leadership.periodic.every
        every(
            self._check_interval_ms,
            "fence stale brokers",
            lambda: self._fence_stale_brokers(leadership),
        )
        if config.auto_leader_rebalance_enable:
            every(
                config.leader_imbalance_check_interval_seconds * SECOND_MS,
                "balance leaders",
                lambda: self._elect(leadership, balance_leaders),
            )
        every(
            config.unclean_leader_election_interval_ms,
            "elect unclean leaders",
            lambda: self._elect(leadership, elect_unclean_leaders),
        )

    async def _fence_stale_brokers(self, leadership: _Leadership) -> None:
        # One broker at a time: each decision assumes that the brokers before it are fenced.
        for _ in range(len(self.image.brokers) + 1):
            await leadership.turns.after_requests()
            self._excuse_delay(leadership)
            if self._controller.sessions.first_expired(self._clock.mono_ms()) is None:
                return
            before = self.image
            session = await self._decide_about_all(leadership, fence_stale_broker, is_alone=True)
            if session is None:
                return
            self._controller.sessions.end(*session)
            broker_id, _ = session
            if _is_unfenced(before, broker_id) and not _is_unfenced(self.image, broker_id):
                _log.warning("broker %s is fenced: its session has expired", broker_id)

    def _excuse_delay(self, leadership: _Leadership) -> None:
        """Heartbeats wait for the same event loop, and for the same decisions: if a check is late,
        so are they.
        """
        now_ms = self._clock.mono_ms()
        late_ms = now_ms - leadership.checked_at_ms - self._check_interval_ms
        leadership.checked_at_ms = now_ms
        if late_ms > self._check_interval_ms:
            self._controller.sessions.excuse(late_ms, now_ms)

    async def _elect(self, leadership: _Leadership, decide_it: Decide) -> None:
        await leadership.turns.after_requests()
        await self._decide_about_all(leadership, decide_it)

    async def _decide_about_all(
        self, leadership: _Leadership, decide_it: Decide, *, is_alone: bool = False
    ) -> Any:
        """Returns the response. At once if there are few partitions."""
        self._check_leads(leadership)
        if self.image.partition_counts.total > PARTITIONS_AT_ONCE:
            done = await self._make_large(leadership, decide_it, is_alone=is_alone)
            return done.response
        decision = decide_it(self._decision_context())
        self._append(decision)
        return decision.response


def _outcome(error: KafkaError, *, has_appended: bool) -> KafkaError:
    """The error to report. NOT_CONTROLLER makes brokers repeat the request, so it must not be
    reported once records may survive in the next leader's log.
    """
    return _MayHappenError() if has_appended and error.code is ErrorCode.NOT_CONTROLLER else error


def _is_unfenced(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.is_fenced


def _pieces(decision: Decision[Message, Any]) -> Iterator[Sequence[Message]]:
    """Each is a batch of the log. Only an atomic decision is one batch, however large it is."""
    records = decision.records
    step = len(records) if decision.is_atomic else _RECORDS_IN_PIECE
    for start in range(0, len(records), max(step, 1)):
        yield records[start : start + step]
