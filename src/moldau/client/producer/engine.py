"""The producer in its event loop: takes appended batches, sends them as `Sending` decides, and
reports their outcomes. Users' threads only append; everything else happens here.
"""

import asyncio
import logging
import random
import threading
from typing import TYPE_CHECKING, Any

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.metadata import Topic
from moldau.client.errors import ClientTimeoutError, ClosedError
from moldau.client.producer.counters import Counts
from moldau.client.producer.options import EngineOptions
from moldau.client.producer.requests import (
    PartitionAnswer,
    endpoints_of,
    produce_request,
    read_answer,
    request_identity,
)
from moldau.client.producer.sticky_chooser import StickyChooser
from moldau.client.producer.topics import ProducerTopics
from moldau.core.producer.batching import (
    Appender,
    Batch,
    DeliveryWaiter,
    Hooks,
    Limits,
    Outcome,
    TopicBuffers,
)
from moldau.core.producer.outcomes import Failed, Written, is_done
from moldau.core.producer.partition_queue import Outgoing
from moldau.core.producer.sending import Sending, Verdict
from moldau.core.producer.splitting import halves
from moldau.net.request_channel import ChannelError
from moldau.net.tasks import Tasks
from moldau.protocol.error_codes import REFRESH_METADATA, ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.messages.produce import ProduceRequest, ProduceResponse
from moldau.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from moldau.client.cluster.node_connection import NodeConnection
    from moldau.net.clock import Timer

_log = logging.getLogger(__name__)

# How much a batch may grow while it waits to be sent, in units of batch.size.
GROWTH = 32
_SWEEP_MS_MIN = 20
_SWEEP_MS_MAX = 1_000
_LANE = "produce"


