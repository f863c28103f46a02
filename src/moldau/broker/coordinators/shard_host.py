"""One shard of a coordinator: it is loaded from its partition's log, and then performs the effects
of the shard's turns. Everything happens in the node's event loop, so turns never interleave.

Decisions that no other decision depends on (offset commits) gather until the loop has read what its
connections have sent, and go into the log as one batch.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, assert_never

from moldau.broker.coordinators.batches import EncodedAppend, PackedBatch, PackLimits, Piece, pack
from moldau.broker.coordinators.timers import KeyedTimers
from moldau.broker.coordinators.verification import VerifiedWriter
from moldau.core.coordinator.effects import (
    AnswerT,
    AnyAppend,
    AnyEffect,
    AnyReply,
    AnyTicket,
    AnyTurn,
    Append,
    Marker,
    Reply,
    Request,
    SequelT,
    StartTimer,
    StopTimer,
    Ticket,
    TimerKey,
    Turn,
    Writer,
)
from moldau.core.coordinator.playback import Decoder, replay_batch
from moldau.core.coordinator.refusals import as_coordinator_error
from moldau.core.coordinator.shard import AnyShard
from moldau.net.loop_holds import measured
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.records.batches import iterate_batches
from moldau.protocol.records.compression import Compression
from moldau.protocol.records.control_records import (
    ControlType,
    EndTransactionMarker,
    MarkerOrigin,
    end_transaction_marker,
)
from moldau.storage.log.append import AppendResult, VerifiedBatch
from moldau.storage.log.read import Isolation
from moldau.storage.producers.state import TRANSACTION_VERSION_UNKNOWN, AppendOrigin
from moldau.types import NO_PRODUCER_ID, Offset
from moldau.unexpected import apart, log_unexpected

if TYPE_CHECKING:
    from moldau.broker.records.cold_reads import ColdReads
    from moldau.broker.replicas.partition import Partition
    from moldau.broker.server.deadlines import Bucket, Deadlines
    from moldau.net.clock import Clock

_log = logging.getLogger(__name__)

LOAD_CHUNK_BYTES = 48 << 10
"""How much is replayed before the event loop runs other tasks."""

_FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Outcomes that are not errors of this broker: the client was late, or leadership has moved."""

ShardT = TypeVar("ShardT", bound=AnyShard)


class HostState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """The log cannot be read. A new leader epoch tries again."""
    CLOSED = "closed"


class HostOptions(NamedTuple):
    commit_timeout_ms: int
    compression: Compression
    linger_ms: int
    """How long decisions may gather; if None, until the event loop has run once."""


class HostServices(NamedTuple):
    clock: "Clock"
    deadlines: "Deadlines"
    cold_reads: "ColdReads"
    options: Callable[[], HostOptions]
    """Called at each use, because settings change."""
    requested: Callable[["ShardHost[Any]", Any], None] | None = None
    """Performs what a shard requests from its coordinator."""


class _Written:
    """Appends that are in the log up to an offset, and wait for its commit."""

    __slots__ = ("deadline", "last_offset", "pieces")

    def __init__(self, pieces: list[Piece], last_offset: Offset) -> None:
        self.pieces = pieces
        self.last_offset = last_offset
        self.deadline: tuple[Bucket, Callable[[], None]] | None = None


