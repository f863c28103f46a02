"""Runs the quorum machine over the metadata log: performs its effects, feeds the results back to
it, and hands committed batches to the listeners. Appends are pipelined; one sync covers all
appends before it.
"""

import asyncio
import contextlib
import heapq
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import NamedTuple

from moldau.broker.node.bootstrap import read_bootstrap_records
from moldau.broker.quorum.configuration import (
    check_alone,
    configured_voters,
    local_voter,
    new_machine,
)
from moldau.broker.quorum.listener import QuorumListener
from moldau.broker.quorum.metadata_log import MetadataLog, MetadataLogError, quorum_changes
from moldau.broker.quorum.quorum_network import NoNetwork, QuorumNetwork
from moldau.broker.quorum.snapshots import SnapshotId
from moldau.broker.quorum.upkeep import Upkeep
from moldau.broker.quorum.waiting_requests import WaitingRequests
from moldau.broker.replicas.disk_threads import DiskThreads
from moldau.broker.replicas.flush_rounds import FlushRounds
from moldau.config.broker import BrokerConfig
from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.levels import encode_records, level_after
from moldau.core.metadata.loader import CommittedBatch
from moldau.core.metadata.snapshot_file import SnapshotHead, metadata_batch, metadata_records
from moldau.core.quorum.control_values import ControlValues, version_values, voters_values
from moldau.core.quorum.events import (
    AppendControlBatch,
    Appended,
    Commit,
    Effect,
    Event,
    Fail,
    Flushed,
    LeaderChanged,
    Noted,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    Send,
    SnapshotMade,
    Started,
    StartEpoch,
    Stopping,
    StoreElection,
    TimePassed,
    UpgradeRequested,
    WriteRefused,
)
from moldau.core.quorum.machine import QuorumMachine, QuorumStatus
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.rpc import Leadership, Request, Response
from moldau.core.quorum.voters import RECONFIGURABLE_FROM, VoterEndpoint, VoterSet
from moldau.net.chance import SYSTEM_CHANCE
from moldau.net.clock import Clock, Timer
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MalformedRequestError, MoldauError
from moldau.protocol.records.control_records import ControlType, OffsetAndEpoch, control_batch
from moldau.protocol.wire.schema import Message
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.log.state import LogState
from moldau.types import BrokerId, LeaderEpoch, Offset

_log = logging.getLogger(__name__)

_PENDING_BATCHES_MAX = 10_000


class _Constant(NamedTuple):
    current: BrokerConfig


class _Started(NamedTuple):
    log: MetadataLog
    machine: QuorumMachine


class _Pending(NamedTuple):
    batch: CommittedBatch
    size_bytes: int


