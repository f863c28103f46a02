"""One node of the metadata quorum: the interface for the rest of the broker. The machine decides,
`machine_driver` keeps the order, `effects` performs. Appends are pipelined: one sync covers all
appends before it.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from moldau.broker.node.bootstrap import read_bootstrap_records
from moldau.broker.quorum.committed_batches import CommittedBatches
from moldau.broker.quorum.configuration import flush_settings, local_voter, new_machine
from moldau.broker.quorum.effects import Effects, QuorumParts
from moldau.broker.quorum.leader_appends import LeaderAppends
from moldau.broker.quorum.leadership import Leadership
from moldau.broker.quorum.listener import QuorumListener
from moldau.broker.quorum.machine_driver import MachineDriver, Outcome
from moldau.broker.quorum.measurements import Measurements
from moldau.broker.quorum.metadata_log import MetadataLog, OpenedLog, open_metadata
from moldau.broker.quorum.quorum_network import NoNetwork, QuorumNetwork
from moldau.broker.quorum.snapshots import SnapshotId
from moldau.broker.quorum.upkeep import Upkeep
from moldau.broker.quorum.waiting_requests import WaitingRequests
from moldau.broker.records.cold_reads import ColdReads
from moldau.broker.replicas.disk_threads import DiskThreads
from moldau.broker.replicas.flush_rounds import FlushRounds
from moldau.broker.replicas.log_loading import opening_logs
from moldau.config.broker import BrokerConfig
from moldau.core.metadata.image import MetadataImage
from moldau.core.metadata.snapshot_file import SnapshotHead
from moldau.core.quorum import rpc
from moldau.core.quorum.control_values import ControlValues, version_values, voters_values
from moldau.core.quorum.events import (
    Appended,
    Flushed,
    ResignRequested,
    SnapshotMade,
    Started,
    Stopping,
    UpgradeRequested,
)
from moldau.core.quorum.machine import QuorumMachine, QuorumStatus
from moldau.core.quorum.positions import LogPosition
from moldau.core.quorum.rpc import Request, Response
from moldau.core.quorum.voters import RECONFIGURABLE_FROM, VoterEndpoint, VoterSet
from moldau.net.chance import SYSTEM_CHANCE
from moldau.net.clock import Clock
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.wire.schema import Message
from moldau.storage.directory.directory import LogDirectory
from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.failures import DiskFullError
from moldau.storage.log.state import LogState
from moldau.types import NO_LEADER, BrokerId, LeaderEpoch, Offset

_log = logging.getLogger(__name__)

_COMMIT_MS = 2_000
# As in Kafka: a stop does not wait longer for a successor.
_RESIGN_MS = 5_000


class _Constant(NamedTuple):
    """The quorum keeps the settings that the node started with."""

    current: BrokerConfig


class _Running(NamedTuple):
    parts: QuorumParts
    effects: Effects
    driver: MachineDriver


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
        self.measurements = Measurements(clock)
        self._directory = directory
        self._config = config
        self._clock = clock
        self._on_failure = on_failure
        self._chance = chance
        self._network = network or NoNetwork()
        self._listeners: list[QuorumListener] = []
        settings = _Constant(flush_settings(config))
        self.flush_rounds = FlushRounds(clock, settings, self._flushed, self._flush_failed)
        self._disk = DiskThreads([directory])
        self._cold_reads = ColdReads()
        self._running: _Running | None = None
        """None before the start."""
        self._has_resigned = False
        self._is_stopping = False
        self._upkeep = Upkeep(self, clock, config.metadata_max_idle_interval_ms)

    # Queries

    @property
    def parts(self) -> QuorumParts:
        assert self._running is not None, "the quorum node was not started"
        return self._running.parts

    @property
    def log(self) -> MetadataLog:
        return self.parts.log

    @property
    def _machine(self) -> QuorumMachine:
        return self.parts.machine

    @property
    def _driver(self) -> MachineDriver:
        assert self._running is not None, "the quorum node was not started"
        return self._running.driver

    @property
    def is_leader(self) -> bool:
        """True once it may append: everything before its epoch was delivered."""
        if self._running is None or self.failure is not None:
            return False
        is_leader = self._machine.is_leader
        return is_leader and self.parts.leadership.leading == self._machine.epoch

    @property
    def leader_id(self) -> BrokerId:
        return self._machine.leader_id

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self._machine.epoch

    @property
    def leadership(self) -> rpc.Leadership:
        """The leader that this node knows of, with its addresses."""
        return rpc.UNKNOWN_LEADERSHIP if self._running is None else self._machine.leadership

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """Host and port of the active controller, on the first of its listeners."""
        for endpoint in self.leadership.endpoints:
            if endpoint.listener == self._config.controller_names[0]:
                return endpoint.host, endpoint.port
        return None

    @property
    def voters(self) -> VoterSet:
        return self._machine.voters

    @property
    def is_voter(self) -> bool:
        return self._machine.local.key in self._machine.voters

    @property
    def high_watermark(self) -> int:
        """The first offset that is not committed; -1 if it is not known yet."""
        return self._machine.high_watermark

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record that was appended, committed or not."""
        return Offset(self.log.log.log_end_offset - 1)

    @property
    def kraft_version(self) -> int:
        return self._machine.kraft_version

    @property
    def has_metadata_version(self) -> bool:
        """False until the cluster's first records are in the log."""
        return self.parts.appends.level is not None

    @property
    def last_append_ms(self) -> float:
        """When this node last appended, in the time of the monotonic clock."""
        return self.parts.appends.last_ms

    @property
    def committed_bytes(self) -> int:
        """Size of all batches that listeners have received since the start."""
        return self.parts.batches.size_bytes

    @property
    def busy_ms(self) -> float:
        """Time for which the quorum has held the event loop."""
        return self._driver.busy_ms

    def describe(self) -> QuorumStatus:
        """The status for DescribeQuorum."""
        return self._machine.status(self._clock.mono_ms(), self._clock.wall_ms())

    def bootstrap_records(self) -> list[Message]:
        """The first records of a cluster whose log is empty, as formatting wrote them."""
        return read_bootstrap_records(self._directory)

    # Starting and stopping

    def add_listener(self, listener: QuorumListener) -> None:
        assert self._running is None, "listeners are added before the start"
        self._listeners.append(listener)

    async def start(self, endpoints: Sequence[VoterEndpoint] | None = None) -> None:
        """Loads the log and takes part in the quorum from now on, which may have no leader yet:
        `wait_for_leader`. `endpoints`: the controller's, if the settings do not contain them.
        """
        self._directory.on_failure(self._directory_failed)
        try:
            opened = await self._open()
            self._start(opened, endpoints)
        except BaseException:
            await self.stop()
            raise
        self._upkeep.start()

    async def _open(self) -> OpenedLog:
        """In a thread: a large log takes seconds."""
        now_ms, found = self._clock.wall_ms(), list[OpenedLog]()

        def open_log() -> None:
            found.append(
                open_metadata(self._directory, self._config, self.flush_rounds.flusher, now_ms)
            )
            for listener in self._listeners:
                listener.prepare_snapshot(found[0].image)

        try:
            await opening_logs(open_log, [self._directory], self.flush_rounds)
        except BaseException:
            for opened in found:
                opened.log.log.abandon()
            raise
        return found[0]

    def _start(self, opened: OpenedLog, endpoints: Sequence[VoterEndpoint] | None) -> None:
        log = opened.log
        local = local_voter(self._config, self._directory, endpoints)
        machine = new_machine(self._config, local, log, self._chance)
        self._running = self._assemble(log, machine)
        self.parts.batches.load(opened.image)
        self._network.start(self._driver.feed)
        self._driver.start(Started(election=opened.election, changes=opened.changes))

    def _assemble(self, log: MetadataLog, machine: QuorumMachine) -> _Running:
        config, clock = self._config, self._clock
        measurements = self.measurements
        batches = CommittedBatches(
            log, self._cold_reads, measurements, clock, self._listener_failed
        )
        batches.listeners += self._listeners
        bytes_max = config.internal_metadata_max_batch_size_in_bytes
        appends = LeaderAppends(log, batches, clock, measurements, bytes_max)
        node_id = machine.local.key.node_id
        leadership = Leadership(
            node_id,
            batches,
            appends,
            lambda epoch: machine.is_leader and machine.epoch == epoch,
            self._activation_failed,
        )
        requests = WaitingRequests(self._cold_reads)
        parts = QuorumParts(
            log=log,
            machine=machine,
            batches=batches,
            appends=appends,
            leadership=leadership,
            requests=requests,
            network=self._network,
            clock=clock,
            measurements=measurements,
        )
        effects = Effects(parts, self._not_leading)
        driver = MachineDriver(
            machine, clock, effects.perform, self._run_steps, effects.may_repeat, self._broken
        )
        return _Running(parts, effects, driver)

    async def _run_steps(self, steps: Steps[Outcome]) -> Outcome:
        return await self._disk.run(self._directory, steps)

    async def wait_for_leader(self) -> None:
        """Waits until this node knows who leads; if it does, until it may append. The caller bounds
        the wait. Raises KafkaError if this node fails or stops.
        """
        if self.failure is not None or self._is_stopping:
            raise self._not_leading()
        is_known = self.leader_id != NO_LEADER
        if not (self.is_leader if self._machine.is_leader else is_known):
            await self.parts.leadership.wait()

    async def resign(self) -> None:
        """Commits what was appended, then resigns and waits for a successor, for a few seconds at
        most. It answers other nodes until `stop`, and is not elected again.
        """
        self._upkeep.stop()
        if self._running is None or self._has_resigned or self.failure is not None:
            return
        self._has_resigned = True
        # A disk that fails now has reported it; there is nothing more to save.
        with contextlib.suppress(KafkaError, TimeoutError):
            async with self._clock.timeout(_COMMIT_MS):
                batches = self.parts.batches
                while self._machine.is_leader and batches.next_offset <= self.last_offset:
                    await self.wait_committed(self.last_offset)
        # Also without a majority for these records: others may have one.
        self._driver.feed(Stopping())
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(_RESIGN_MS):
                await self._driver.wait_until(lambda: self._machine.may_stop)

    async def stop(self) -> None:
        """Resigns first. May be called twice."""
        await self.resign()
        self._is_stopping = True
        await self._network.close()
        if self._running is not None:
            await self._end(self._running)
        await self.flush_rounds.stop()
        await self._disk.stop()
        self._cold_reads.close()
        if self._running is not None:
            try:
                self.log.close()
            except KafkaError as error:
                _log.warning("the metadata log is checked at the next start: %s", error)

    async def _end(self, running: _Running) -> None:
        parts = running.parts
        running.driver.stop()
        self._refuse_waiting()
        await running.driver.wait()
        running.effects.close()
        await parts.requests.stop()
        await parts.batches.stop()

    # Appending

    def append(
        self, records: Sequence[Message], now_ms: int, *, frees_disk: bool = False
    ) -> Offset:
        """Returns the last offset of the records, which are now in the log as one batch and not
        committed yet. Raises KafkaError if this node is not the leader, if the records exceed a
        batch, or if the disk refuses them; then the log is unchanged. `frees_disk`: on a full disk
        they may use the reserve, since they let more space be freed.
        """
        self._check_leads()
        appends, epoch = self.parts.appends, self.leader_epoch
        try:
            try:
                appends.append(records, epoch, now_ms)
            except DiskFullError:
                if not frees_disk or not self._directory.reserve.release():
                    raise
                appends.append(records, epoch, now_ms)
        except DiskFullError as error:
            self._resign_if_possible(self._machine.epoch, error)
            raise
        last_offset = self.last_offset
        self._driver.log_changed(Appended(Offset(last_offset + 1)))
        return last_offset

    def raise_kraft_version(self, level: int) -> None:
        """Appends the records by which the log defines the voters from now on. Not committed yet;
        raises the errors of `append`.
        """
        self._check_leads()
        assert self._running is not None
        assert not self._driver.is_busy, "a leader waits for no disk"
        self._machine.check_upgrade(level)
        effects = self._running.effects
        effects.refusal = None
        self._driver.feed(UpgradeRequested(level))
        if effects.refusal is not None:
            raise effects.refusal
        _log.info("kraft.version is %s: the metadata log defines the voters", level)

    def _check_leads(self) -> None:
        if not self.is_leader:
            raise self._not_leading()

    async def wait_committed(self, offset: int) -> None:
        """Waits until the record at `offset` is committed and delivered to the listeners. Raises
        KafkaError if this node loses leadership before that.
        """
        batches = self.parts.batches
        is_expected = self.failure is None and not self._is_stopping and self._machine.is_leader
        if is_expected or offset < batches.next_offset:
            await batches.wait(offset)
        else:
            raise self._not_leading()

    # Other nodes

    async def answer(self, request: Request) -> Response:
        """The response to another node. Raises KafkaError if this node stops or has failed."""
        if self.failure is not None or self._running is None or self._is_stopping:
            raise self._not_leading()
        return await self.parts.requests.answer(request, self._driver.feed)

    # Failures

    def _flushed(self, log: LogState) -> None:
        if self._running is not None:
            self._driver.feed(Flushed(log.flushed_offset))

    def _flush_failed(self, _log_state: LogState, error: Exception) -> None:
        _log.error("the metadata log was not flushed", exc_info=error)
        self._fail(f"the metadata log was not flushed: {error}")

    def _listener_failed(self, error: Exception) -> None:
        reason = str(error)
        if not isinstance(error, MoldauError):
            reason = f"a listener could not follow the metadata log: {error!r}"
            _log.error("the metadata log was not followed", exc_info=error)
        self._fail(reason)

    def _broken(self, error: Exception) -> None:
        reason = str(error)
        if not isinstance(error, MoldauError):
            reason = f"the metadata quorum failed unexpectedly: {error!r}"
            _log.error("the metadata quorum failed", exc_info=error)
        self._fail(reason)

    def _directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        self._fail(f"{directory.path}, which has the metadata log, failed: {error.strerror}")

    def _activation_failed(self, epoch: LeaderEpoch, error: KafkaError) -> None:
        if not self._resign_if_possible(epoch, error):
            self._fail(str(error))

    def _resign_if_possible(self, epoch: LeaderEpoch, error: KafkaError) -> bool:
        """Another voter may be able to do what this leader is not."""
        if self.voters.is_only(self._machine.local.key):
            return False
        _log.warning("this node resigns as the leader of epoch %s: %s", epoch, error)
        self._driver.feed(ResignRequested(epoch))
        return True

    def _fail(self, reason: str) -> None:
        """Stops appending and delivering. Listeners keep what they have."""
        if self.failure is None:
            self.failure = reason
            if self._running is not None:
                self._driver.stop()
                self._refuse_waiting()
            self._on_failure(reason)

    def _refuse_waiting(self) -> None:
        error = self._not_leading()
        self.parts.batches.refuse_waiting(error)
        self.parts.leadership.refuse_waiting(error)
        self.parts.requests.refuse_all(error)

    def _not_leading(self) -> KafkaError:
        if self.failure is not None:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)
        return KafkaError(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum")

    # Snapshots

    def store_recovery_point(self) -> None:
        """Begins to. Not while the log is truncated."""
        self._disk.begin(self._directory, self.log.storing_recovery_point())

    def snapshot_head(self, image: MetadataImage) -> SnapshotHead | None:
        """The head of a snapshot of this image; None if it cannot be made: the snapshot exists, or
        the image ends inside a batch, as while a transaction is open. Followers read from its end.
        """
        end, log = image.offset + 1, self.log
        is_start = end == self.parts.batches.next_offset
        if not (is_start or log.is_batch_start(end, self._cold_reads.reads())):
            return None
        if SnapshotId(image.epoch, end) in log.snapshots.ids:
            return None
        values: ControlValues = ()
        version = self._machine.kraft_version_at(image.offset)
        voters = self._machine.voters_at(image.offset)
        if version >= RECONFIGURABLE_FROM and voters is not None:
            values = version_values(version) + voters_values(voters)
        return SnapshotHead(
            epoch=image.epoch, timestamp_ms=image.timestamp_ms, control_values=values
        )

    def snapshot_made(self, snapshot_id: SnapshotId) -> None:
        position = LogPosition(LeaderEpoch(snapshot_id.epoch), Offset(snapshot_id.offset))
        self._driver.feed(SnapshotMade(position))