class ShardHost(Generic[ShardT]):
    def __init__(
        self,
        shard: ShardT,
        partition: "Partition",
        decode: Decoder,
        services: HostServices,
    ) -> None:
        self.shard = shard
        self.partition = partition
        self.state = HostState.LOADING
        self._leader_epoch = partition.leader_epoch
        self._decode = decode
        self._services = services
        self._timers = KeyedTimers(services.clock, self._timer_fired)
        self._tickets = 0
        self._requests: dict[AnyTicket, asyncio.Future[Any]] = {}
        self._gathered: list[EncodedAppend] = []
        self._written: dict[_Written, None] = {}
        self._decided: deque[tuple[_Written, ErrorCode | None]] = deque()
        """Events that arrived during a turn, and must wait for its end."""
        self._depth = 0
        self._end_offset = 0
        """The log is replayed up to here."""
        self._on_loaded: list[Callable[[], None]] = []
        self._load_ended = asyncio.Event()

    # Loading and unloading

    @property
    def is_empty(self) -> bool:
        """Whether the log is empty, so that loading it takes no time."""
        log = self.partition.log
        return log.log_start_offset == log.log_end_offset

    def continues_leadership(self, partition: "Partition") -> bool:
        """Takes the new epoch. Returns whether it directly follows ours: no other has written."""
        before, self._leader_epoch = self._leader_epoch, partition.leader_epoch
        return (
            self.state in {HostState.LOADING, HostState.ACTIVE}
            and self.partition is partition
            and partition.leader_epoch <= before + 1
        )

    async def load(self) -> None:
        """An unreadable log fails the shard, not the node."""
        clock, name = self._services.clock, self.partition.topic_partition
        started_ms = clock.mono_ms()
        try:
            count = await self._replay_log()
        except MoldauError as error:
            _log.error("%s cannot be loaded: %s", name, error)
        else:
            if self.state is HostState.LOADING:
                self.activate()
                took_ms = clock.mono_ms() - started_ms
                _log.info("%s: %d records loaded in %.0f ms", name, count, took_ms)
        finally:
            if self.state is HostState.LOADING:
                self.state = HostState.FAILED
            self._load_ended.set()

    async def _replay_log(self) -> int:
        count = 0
        read = self._services.cold_reads.read
        offset = self.partition.log.log_start_offset
        while offset < (log := self.partition.log).log_end_offset:
            chunk = await read(log, offset, LOAD_CHUNK_BYTES, isolation=Isolation.LOG_END)
            if self.state is not HostState.LOADING:
                break
            # Compaction may leave nothing at the end of a log.
            offset = chunk.next_offset if chunk.records else log.log_end_offset
            for batch in iterate_batches(chunk.records):
                count += replay_batch(self.shard, batch, self._decode)
            await asyncio.sleep(0)
        return count

    def activate(self) -> None:
        self.state = HostState.ACTIVE
        self._end_offset = self.partition.log.log_end_offset
        self.run(self.shard.loaded)
        for callback in self._on_loaded:
            apart(_log, "a callback that waited for a coordinator", callback)
        self._on_loaded.clear()

    async def wait_loaded(self) -> None:
        """Returns when the shard is loaded, failed or closed."""
        if self.state is HostState.LOADING:
            await self._load_ended.wait()

    def when_loaded(self, callback: Callable[[], None]) -> None:
        """Calls back at once if the shard is loaded, and never if it will not be."""
        if self.state is HostState.ACTIVE:
            callback()
        elif self.state is HostState.LOADING:
            self._on_loaded.append(callback)

    def unload(self) -> None:
        """Leadership has ended: another node coordinates this partition, or none. Waiting requests
        receive an error.
        """
        was_active = self.state is HostState.ACTIVE
        self.state = HostState.CLOSED
        self._load_ended.set()
        self._timers.stop_all()
        gathered, self._gathered = self._gathered, []
        for append, _ in gathered:
            self._refuse(append, ErrorCode.NOT_COORDINATOR)
        for written in list(self._written):
            self._complete(written, ErrorCode.NOT_COORDINATOR)
        if was_active:
            self.run(self.shard.unloaded)
        for ticket in list(self._requests):
            self._answer(Reply(ticket, ErrorCode.NOT_COORDINATOR))
        self._timers.stop_all()

    # Turns

    def run(self, event: Callable[[AnyTurn], AnswerT], *, depends: bool = True) -> AnswerT:
        """Runs one turn. A turn that does not depend on gathered records need not wait for them."""
        with self._in_turn():
            if depends:
                self._flush_gathered()
            turn: AnyTurn = Turn(self._services.clock.wall_ms())
            answer = event(turn)
            self._perform(turn)
        return answer

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """A turn ends when all of its effects are performed. An append may advance the high
        watermark at once: callbacks that waited for that run in turns of their own, afterwards.
        """
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._complete_decided()

    def _complete_decided(self) -> None:
        if self._depth == 0:
            self._depth = 1
            try:
                while self._decided:
                    self._complete(*self._decided.popleft())
            finally:
                self._depth = 0

    def submit(
        self, event: Callable[[Ticket[AnswerT], AnyTurn], None], *, depends: bool = True
    ) -> asyncio.Future[AnswerT]:
        """Runs a turn at once. The future completes when the shard replies to the ticket, or fails
        with KafkaError if it refuses.
        """
        self._tickets += 1
        ticket: Ticket[AnswerT] = Ticket(self._tickets)
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._requests[ticket] = answer
        answer.add_done_callback(lambda _: self._requests.pop(ticket, None))
        try:
            self.run(lambda turn: event(ticket, turn), depends=depends)
        except Exception as error:  # noqa: BLE001 - only the caller gets the error
            if not answer.done():
                # The traceback of a refusal is useless, and would keep the request alive in a
                # cycle.
                is_refusal = isinstance(error, KafkaError)
                answer.set_exception(error.with_traceback(None) if is_refusal else error)
        return answer

    def _perform(self, turn: AnyTurn) -> None:
        """A turn may answer several requests: a failure in one of them does not stop the others."""
        unexpected: Exception | None = None
        for effect in turn.effects:
            try:
                self._perform_one(effect)
            except Exception as error:  # noqa: BLE001 - raised below
                unexpected = unexpected or error
        if unexpected is not None:
            raise unexpected

    def _perform_one(self, effect: AnyEffect) -> None:
        match effect:
            case Reply():
                self._answer(effect)
            case StartTimer(key, delay_ms):
                self._timers.start(key, delay_ms)
            case StopTimer(key):
                self._timers.stop(key)
            case Append():
                self._append(effect)
            case Request(what):
                assert self._services.requested is not None, what
                self._services.requested(self, what)
            case _:
                assert_never(effect)

    def _answer(self, reply: AnyReply) -> None:
        waiting = self._requests.pop(reply.ticket, None)
        if waiting is None or waiting.done():
            return
        if isinstance(reply.answer, ErrorCode):
            waiting.set_exception(KafkaError(reply.answer))
        else:
            waiting.set_result(reply.answer)

    def _timer_fired(self, key: TimerKey) -> None:
        self.run(lambda turn: self.shard.timer_fired(key, turn))

    # The log

    def _append(self, append: AnyAppend) -> None:
        if append.marker is not None:
            self._flush_gathered()
            self._write_marker(append, append.marker)
        elif not append.records:
            self._flush_gathered()
            self._await_commit(_Written([Piece(append, (), True)], Offset(self._end_offset - 1)))
        else:
            try:
                encoded = EncodedAppend.of(append)
            except Exception as error:  # noqa: BLE001 - before it shares a batch with others
                self._fail([append], error)
                return
            if append.may_gather:
                self._gathered.append(encoded)
                if len(self._gathered) == 1:
                    self._flush_soon()
            else:
                self._flush_gathered()
                self._write([encoded])

    def _flush_soon(self) -> None:
        if (linger_ms := self._services.options().linger_ms) > 0:
            self._services.clock.call_later(linger_ms, self._flush_gathered)
        else:
            asyncio.get_running_loop().call_soon(measured, "append", self._flush_gathered)

    def _flush_gathered(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            with self._in_turn():
                self._write(gathered)

    def _write(self, appends: list[EncodedAppend]) -> None:
        try:
            bytes_max = self.partition.log.config.max_message_bytes
        except KafkaError as error:
            for append, _ in appends:
                self._refuse(append, as_coordinator_error(error.code))
            return
        options = self._services.options()
        now_ms, writer = self._services.clock.wall_ms(), appends[0].append.writer
        limits = PackLimits(bytes_max, options.compression, now_ms, writer)
        for batch in pack(appends, limits):
            self._write_batch(batch, writer)

    def _write_batch(self, batch: PackedBatch, writer: Writer | None) -> None:
        try:
            result = self._append_to_log(_verified(batch.build(), writer), batch.pieces)
        except Exception as error:  # noqa: BLE001 - the other batches are written all the same
            self._fail([piece.append for piece in batch.pieces], error)
            return
        if result is None:
            return
        producer_id = NO_PRODUCER_ID if writer is None else writer.producer_id
        offset = result.first_offset
        for piece in batch.pieces:
            try:
                self._appended(piece, offset, producer_id)
            except Exception as error:  # noqa: BLE001 - of this request; others share the batch
                self._fail([piece.append], error)
            offset = Offset(offset + len(piece.records))
        self._await_commit(_Written(batch.pieces, result.last_offset))

    def _appended(self, piece: Piece, offset: Offset, producer_id: int) -> None:
        if piece.append.replays:
            for number, record in enumerate(piece.records):
                self.shard.replay(record, Offset(offset + number), producer_id)
        sequel = piece.append.sequel
        if piece.is_last and sequel is not None:
            self._notify(self.shard.appended, sequel)

    def _write_marker(self, append: AnyAppend, marker: Marker) -> None:
        control_type = ControlType.COMMIT if marker.commits else ControlType.ABORT
        data = end_transaction_marker(
            EndTransactionMarker(control_type, marker.coordinator_epoch),
            MarkerOrigin(marker.producer_id, marker.producer_epoch),
            self._services.clock.wall_ms(),
        )
        pieces = [Piece(append, (), True)]
        result = self._append_to_log(data, pieces, marker.transaction_version)
        if result is not None:
            self.shard.end_transaction(marker.producer_id, commits=marker.commits)
            self._await_commit(_Written(pieces, result.last_offset))

    def _append_to_log(
        self,
        data: bytes | VerifiedBatch,
        pieces: list[Piece],
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> AppendResult | None:
        """None if the log refused it; then every waiting request has its error already."""
        try:
            result = self.partition.append(
                data,
                origin=AppendOrigin.COORDINATOR,
                transaction_version=transaction_version,
            )
        except KafkaError as error:
            level = logging.DEBUG if error.code in _FENCED else logging.WARNING
            _log.log(level, "%s refuses records: %s", self.partition.topic_partition, error)
            for piece in pieces:
                self._refuse(piece.append, as_coordinator_error(error.code))
            return None
        self._end_offset = result.last_offset + 1
        return result

    def _await_commit(self, written: _Written) -> None:
        self._written[written] = None
        services = self._services
        timeout_ms = services.options().commit_timeout_ms

        def timed_out() -> None:
            self._complete(written, ErrorCode.REQUEST_TIMED_OUT)

        def decided(error: KafkaError | None) -> None:
            self._decided.append((written, None if error is None else error.code))
            self._complete_decided()

        if written.last_offset < 0:
            decided(None)
            return
        written.deadline = (services.deadlines.add(timeout_ms, timed_out), timed_out)
        self.partition.on_committed(Offset(written.last_offset), decided)

    def _complete(self, written: _Written, refusal: ErrorCode | None) -> None:
        """The appends are committed, or the wait has timed out. Only the first outcome counts."""
        if written not in self._written:
            return
        del self._written[written]
        if written.deadline is not None:
            bucket, callback = written.deadline
            bucket.pop(callback, None)
        for piece in written.pieces:
            if refusal is not None:
                self._refuse(piece.append, as_coordinator_error(refusal))
            elif piece.is_last:
                apart(_log, "a callback after a commit", self._committed, piece.append)

    def _committed(self, append: AnyAppend) -> None:
        for reply in append.replies:
            self._answer(reply)
        sequel = append.sequel
        if sequel is not None:
            self._notify(self.shard.committed, sequel)

    def _refuse(self, append: AnyAppend, code: ErrorCode) -> None:
        for reply in append.replies:
            self._answer(Reply(reply.ticket, code))
        sequel, append.sequel = append.sequel, None
        if sequel is not None:
            apart(
                _log,
                "a refused append",
                self.run,
                lambda turn: self.shard.failed(sequel, code, turn),
                depends=False,
            )

    def _fail(self, appends: Iterable[AnyAppend], error: Exception) -> None:
        log_unexpected(_log, f"an append to {self.partition.topic_partition.topic}", error)
        for append in appends:
            self._refuse(append, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _notify(self, listener: Callable[[SequelT, AnyTurn], None], sequel: SequelT) -> None:
        self.run(lambda turn: listener(sequel, turn), depends=False)


def _verified(data: bytes, writer: Writer | None) -> bytes | VerifiedBatch:
    if not isinstance(writer, VerifiedWriter) or writer.verification is None:
        return data
    return VerifiedBatch(data, writer.verification)