class ProducerEngine:
    """Made and used in its event loop. Any thread may use `appender`."""

    def __init__(
        self, cluster: Cluster, options: EngineOptions, waiter: DeliveryWaiter, *, is_shared: bool
    ) -> None:
        """`is_shared`: other threads append records."""
        self.cluster = cluster
        self.options = options
        self.sending = Sending(options.rules)
        self.tasks = Tasks()
        self.topics = ProducerTopics(
            cluster, self.tasks, options.metadata_max_age_ms, self._topic_changed
        )
        self.counts = Counts()
        self.retrying: KafkaError | None = None
        self.on_failure: Callable[[Exception], None] = lambda _: None
        """Called with the error of every batch that fails."""
        self._clock = cluster.clock
        self._rng = random.Random()  # noqa: S311 - spreads load, not a secret
        self._loop = asyncio.get_running_loop()
        self._lock: AbstractContextManager[Any] = threading.RLock()
        growth = min(options.batch_bytes * GROWTH, options.rules.request_bytes_max // 2)
        limits = Limits(
            batch_bytes=options.batch_bytes,
            growth_bytes=max(options.batch_bytes, growth) if options.batch_bytes else 1,
            record_bytes_max=options.rules.request_bytes_max,
            memory_bytes=options.memory_bytes,
        )
        wake = self._wake_threadsafe if is_shared else self._wake_in_loop
        chooser = StickyChooser(self.topics, self.sending, options, self._clock, self._rng)
        self._choose = chooser.choose
        self.appender = Appender(
            limits, Hooks(self._clock.wall_ms, wake, self._choose, waiter, self._lock)
        )
        self._waiter = waiter
        self._connections: dict[int, NodeConnection] = {}
        self._in_flight: dict[int, int] = {}
        self._busy: set[str] = set()
        self._timer: Timer | None = None
        self._sweep: Timer | None = None
        self._progress: list[asyncio.Future[None]] = []
        self._running_flushes = 0
        self._is_closed = False

    # Appending, when it has to wait.

    async def append(
        self,
        topic: str,
        record: tuple[bytes | None, bytes | None, int | None, int | None, Any],
    ) -> Any:
        """Appends key, value, partition, timestamp, headers; waits for max.block.ms at most."""
        deadline_ms = self._clock.mono_ms() + self.options.max_block_ms
        key, value, partition, timestamp, headers = record
        await self.topic(topic, deadline_ms, partition)
        while True:
            delivery = self.appender.append(topic, key, value, partition, timestamp, headers)
            if delivery is not None:
                return delivery
            if self.appender.is_closed:
                raise ClosedError("this producer is closed")
            self.options.check_size(key, value, headers)
            await self.wait_for_room(deadline_ms)

    async def topic(
        self, name: str, deadline_ms: float | None = None, partition: int | None = None
    ) -> Topic:
        """The topic's metadata. Raises if it has no such `partition`, even after a refresh."""
        if deadline_ms is None:
            deadline_ms = self._clock.mono_ms() + self.options.max_block_ms
        backoff_ms = self.options.rules.backoff.first_ms
        if name not in self.topics.known:
            await self.topics.ensure(name, deadline_ms, backoff_ms)
            self.topics.renew_later(name)
        elif partition is not None and partition not in self.topics.known[name].partitions:
            # It may be new. Kafka's producer would retry for max.block.ms, and hide the mistake.
            await self.topics.ensure(name, deadline_ms, backoff_ms)
        known = self.topics.known[name]
        if partition is not None:
            known.partition(partition)
        return known

    async def wait_for_room(self, deadline_ms: float) -> None:
        """Waits until a quarter of the memory is free, so that not every record has to wait."""
        enough = self.options.memory_bytes // 4
        is_first = True
        while is_first or (self.appender.room < enough and not self.sending.is_idle):
            is_first = False
            left_ms = deadline_ms - self._clock.mono_ms()
            if left_ms <= 0:
                raise ClientTimeoutError(
                    "no room within max.block.ms: records are sent faster than brokers accept them"
                )
            await self._next_progress(left_ms)

    async def enqueue(self, batch: Batch) -> None:
        """Enqueues a complete batch, after waiting for room."""
        deadline_ms = self._clock.mono_ms() + self.options.max_block_ms
        while self.appender.room < batch.held_bytes and not self.sending.is_idle:
            await self.wait_for_room(deadline_ms)
        if self.appender.is_closed:
            raise ClosedError("this producer is closed")
        batch.waiter = self._waiter
        self.appender.room -= batch.held_bytes
        self.sending.enqueue([batch], self._clock.mono_ms())
        self._sweep_later()
        self.send_ready()

    def next_partition(self, topic: str) -> int:
        """The partition for a batch of records without keys."""
        buffers = self.appender.topic(topic)
        assert buffers is not None
        return self._choose(buffers)

    # Sending.

    def _wake_threadsafe(self) -> None:
        self._loop.call_soon_threadsafe(self.send_ready)

    def _wake_in_loop(self) -> None:
        self._loop.call_soon(self.send_ready)

    def send_ready(self) -> None:
        """Sends what can be sent, after an append, a response, a connection or a deadline."""
        now_ms = self._clock.mono_ms()
        self._enqueue_begun(now_ms)
        if self._is_closed:
            return
        if self.sending.identity is None and not self.options.rules.is_transactional:
            self.once("identity", self._identify())
        plan = self.sending.plan(now_ms, self.topics.leader_of, self._has_room)
        while plan.requests:
            for node, batches in plan.requests.items():
                self._send(node, batches)
            plan = self.sending.plan(now_ms, self.topics.leader_of, self._has_room)
        if plan.topics_without_leader:
            self.once("metadata", self._refresh(plan.topics_without_leader))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if plan.next_ms != float("inf"):
            self._timer = self._clock.call_later(plan.next_ms - now_ms, self.send_ready)

    def _enqueue_begun(self, now_ms: float) -> None:
        begun = self.appender.take_begun()
        if begun:
            self.sending.enqueue(begun, now_ms)
            self._sweep_later()

    def _has_room(self, node: int) -> bool:
        connection = self._connections.get(node)
        if connection is None or not connection.channel.is_free:
            self.once(f"connect {node}", self._connect(node))
            return False
        # With acks=0 only one request at a time keeps the order of records.
        most = self.options.in_flight_max if self.options.terms.acks else 1
        return self._in_flight.get(node, 0) < most

    def _send(self, node: int, batches: list[Outgoing]) -> None:
        with self._lock:
            for outgoing in batches:
                outgoing.batch.seal()
        request = produce_request(batches, self.topics.known, self.sending, self.options.terms)
        self._in_flight[node] = self._in_flight.get(node, 0) + 1
        sent_ms = self._clock.mono_ms()
        self.counts.sent(batches, sent_ms)
        channel = self._connections[node].channel
        try:
            version = self._connections[node].newest_of(ProduceRequest)
        except MoldauError as error:
            self._loop.call_soon(self._handle_answer, node, batches, error)
            return
        if self.options.terms.acks == 0:
            _ = self.tasks.start(self._send_only(node, batches, (request, version)), "acks=0")
        else:
            channel.post(
                request,
                ProduceResponse,
                version,
                lambda answer: self._answered(node, batches, answer, sent_ms),
            )

    async def _send_only(self, node: int, batches: list[Outgoing], request: Any) -> None:
        problem: ChannelError | None = None
        try:
            await self._connections[node].channel.send_unanswered(*request)
        except ChannelError as error:
            problem = error
        self._handle_answer(node, batches, problem)

    def _answered(
        self,
        node: int,
        batches: list[Outgoing],
        answer: ProduceResponse | MoldauError,
        sent_ms: float,
    ) -> None:
        self.counts.answered(self._clock.mono_ms() - sent_ms)
        self._handle_answer(node, batches, answer)

    def _handle_answer(
        self, node: int, batches: list[Outgoing], answer: ProduceResponse | MoldauError | None
    ) -> None:
        """Handles a response; None with acks=0, when there is none."""
        self._in_flight[node] -= 1
        if answer is None:
            answers = [PartitionAnswer(outgoing, ErrorCode.NONE) for outgoing in batches]
        elif isinstance(answer, ProduceResponse):
            answers = read_answer(batches, answer, self.cluster.known.name_of)
        else:
            is_lost = isinstance(answer, ChannelError)
            code = ErrorCode.NETWORK_EXCEPTION if is_lost else ErrorCode.UNSUPPORTED_VERSION
            answers = [PartitionAnswer(outgoing, code, detail=str(answer)) for outgoing in batches]
        for partition_answer in answers:
            self._handle_partition(partition_answer, answer)
        if self._progress:
            self._notify_progress()
        self.send_ready()

    def _handle_partition(
        self, answer: PartitionAnswer, whole: ProduceResponse | MoldauError | None
    ) -> None:
        outgoing = answer.outgoing
        verdict = self.sending.classify(
            outgoing, answer.code, self._clock.mono_ms(), self._rng.random()
        )
        match verdict:
            case Verdict.DONE:
                self.retrying = None
                self.counts.delivered(outgoing)
                base_offset = NO_OFFSET if answer.code else answer.base_offset
                self._finish(outgoing.batch, Written(base_offset, answer.append_time_ms))
            case Verdict.SPLIT:
                self._split(outgoing)
            case Verdict.FAILED | Verdict.TOO_LATE:
                self._fail(outgoing, answer.error, answer.record_errors)
            case Verdict.RETRY:
                self.counts.retries += 1
                self.retrying = answer.error
            case Verdict.IGNORED:
                pass
        if answer.code in REFRESH_METADATA:
            partition = outgoing.queue.partition
            if not self.cluster.known.update_leader(
                partition, answer.leader, answer.leader_epoch, endpoints_of(whole)
            ):
                self.once("metadata", self._refresh({partition.topic}))

    # Outcomes.

    def _finish(self, batch: Batch, outcome: Outcome) -> None:
        with self._lock:
            if batch.outcome is not None:
                return
            batch.outcome = outcome
            callbacks, batch.callbacks = batch.callbacks, None
            self.appender.room += batch.held_bytes
        batch.release()
        for _, callback, delivery in callbacks or ():
            try:
                callback(delivery)
            except Exception:  # noqa: BLE001 - from the user's code, logged
                _log.exception("a delivery's callback failed")

    def _notify_progress(self) -> None:
        waiting, self._progress = self._progress, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _fail(self, outgoing: Outgoing, error: KafkaError, details: Any = None) -> None:
        self.counts.records_failed += outgoing.batch.count
        self.on_failure(error)
        self._finish(outgoing.batch, Failed(error, details))

    def _split(self, outgoing: Outgoing) -> None:
        batch = outgoing.batch
        parts = halves(batch)
        self.counts.splits += 1
        with self._lock:
            self.appender.room += batch.held_bytes - sum(part.held_bytes for part in parts)
            batch.parts = parts
            callbacks, batch.callbacks = batch.callbacks, None
        for _, callback, delivery in callbacks or ():
            delivery.add_callback(callback)
        batch.release()
        self.sending.split(outgoing, parts)

    def _sweep_later(self) -> None:
        if self._sweep is not None:
            return
        pause_ms = self.options.rules.delivery_timeout_ms / 20
        pause_ms = min(max(pause_ms, _SWEEP_MS_MIN), _SWEEP_MS_MAX)
        self._sweep = self._clock.call_later(pause_ms, self._expire)

    def _expire(self) -> None:
        self._sweep = None
        with self._lock:
            expired = self.sending.expire(self._clock.mono_ms())
        timeout_ms = self.options.rules.delivery_timeout_ms
        for outgoing in expired:
            partition = f"{outgoing.batch.topic}-{outgoing.batch.partition}"
            why = f"; the last answer was {self.retrying}" if self.retrying else ""
            detail = f"{partition}: not delivered within delivery.timeout.ms={timeout_ms:.0f}{why}"
            self._fail(outgoing, KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail))
        self._notify_progress()
        if not self.sending.is_idle:
            self._sweep_later()
            if expired:
                self.send_ready()

    def metrics(self) -> dict[str, float]:
        """The producer's metrics by name. Any thread may call it."""
        return {
            **self.counts.named(),
            "requests_in_flight": sum(list(self._in_flight.values())),
            "buffer_available_bytes": self.appender.room,
            "buffer_total_bytes": self.options.memory_bytes,
        }

    # Waiting.

    async def _next_progress(self, patience_ms: float) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._progress.append(future)
        timer = self._clock.call_later(
            patience_ms, lambda: None if future.done() else future.set_result(None)
        )
        try:
            await future
        finally:
            timer.cancel()

    async def flush(self) -> None:
        """Waits until everything appended so far is delivered or has failed."""
        self.send_ready()
        batches = [
            outgoing.batch
            for queue in self.sending.active
            for outgoing in [*queue.in_flight, *queue.to_retry, *queue.waiting]
        ]
        self._running_flushes += 1
        self.sending.is_hurried = True
        try:
            self.send_ready()
            for batch in batches:
                while not is_done(batch):
                    await self._next_progress(_SWEEP_MS_MAX)
        finally:
            self._running_flushes -= 1
            self.sending.is_hurried = self._running_flushes > 0

    def drop_unsent(self, error: KafkaError) -> None:
        self._enqueue_begun(self._clock.mono_ms())
        with self._lock:
            dropped = self.sending.drop_unsent()
        for outgoing in dropped:
            self._finish(outgoing.batch, Failed(error))
        self._notify_progress()

    async def close(self) -> None:
        """Fails everything that has no outcome yet. Flush first."""
        self.appender.is_closed = self._is_closed = True
        self.topics.close()
        await self.tasks.close()
        error = KafkaError(ErrorCode.NETWORK_EXCEPTION, "the producer was closed")
        self.drop_unsent(error)
        for queue in list(self.sending.active):
            for outgoing in list(queue.in_flight):
                self._finish(outgoing.batch, Failed(error))
        for timer in (self._timer, self._sweep):
            if timer is not None:
                timer.cancel()

    # Background work with the cluster.

    def once(self, name: str, work: Any) -> None:
        """Starts work, at most one of a name at a time, and sends again when it is done."""
        if name in self._busy:
            work.close()
            return
        self._busy.add(name)
        task = self.tasks.start(work, f"producer: {name}")
        task.add_done_callback(lambda _: self._background_done(name))

    def _background_done(self, name: str) -> None:
        self._busy.discard(name)
        if not self._is_closed:
            self._loop.call_soon(self.send_ready)

    async def _connect(self, node: int) -> None:
        try:
            connection = await self.cluster.connection(node, _LANE)
            self._connections[node] = connection
            if not connection.channel.is_free:
                # It is renewing its login.
                await self._pause()
        except MoldauError as error:
            _log.debug("no connection to broker %s: %s", node, error)
            await self._pause()
            names = {queue.partition.topic for queue in self.sending.active}
            await self._refresh(names)

    async def _pause(self) -> None:
        await self._clock.sleep(self.options.rules.backoff.pause_ms(1, self._rng.random()))

    async def _refresh(self, names: set[str]) -> None:
        try:
            if names:
                await self.topics.refresh(names)
        except MoldauError as error:
            _log.debug("the metadata request failed: %s", error)
        await self._pause()

    async def _identify(self) -> None:
        try:
            self.sending.identified(await request_identity(self.cluster))
        except MoldauError as error:
            if isinstance(error, KafkaError) and not error.is_retriable:
                self.drop_unsent(error)
            await self._pause()

    def _topic_changed(self, topic: Topic) -> None:
        count = len(topic.partitions)
        if not count:
            return
        buffers = self.appender.topic(topic.name)
        if buffers is None:
            options = self.options
            buffers = TopicBuffers(topic.name, count, options.hashes_keys, options.is_sticky)
            buffers.sticky = self._choose(buffers)
            self.appender.add_topic(buffers)
        elif buffers.partition_count != count:
            buffers.resize(count)