class QuorumNode:
    def __init__(
        self,
        directory: LogDirectory,
        config: BrokerConfig,
        clock: Clock,
        on_failure: Callable[[str], None] = lambda _reason: None,
        *,
        chance: Random = SYSTEM_CHANCE,
        network: QuorumNetwork | None = None,
    ) -> None:
        """`directory` is the one of the metadata log and remains open. `on_failure` is called once,
        with a one-line reason, when this node can no longer keep metadata.
        """
        self.failure: str | None = None
        self.committed_bytes = 0
        self._directory = directory
        self._config = config
        self._clock = clock
        self._on_failure = on_failure
        self._chance = chance
        self._listeners: list[QuorumListener] = []
        self.flush_rounds = FlushRounds(clock, _Constant(config), self._flushed, self._flush_failed)
        self._disk = DiskThreads([directory])
        self._started: _Started | None = None
        self._is_stopping = False
        self._refusal: KafkaError | None = None  # of the last control batch
        self._level: int | None = None
        self._next_offset = 0
        self._pending: deque[_Pending] = deque()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tie_breaker = count()
        self.last_append_ms = 0.0
        self._wake_up: Timer | None = None
        self._network = network or NoNetwork()
        self._requests = WaitingRequests(self._step)
        self._upkeep = Upkeep(self, clock, config.metadata_max_idle_interval_ms)

    # Queries

    @property
    def log(self) -> MetadataLog:
        assert self._started is not None, "the quorum node was not started"
        return self._started.log

    @property
    def _machine(self) -> QuorumMachine:
        assert self._started is not None, "the quorum node was not started"
        return self._started.machine

    @property
    def is_leader(self) -> bool:
        """True once it may append: everything before its epoch is known."""
        is_running = self._started is not None and self.failure is None
        return is_running and self._machine.is_leader and self.high_watermark >= 0

    @property
    def leader_id(self) -> BrokerId:
        return self._machine.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._machine.epoch

    @property
    def high_watermark(self) -> int:
        """The first offset that is not committed; -1 if it is not known yet."""
        return self._machine.high_watermark

    @property
    def last_offset(self) -> int:
        """Offset of the last record that was appended, committed or not."""
        return self.log.log.log_end_offset - 1

    @property
    def kraft_version(self) -> int:
        return self._machine.kraft_version

    @property
    def voters(self) -> VoterSet:
        return self._machine.voters

    @property
    def is_voter(self) -> bool:
        return self._machine.local.key in self._machine.voters

    @property
    def leadership(self) -> Leadership:
        return self._machine.leadership

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """Host and port of the active controller, on the first of its listeners."""
        for endpoint in self.leadership.endpoints:
            if endpoint.listener == self._config.controller_names[0]:
                return endpoint.host, endpoint.port
        return None

    @property
    def has_metadata_version(self) -> bool:
        """False until the cluster's first records are in the log."""
        return self._level is not None

    def describe(self) -> QuorumStatus:
        """The status for DescribeQuorum."""
        return self._machine.status(self._clock.mono_ms(), self._clock.wall_ms())

    def bootstrap_records(self) -> list[Message]:
        """The first records of a cluster whose log is empty, as formatting wrote them."""
        return read_bootstrap_records(self._directory)

    # Starting and stopping

    def add_listener(self, listener: QuorumListener) -> None:
        assert self._started is None, "listeners are added before the start"
        self._listeners.append(listener)

    async def start(self, endpoints: Sequence[VoterEndpoint] | None = None) -> None:
        """Loads the log, takes leadership, and delivers everything that was ever committed to the
        listeners. `endpoints`: the controller's, if the settings do not contain them.
        """
        self._directory.on_failure(self._directory_failed)
        try:
            log = MetadataLog.open(
                self._directory, self._config, self.flush_rounds.flusher, self._clock.wall_ms()
            )
            changes = log.quorum_changes()
            local = local_voter(self._config, self._directory, endpoints)
            machine = new_machine(self._config, local, log, self._chance)
            self._started = _Started(log, machine)
            check_alone(local.key, configured_voters(self._config), changes)
            self._load_snapshot(log.start.image)
            self._network.start(self._step)
            first_offset = log.log.log_end_offset
            self._step_or_refuse(Started(election=log.read_election(), changes=changes))
            await self.wait_committed(first_offset)
        except BaseException:
            await self.stop()
            raise
        self._upkeep.start()

    def _load_snapshot(self, image: MetadataImage) -> None:
        self._level = image.metadata_version
        self._next_offset = image.offset + 1
        if image.offset >= 0:
            for listener in self._listeners:
                listener.on_snapshot(image)

    async def stop(self) -> None:
        """Commits what was appended, then resigns. May be called twice."""
        self._upkeep.stop()
        if self._wake_up is not None:
            self._wake_up.cancel()
        if self._started is None:
            return
        if self.failure is None and self._machine.is_leader:
            # A disk that fails now has reported it; there is nothing more to save.
            with contextlib.suppress(KafkaError):
                await self.wait_committed(self.last_offset)
            self._step(Stopping())
        self._is_stopping = True
        self._requests.refuse_all(self._not_leading())
        await self._network.close()
        await self.flush_rounds.stop()
        await self._disk.stop()
        self._refuse_waiting()
        try:
            self.log.close()
        except KafkaError as error:
            _log.warning("the metadata log is checked at the next start: %s", error)

    # Appending

    def append(self, records: Sequence[Message], now_ms: int) -> int:
        """Returns the last offset of the records, which are now in the log as one batch and not
        committed yet. Raises KafkaError if this node is not the leader, if the records exceed a
        batch, or if the disk refuses them; then the log is unchanged.
        """
        self._check_may_append()
        encoded = encode_records(records, self._level)
        position = OffsetAndEpoch(self.log.log.log_end_offset, self.leader_epoch)
        content = metadata_batch(encoded, position, now_ms)
        bytes_max = self._config.internal_metadata_max_batch_size_in_bytes
        if len(content) > bytes_max:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{len(records)} metadata records need {len(content)} bytes in one batch, "
                f"{bytes_max} are allowed",
            )
        self._write(content, position, now_ms, records)
        self._level = level_after(records, self._level)
        self._step(Appended(Offset(self.log.log.log_end_offset)))
        return self.last_offset

    def raise_kraft_version(self, level: int) -> None:
        """Appends the records by which the log defines the voters from now on. Not committed yet;
        raises the errors of `append`.
        """
        self._check_may_append()
        self._machine.check_upgrade(level)
        self._step_or_refuse(UpgradeRequested(level))
        _log.info("kraft.version is %s: the metadata log defines the voters", level)

    def _check_may_append(self) -> None:
        if not self.is_leader:
            raise self._not_leading()
        if len(self._pending) >= _PENDING_BATCHES_MAX:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the disk of the metadata log cannot keep up"
            )

    def _write(
        self, content: bytes, position: OffsetAndEpoch, now_ms: int, records: Sequence[Message]
    ) -> None:
        self.log.append(content, position.partition_leader_epoch, now_ms)
        last_offset = self.log.log.log_end_offset - 1
        batch = CommittedBatch(
            position.base_offset, last_offset, position.partition_leader_epoch, now_ms, records
        )
        self._pending.append(_Pending(batch, len(content)))
        self.last_append_ms = self._clock.mono_ms()

    async def wait_committed(self, offset: int) -> None:
        """Waits until the record at `offset` is committed and delivered to the listeners. Raises
        KafkaError if this node loses leadership before that.
        """
        if offset < self.high_watermark:
            return
        if self.failure is not None or not self._machine.is_leader:
            raise self._not_leading()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._tie_breaker), done))
        await done

    async def answer(self, request: Request) -> Response:
        """The response to another node. Raises KafkaError if this node stops or has failed."""
        if self.failure is not None or self._started is None or self._is_stopping:
            raise self._not_leading()
        return await self._requests.answer(request)

    def make_room(self) -> bool:
        """Spends the reserve of a full disk, so that a record that frees more can be written."""
        return self._directory.reserve.release()

    # Performing the machine's effects

    def _step(self, event: Event) -> None:
        machine = self._machine
        effects = machine.step(event, self._clock.mono_ms())
        answers = [answer for effect in effects if (answer := self._do(effect))]
        for answer in answers:
            self._step(answer)
        self._schedule_wake(machine.wake_ms)

    def _step_or_refuse(self, event: Event) -> None:
        """Raises the KafkaError with which the log refused what the event made necessary."""
        self._refusal = None
        self._step(event)
        if self._refusal is not None:
            raise self._refusal

    def _schedule_wake(self, wake_ms: float) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
        if wake_ms < float("inf"):
            delay_ms = wake_ms - self._clock.mono_ms()
            self._wake_up = self._clock.call_later(delay_ms, lambda: self._step(TimePassed()))

    def _do(self, effect: Effect) -> Event | None:
        match effect:
            case StoreElection(election):
                self.log.write_election(election, self.kraft_version, self._machine.voters)
            case StartEpoch(epoch):
                self.log.log.start_leader_epoch(epoch)
            case AppendControlBatch(epoch, values):
                return self._append_control_batch(epoch, values)
            case Commit(high_watermark):
                self.log.log.raise_high_watermark(high_watermark)
                self._deliver(high_watermark)
            case LeaderChanged(epoch, leader_id):
                for listener in self._listeners:
                    listener.on_leader_change(epoch, leader_id)
            case Send(destination, correlation, request):
                self._network.send(destination, correlation, request)
            case Respond() | RespondWithRecords() | RespondWithSnapshot():
                self._requests.perform(effect, self.log)
            case _:
                self._report(effect)
        return None

    def _report(self, effect: Effect) -> None:
        match effect:
            case Noted(text):
                _log.debug("metadata quorum: %s", text)
            case Fail(reason):
                self._fail(reason)
            case _:
                raise AssertionError(f"a quorum of one node never needs {effect}")

    def _append_control_batch(self, epoch: LeaderEpoch, values: ControlValues) -> Event:
        now_ms = self._clock.wall_ms()
        position = OffsetAndEpoch(self.log.log.log_end_offset, epoch)
        try:
            self._write(control_batch(values, position, now_ms), position, now_ms, ())
        except KafkaError as error:
            self._refusal = error
            return WriteRefused(str(error))
        changes = quorum_changes(values, Offset(position.base_offset))
        return Appended(Offset(self.log.log.log_end_offset), changes)

    def _flushed(self, log: LogState) -> None:
        if self.failure is None:
            self._step(Flushed(log.flushed_offset))
            self._complete_waiting()

    def _flush_failed(self, _log_state: LogState, error: Exception) -> None:
        reason = str(error)
        if not isinstance(error, MoldauError):
            reason = f"a listener could not follow the metadata log, or a flush failed: {error!r}"
            _log.error("the metadata log was not flushed or not followed", exc_info=error)
        self._fail(reason)

    def _deliver(self, high_watermark: int) -> None:
        """Delivers earlier batches from the disk, and this node's own from memory."""
        if self._pending and self._next_offset < self._pending[0].batch.base_offset:
            self._deliver_stored(self._pending[0].batch.base_offset)
        while self._pending and self._pending[0].batch.last_offset < high_watermark:
            pending = self._pending.popleft()
            self._deliver_one(pending.batch, pending.size_bytes)
        for listener in self._listeners:
            listener.on_commits_end()

    def _deliver_stored(self, end: int) -> None:
        for batch in self.log.batches(self._next_offset, end):
            try:
                records = [] if batch.is_control else metadata_records(batch)
            except (KafkaError, MalformedRequestError) as error:
                raise MetadataLogError(
                    f"{self.log.path}: the batch at offset {batch.base_offset} "
                    f"cannot be decoded: {error}"
                ) from error
            committed = CommittedBatch(
                batch.base_offset,
                batch.last_offset,
                batch.partition_leader_epoch,
                batch.max_timestamp,
                records,
            )
            self._level = level_after(records, self._level)
            self._deliver_one(committed, batch.size_in_bytes)

    def _deliver_one(self, batch: CommittedBatch, size_bytes: int) -> None:
        self._next_offset = batch.last_offset + 1
        self.committed_bytes += size_bytes
        for listener in self._listeners:
            listener.on_committed(batch)

    # Waiting callers

    def _complete_waiting(self) -> None:
        while self._waiting and self._waiting[0][0] < self.high_watermark:
            done = heapq.heappop(self._waiting)[2]
            if not done.done():
                done.set_result(None)

    def _refuse_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, done in waiting:
            if not done.done():
                done.set_exception(self._not_leading())

    def _not_leading(self) -> KafkaError:
        if self.failure is not None:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        return KafkaError(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum")

    def _directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        self._fail(f"{directory.path}, which has the metadata log, failed: {error.strerror}")

    def _fail(self, reason: str) -> None:
        """Stops appending and delivering. Listeners keep what they have."""
        if self.failure is None:
            self.failure = reason
            self._refuse_waiting()
            self._on_failure(reason)

    # Snapshots

    def snapshot_head(self, image: MetadataImage) -> SnapshotHead | None:
        """The head of a snapshot of this image; None if it cannot be made: the snapshot exists, or
        the image ends inside a batch.
        """
        end = image.offset + 1
        exists = SnapshotId(image.epoch, end) in self.log.snapshots.ids
        if exists or not self.log.is_batch_start(end):
            return None
        values: tuple[tuple[ControlType, bytes], ...] = ()
        version = self._machine.kraft_version_at(Offset(image.offset))
        voters = self._machine.voters_at(Offset(image.offset))
        if version >= RECONFIGURABLE_FROM and voters is not None:
            values = version_values(version) + voters_values(voters)
        return SnapshotHead(
            epoch=image.epoch, timestamp_ms=image.timestamp_ms, control_values=values
        )

    def snapshot_made(self, snapshot_id: SnapshotId) -> None:
        position = LogPosition(LeaderEpoch(snapshot_id.epoch), Offset(snapshot_id.offset))
        self._step(SnapshotMade(position))
