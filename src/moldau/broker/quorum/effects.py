"""Performs what the quorum machine wants done: on the log, on the network, for the listeners."""

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from moldau.broker.quorum.committed_batches import CommittedBatches
from moldau.broker.quorum.leader_appends import LeaderAppends
from moldau.broker.quorum.leadership import Leadership
from moldau.broker.quorum.log_start import MetadataLogError
from moldau.broker.quorum.machine_driver import Outcome
from moldau.broker.quorum.measurements import Measurements
from moldau.broker.quorum.metadata_log import MetadataLog
from moldau.broker.quorum.quorum_network import QuorumNetwork
from moldau.broker.quorum.snapshot_transfer import SnapshotTransfer
from moldau.broker.quorum.waiting_requests import WaitingRequests
from moldau.core.quorum.control_values import ControlValues
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
    InstallSnapshot,
    LeaderChanged,
    Noted,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    Send,
    SnapshotInstalled,
    StartEpoch,
    StoreElection,
    Truncated,
    TruncateLog,
    WriteRefused,
)
from moldau.core.quorum.machine import QuorumMachine
from moldau.core.quorum.positions import LogPosition
from moldau.net.clock import Clock
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.storage.disk.disk_steps import Steps
from moldau.storage.disk.failures import DiskFullError, NoDescriptorError
from moldau.types import LeaderEpoch, Offset

_log = logging.getLogger(__name__)

OnDisk: TypeAlias = (
    StoreElection
    | StartEpoch
    | AppendControlBatch
    | AppendFetched
    | TruncateLog
    | InstallSnapshot
    | BeginSnapshot
    | AppendSnapshot
    | DropSnapshot
)


class QuorumParts(NamedTuple):
    """The parts of a running node of the quorum."""

    log: MetadataLog
    machine: QuorumMachine
    batches: CommittedBatches
    appends: LeaderAppends
    leadership: Leadership
    requests: WaitingRequests
    network: QuorumNetwork
    clock: Clock
    measurements: Measurements


class Effects:
    def __init__(self, parts: QuorumParts, not_leading: Callable[[], KafkaError]) -> None:
        """`not_leading` makes the error for callers that relied on a leadership which has ended."""
        self.refusal: KafkaError | None = None
        """Why the log refused the last control batch."""
        self._parts = parts
        self._not_leading = not_leading
        self._delayed: Effect | None = None
        """The last one that had to wait for a file descriptor."""
        self._transfer = SnapshotTransfer(parts.log)

    def close(self) -> None:
        self._transfer.close()

    def perform(self, effect: Effect) -> Outcome | Steps[Outcome]:
        """Returns the event that follows, or the steps that return it. Raises MoldauError if the
        effect did not happen, but must have.
        """
        parts = self._parts
        parts.measurements.stepped(parts.machine)
        match effect:
            case Send(destination, correlation, request):
                parts.network.send(destination, correlation, request)
            case Respond() | RespondWithRecords() | RespondWithSnapshot():
                parts.requests.perform(effect, parts.log)
            case Commit(high_watermark):
                parts.log.log.raise_high_watermark(high_watermark)
                parts.batches.commit(high_watermark)
            case LeaderChanged():
                parts.measurements.leader_known(effect.leader_id)
                high_watermark = parts.machine.high_watermark
                parts.leadership.changed(effect, self._not_leading(), high_watermark)
            case Noted(text):
                _log.debug("metadata quorum: %s", text)
            case Fail(reason):
                raise MetadataLogError(reason)
            case _:
                return self._change_disk(effect)
        return None

    def may_repeat(self, effect: Effect, error: Exception) -> bool:
        """No descriptor was free, and what the effect has done so far can be done twice. Until it
        succeeds this node promises nothing: it votes for none, and the others elect a leader
        without it.
        """
        is_repeatable = isinstance(effect, StoreElection | TruncateLog)
        if not is_repeatable or not isinstance(error, NoDescriptorError):
            return False
        if effect is not self._delayed:
            self._delayed = effect
            _log.warning("the metadata quorum waits for a free file descriptor: %s", error.detail)
        self._parts.measurements.delayed_writes += 1
        return True

    def _change_disk(self, effect: OnDisk) -> Outcome | Steps[Outcome]:
        log = self._parts.log
        match effect:
            case StoreElection(election):
                return self._store(election)
            case StartEpoch(epoch):
                log.log.start_leader_epoch(epoch)
                return None
            case AppendControlBatch(epoch, values):
                return self._append_control_batch(epoch, values)
            case AppendFetched(epoch, records):
                return self._append_fetched(epoch, records)
            case TruncateLog(end_offset):
                return self._truncate(end_offset)
            case InstallSnapshot(snapshot):
                return self._install(snapshot)
            case BeginSnapshot() | AppendSnapshot() | DropSnapshot():
                return self._receive(effect)

    def _store(self, election: Election) -> Steps[Outcome]:
        log, machine = self._parts.log, self._parts.machine
        version, voters = machine.kraft_version, machine.voters
        try:
            yield from log.writing_election(election, version, voters)
        except NoDescriptorError:
            raise
        except DiskFullError:
            # Without it this node could not take part in any election.
            if not log.directory.reserve.release():
                raise
            yield from log.writing_election(election, version, voters)
        return None

    # The log

    def _append_control_batch(self, epoch: LeaderEpoch, values: ControlValues) -> Event:
        try:
            changes = self._parts.appends.append_control(epoch, values)
        except KafkaError as error:
            self.refusal = error
            return WriteRefused(str(error))
        return Appended(self._end_offset, changes)

    def _append_fetched(self, epoch: LeaderEpoch, records: bytes) -> Event:
        parts, was = self._parts, self._end_offset
        try:
            changes = parts.log.append_fetched(records, epoch, parts.clock.wall_ms())
        except KafkaError as error:
            _log.warning("records of the leader of epoch %s were refused: %s", epoch, error)
            return WriteRefused(str(error))
        parts.measurements.records_fetched += self._end_offset - was
        return Appended(self._end_offset, changes)

    def _truncate(self, end_offset: Offset) -> Steps[Outcome]:
        parts = self._parts
        was = self._end_offset
        yield from parts.log.truncating(end_offset, parts.clock.wall_ms())
        _log.info(
            "records from offset %d to %d were never committed: the leader has others",
            self._end_offset,
            was - 1,
        )
        return Truncated(self._end_offset)

    @property
    def _end_offset(self) -> Offset:
        return Offset(self._parts.log.log.log_end_offset)

    # Snapshots

    def _receive(self, effect: BeginSnapshot | AppendSnapshot | DropSnapshot) -> Steps[Outcome]:
        try:
            yield from self._transfer.performing(effect)
        except DiskFullError as error:
            return WriteRefused(str(error))
        return None

    def _install(self, snapshot: LogPosition) -> Steps[Outcome]:
        parts = self._parts
        try:
            snapshot_id = yield from self._transfer.finishing(snapshot)
            loaded = yield from parts.log.completing_snapshot(snapshot_id)
        except MoldauError as error:
            _log.warning("the leader's snapshot at %d was refused: %s", snapshot.offset, error)
            return WriteRefused(str(error))
        yield from parts.log.starting_over(snapshot_id, parts.clock.wall_ms())
        _log.info("the metadata log continues after the leader's %s", snapshot_id.file_name)
        yield lambda: parts.batches.prepare(loaded.image)
        parts.batches.load(loaded.image)
        return SnapshotInstalled(snapshot, loaded.changes)
