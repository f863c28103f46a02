"""Fetches ahead of the user. At most one request per broker is in flight. What arrives waits until
it is taken, within bounds of memory. Everything runs in the event loop except `take`, which the
user's thread may call.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import Broker
from moldau.client.cluster.metadata_watch import MetadataWatch
from moldau.client.cluster.node_connection import VersionRange, supported_versions
from moldau.client.consumer.counters import Counts
from moldau.client.consumer.errors import DamagedRecordsError, DeserializationError
from moldau.client.consumer.options import FetchOptions
from moldau.client.consumer.seeking import Seeking
from moldau.client.errors import check
from moldau.core.consumer.fetch_sessions import FetchRow, FetchSession, SessionPlan
from moldau.core.consumer.fetched import DamagedBatchError, Fetched, FetchedBytes
from moldau.core.consumer.positions import PartitionState, Positions
from moldau.net.request_channel import Address
from moldau.net.tasks import Tasks
from moldau.protocol.enums import IsolationLevel
from moldau.protocol.error_codes import RETRIABLE, ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from moldau.protocol.records.record_loops import ConsumerRecord
from moldau.protocol.versions import FETCH_NAMES_MAX
from moldau.types import CONSUMER_REPLICA, NO_NODE, ZERO_UUID, BrokerId, TopicPartition

if TYPE_CHECKING:
    import asyncio

_LANE = "fetch"
# Errors after which a new fetch session begins.
_SESSION_GONE = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


class _Failed:
    """An error, and the partition that it concerns if it is only one."""

    __slots__ = ("_state", "_version", "error")

    def __init__(self, error: BaseException, state: PartitionState | None) -> None:
        self.error = error
        self._state = state
        self._version = None if state is None else state.version

    @property
    def is_stale(self) -> bool:
        return self._state is not None and self._state.version != self._version


class Fetching:
    def __init__(
        self,
        cluster: Cluster,
        watch: MetadataWatch,
        positions: Positions,
        options: FetchOptions,
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._watch = watch
        self._positions = positions
        self._options = options
        self._on_change = on_change
        self._seeking = Seeking(cluster, positions, options, self._position_found)
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: set[int] = set()
        self._failures: dict[int, int] = {}
        self._ready: deque[Fetched] = deque()
        self._held: list[Fetched] = []
        """Fetched from partitions that are paused now."""
        self._tasks = Tasks()
        self._failed: _Failed | None = None
        self.counts = Counts()
        self.wants_room = False
        """Whether a lack of room keeps a partition from being fetched."""
        self.on_room: Callable[[], None] = lambda: None
        """Called when stale records are dropped, in the thread that drops them."""

    async def close(self) -> None:
        await self._seeking.close()
        await self._tasks.close()

    # Taking records: the user's thread.

    def take(self, count: int) -> tuple[list[ConsumerRecord], bool]:
        """Up to `count` records, and whether the event loop should fetch more."""
        into: list[ConsumerRecord] = []
        has_room = False
        while len(into) < count and (fetched := self._next_ready()) is not None:
            try:
                has_more = fetched.take(into, count - len(into), self._options.readers)
            except Exception as error:
                if into:
                    break
                raise self._unreadable(fetched, error) from error
            if not has_more:
                self._ready.popleft()
                has_room = True
        self.counts.records += len(into)
        return into, has_room and self.wants_room

    def first_ready(self) -> Fetched | None:
        """For readers of columns, which report with `mark_taken` how much they took."""
        return self._next_ready()

    def mark_taken(self, fetched: Fetched, count: int) -> None:
        """Notes that `count` batches of `first_ready` were taken."""
        if not fetched.hand_out(count):
            self._ready.popleft()

    @property
    def has_ready(self) -> bool:
        return self._next_ready() is not None

    def _next_ready(self) -> Fetched | None:
        while self._ready:
            fetched = self._ready[0]
            if fetched.is_stale:
                self._ready.popleft()
                fetched.state.taken(fetched.size_bytes)
                self.on_room()
            else:
                return fetched
        return None

    def _unreadable(self, fetched: Fetched, error: Exception) -> Exception:
        if isinstance(error, MoldauError):
            return error
        position = fetched.state.position
        assert position is not None
        return DeserializationError(fetched.state.partition, position, error)

    def raise_error(self) -> None:
        """Raises an error that no further fetch would cure, once, unless a seek has outdated it."""
        failed, self._failed = self._failed, None
        if failed is not None and not failed.is_stale:
            raise failed.error

    # Deciding what to fetch.

    def fetch_more(self) -> None:
        """Sends a request to each broker without one in flight, if anything can be fetched."""
        self.wants_room = False
        now_ms = self._cluster.clock.mono_ms()
        buffered_bytes = self._buffered_bytes()
        by_node: dict[int, dict[TopicPartition, FetchRow]] = {}
        for state in self._positions:
            node_id = self._node_for(state, now_ms)
            if node_id is None or node_id in self._in_flight:
                continue
            if not state.can_fetch or now_ms < state.not_before_ms:
                continue
            if (
                buffered_bytes >= self._options.buffer_bytes_max
                or state.buffered_bytes >= self._options.partition_buffer_bytes_max
            ):
                self.wants_room = True
            else:
                by_node.setdefault(node_id, {})[state.partition] = self._row(state)
        # After the loop, which is where new leaders are noticed.
        self._seeking.find_positions()
        for node_id, rows in by_node.items():
            self._in_flight.add(node_id)
            # The versions belong to the offsets above: a seek may come before the task begins.
            versions = {
                partition: known.version
                for partition in rows
                if (known := self._positions.get(partition))
            }
            self._start(self._fetch(node_id, rows, versions), f"fetch from {node_id}")

    def _buffered_bytes(self) -> int:
        """Records of paused partitions are dropped if they leave no room for others."""
        buffered_bytes = sum(state.buffered_bytes for state in self._positions)
        if not self._held or buffered_bytes < self._options.buffer_bytes_max:
            return buffered_bytes
        for fetched in self._held:
            fetched.state.taken(fetched.size_bytes)
            if not fetched.is_stale:
                fetched.state.rewind()
        self._held.clear()
        return sum(state.buffered_bytes for state in self._positions)

    def set_paused_aside(self) -> None:
        """Sets aside the records of paused partitions; those of resumed ones become ready again."""
        found = [*self._held, *self._ready]
        self._held = [fetched for fetched in found if fetched.state.is_paused]
        self._ready = deque(fetched for fetched in found if not fetched.state.is_paused)

    def _node_for(self, state: PartitionState, now_ms: float) -> int | None:
        known = self._cluster.known
        topic = state.partition.topic
        leader = known.leader_of(state.partition)
        if leader is None or not known.is_fresh(topic):
            self._watch.refresh_soon()
            return None
        state.leader_changed(leader[1], known.topics[topic].topic_id)
        return state.replica_to_read(BrokerId(leader[0]), now_ms)

    def _row(self, state: PartitionState) -> FetchRow:
        return FetchRow(
            self._cluster.known.topics[state.partition.topic].topic_id,
            state.fetch_offset,
            state.leader_epoch,
            state.fetch_epoch,
            self._options.partition_bytes,
        )

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.start(work, name).add_done_callback(self._note_end)

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException, state: PartitionState | None = None) -> None:
        """The next poll raises the error. `state`: the partition that it concerns, if only one."""
        if self._failed is None or self._failed.is_stale:
            self._failed = _Failed(error, state)
        self._on_change()

    def _position_found(self, error: MoldauError | None, state: PartitionState | None) -> None:
        """A position was found, or cannot be found."""
        if error is not None:
            self.fail(error, state)
        self._on_change()
        self.fetch_more()

    # Requests.

    async def _fetch(
        self,
        node_id: int,
        rows: Mapping[TopicPartition, FetchRow],
        versions: Mapping[TopicPartition, int],
    ) -> None:
        session = self._sessions.setdefault(node_id, FetchSession())
        try:
            answer = await self._send(node_id, session.plan(rows), rows)
            check(answer.error_code, f"fetching from broker {node_id}")
            session.answered(answer.session_id)
            self._failures.pop(node_id, None)
            self.counts.fetches += 1
            self._handle_response(node_id, answer, versions)
        except MoldauError as error:
            await self._recover(node_id, session, error)
        finally:
            self._in_flight.discard(node_id)
        self.fetch_more()

    async def _recover(self, node_id: int, session: FetchSession, error: MoldauError) -> None:
        code = error.code if isinstance(error, KafkaError) else None
        session.reset(is_gone=code in _SESSION_GONE or code is None)
        if code in _SESSION_GONE:
            return
        is_retriable = self._cluster.is_retriable(error) or code is ErrorCode.BROKER_NOT_AVAILABLE
        if not is_retriable:
            self.fail(error)
        self.counts.fetches_failed += 1
        failures = self._failures[node_id] = self._failures.get(node_id, 0) + 1
        for state in self._positions:
            if state.preferred_replica == node_id:
                state.preferred_replica = NO_NODE
        self._cluster.known.mark_stale()
        self._watch.refresh_soon()
        await self._cluster.clock.sleep(self._cluster.pause_ms(failures))

    async def _send(
        self, node_id: int, plan: SessionPlan, rows: Mapping[TopicPartition, FetchRow]
    ) -> FetchResponse:
        topics: dict[str, FetchTopic] = {}
        for (name, number), row in plan.rows.items():
            topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=row.topic_id))
            topic.partitions.append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=row.leader_epoch,
                    fetch_offset=row.fetch_offset,
                    last_fetched_epoch=-1,
                    partition_max_bytes=row.max_bytes,
                )
            )
        forgotten: dict[str, ForgottenTopic] = {}
        for (name, number), topic_id in plan.forgotten.items():
            gone = forgotten.setdefault(name, ForgottenTopic(topic=name, topic_id=topic_id))
            gone.partitions.append(number)
        options = self._options
        request = FetchRequest(
            replica_id=CONSUMER_REPLICA,
            max_wait_ms=options.max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=options.max_bytes,
            isolation_level=options.isolation,
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
            rack_id=options.rack,
        )
        has_ids = all(row.topic_id != ZERO_UUID for row in rows.values())
        ours = supported_versions(FetchRequest)
        newest = ours.newest if has_ids else FETCH_NAMES_MAX
        connection = await self._cluster.connection(node_id, _LANE)
        return await connection.send(
            request,
            FetchResponse,
            VersionRange(ours.oldest, newest),
            timeout_ms=options.request_timeout_ms + options.max_wait_ms,
        )

    # Responses.

    def _handle_response(
        self, node_id: int, answer: FetchResponse, versions: Mapping[TopicPartition, int]
    ) -> None:
        endpoints = [
            Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in answer.node_endpoints
        ]
        for result in answer.responses:
            name = result.topic or self._cluster.known.name_of(result.topic_id) or ""
            for row in result.partitions:
                partition_ = TopicPartition(name, row.partition_index)
                state = self._positions.get(partition_)
                if state is None or state.version != versions.get(partition_):
                    continue
                try:
                    self._handle_row(node_id, state, row, endpoints)
                except MoldauError as error:
                    # The next response would be the same, so it is delayed.
                    pause_ms = self._cluster.pause_ms(1)
                    state.not_before_ms = self._cluster.clock.mono_ms() + pause_ms
                    self._cluster.clock.call_later(pause_ms, self.fetch_more)
                    self.fail(error, state)

    def _handle_row(
        self, node_id: int, state: PartitionState, row: PartitionData, endpoints: Iterable[Broker]
    ) -> None:
        code = row.error_code
        if code == ErrorCode.NONE:
            self._add_records(state, row)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(node_id, state)
        elif code == ErrorCode.CORRUPT_MESSAGE:
            raise DamagedRecordsError(state.partition, state.fetch_offset)
        elif code in RETRIABLE:
            hint = row.current_leader
            if hint.leader_id == NO_NODE or not self._cluster.known.update_leader(
                state.partition, hint.leader_id, hint.leader_epoch, endpoints
            ):
                state.preferred_replica = NO_NODE
                self._cluster.known.mark_stale(state.partition.topic)
                self._watch.refresh_soon()
        else:
            check(code, str(state.partition))

    def _out_of_range(self, node_id: int, state: PartitionState) -> None:
        if node_id == state.preferred_replica:
            # A follower may lag; the leader decides.
            state.preferred_replica = NO_NODE
            return
        self._seeking.lost(state)

    def _add_records(self, state: PartitionState, row: PartitionData) -> None:
        state.high_watermark = row.high_watermark
        committed = self._options.isolation is IsolationLevel.READ_COMMITTED
        state.end_offset = row.last_stable_offset if committed else row.high_watermark
        state.log_start_offset = row.log_start_offset
        if row.preferred_read_replica != NO_NODE:
            now_ms = self._cluster.clock.mono_ms()
            state.preferred_replica = BrokerId(row.preferred_read_replica)
            state.preferred_until_ms = now_ms + self._options.metadata_max_age_ms
        if not row.records:
            return
        assert isinstance(row.records, bytes | bytearray | memoryview)
        aborted = None
        if committed:
            aborted = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in row.aborted_transactions or ()
            ]
        found = FetchedBytes(
            buffer=row.records, aborted=aborted, check_crcs=self._options.check_crcs
        )
        try:
            fetched = Fetched(state, found)
        except DamagedBatchError as error:
            raise DamagedRecordsError(
                state.partition, state.fetch_offset, error.detail, error.next_offset
            ) from None
        state.arrived(fetched.size_bytes)
        self.counts.fetched_bytes += fetched.size_bytes
        state.fetch_offset = fetched.next_offset
        state.fetch_epoch = fetched.last_epoch
        (self._held if state.is_paused else self._ready).append(fetched)
        self._on_change()
