"""Which batches a producer sends to which node, and the meaning of the responses. Time, chance and
leaders come in as arguments; the caller sends the requests.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from moldau.core.client.backoff import Backoff
from moldau.core.producer.batching import Batch
from moldau.core.producer.partition_queue import (
    NO_PRODUCER,
    Outgoing,
    PartitionQueue,
    ProducerIdentity,
)
from moldau.frozen import frozen
from moldau.protocol.error_codes import RETRIABLE, ErrorCode
from moldau.protocol.records.batch_builder import BatchFacts, BatchOptions, finish_batch
from moldau.protocol.records.compression import Compression
from moldau.types import INT32_MAX, PRODUCER_EPOCH_MAX, Buffer, ProducerEpoch, TopicPartition

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# Room in a request for everything but the batches.
_REQUEST_OVERHEAD_BYTES = 512
_NEVER_MS = float("inf")


@frozen(kw_only=True)
class SendRules:
    is_idempotent: bool = True
    is_transactional: bool = False
    linger_ms: float = 5
    retries: int = INT32_MAX
    delivery_timeout_ms: float = 120_000
    request_bytes_max: int = 1 << 20
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    backoff: Backoff = Backoff(100, 1_000)


class Verdict(Enum):
    DONE = auto()
    RETRY = auto()
    SPLIT = auto()
    FAILED = auto()
    """Failed for good; the broker does not have it."""
    TOO_LATE = auto()
    """The timeout or the number of retries is exhausted."""
    IGNORED = auto()
    """The batch was given up before."""


class Plan(NamedTuple):
    requests: dict[int, list[Outgoing]]
    topics_without_leader: set[str]
    """Topics with batches for a partition whose leader is unknown."""
    next_ms: float
    """When to plan again if nothing happens; inf for never."""


class Sending:
    def __init__(self, rules: SendRules) -> None:
        self.rules = rules
        self.identity: ProducerIdentity | None = None if rules.is_idempotent else NO_PRODUCER
        """None if it must be requested before anything is sent."""
        self.is_hurried = False
        """True while flushing or closing: no batch lingers."""
        self.may_write: Callable[[TopicPartition], bool] = lambda _: True
        """Whether the partition is part of the transaction."""
        self.stalled_since_ms: Mapping[int, float] = {}
        """Nodes with due batches that accept no request now. Replaced, never changed: other
        threads read it."""
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}

    @property
    def is_idle(self) -> bool:
        return not self._active

    @property
    def active(self) -> Iterable[PartitionQueue]:
        """Queues with batches that have no outcome yet."""
        return self._active.values()

    def waiting_by_partition(self, topic: str, count: int) -> list[int]:
        """The number of waiting batches by partition. Any thread may call it."""
        waiting = [0] * count
        for partition, queue in self._active.copy().items():
            if partition.topic == topic and partition.partition < count:
                waiting[partition.partition] = len(queue.waiting) + len(queue.to_retry)
        return waiting

    def enqueue(self, batches: Iterable[Batch], now_ms: float) -> None:
        for batch in batches:
            partition = TopicPartition(batch.topic, batch.partition)
            queue = self._queues.get(partition)
            if queue is None:
                queue = self._queues[partition] = PartitionQueue(partition)
            queue.waiting.append(Outgoing(batch, queue, now_ms))
            self._active[partition] = queue

    # Sending.

    def plan(
        self,
        now_ms: float,
        leader_of: Callable[[TopicPartition], int | None],
        has_room: Callable[[int], bool],
    ) -> Plan:
        """Removes the batches to send now from the queues. If one partition of a node is due, the
        request takes batches of all partitions that the node leads.
        """
        topics_without_leader: set[str] = set()
        by_node: dict[int, list[PartitionQueue]] = {}
        due: set[int] = set()
        next_ms = _NEVER_MS
        if self.identity is None:
            return Plan({}, topics_without_leader, next_ms)
        for queue in self._active.values():
            head = queue.head()
            if head is None or not self.may_write(queue.partition):
                continue
            node = leader_of(queue.partition)
            if node is None:
                topics_without_leader.add(queue.partition.topic)
                continue
            if not queue.may_send(now_ms, self.identity):
                if now_ms < queue.paused_until_ms:
                    next_ms = min(next_ms, queue.paused_until_ms)
                continue
            by_node.setdefault(node, []).append(queue)
            due_ms = self._due_ms(queue, head)
            if due_ms <= now_ms:
                due.add(node)
            else:
                next_ms = min(next_ms, due_ms)
        ready = {node for node in due if has_room(node)}
        if due or self.stalled_since_ms:
            before = self.stalled_since_ms
            self.stalled_since_ms = {node: before.get(node, now_ms) for node in due - ready}
        return Plan(
            {node: self._fill(by_node[node]) for node in ready}, topics_without_leader, next_ms
        )

    def _due_ms(self, queue: PartitionQueue, head: Outgoing) -> float:
        is_ready = head.batch.is_ready or not head.batch.is_open
        if is_ready or self.is_hurried or len(queue.waiting) > 1:
            return 0
        return head.created_ms + self.rules.linger_ms

    def _fill(self, queues: list[PartitionQueue]) -> list[Outgoing]:
        assert self.identity is not None
        taken: list[Outgoing] = []
        size = _REQUEST_OVERHEAD_BYTES
        for queue in queues:
            head = queue.head()
            assert head is not None
            size += head.batch.size_bytes
            if taken and size > self.rules.request_bytes_max:
                break
            taken.append(queue.take(self.identity))
        return taken

    def content_of(self, outgoing: Outgoing) -> Buffer:
        """The encoded batch."""
        if outgoing.content is None:
            batch = outgoing.batch
            options = BatchOptions(
                compression=self.rules.compression,
                compression_level=self.rules.compression_level,
                producer_id=outgoing.identity.producer_id,
                producer_epoch=outgoing.identity.epoch,
                base_sequence=outgoing.sequence,
                is_transactional=self.rules.is_transactional,
            )
            body = batch.seal()
            facts = BatchFacts(
                0, batch.count - 1, batch.base_timestamp, batch.max_timestamp, batch.count
            )
            outgoing.content = finish_batch(body, options, facts)
        return outgoing.content

    # Responses.

    def classify(
        self, outgoing: Outgoing, code: ErrorCode, now_ms: float, chance: float
    ) -> Verdict:
        """The verdict on a response; NETWORK_EXCEPTION stands for a missing one. Updates the
        queue, except for SPLIT, where the caller calls `split`.
        """
        queue = outgoing.queue
        verdict = self._verdict(outgoing, code, now_ms)
        match verdict:
            case Verdict.DONE:
                queue.acknowledged(outgoing)
            case Verdict.RETRY:
                pause_ms = self.rules.backoff.pause_ms(queue.failures + 1, chance)
                queue.retry(outgoing, now_ms + pause_ms)
            case Verdict.FAILED:
                queue.refused(outgoing)
            case Verdict.TOO_LATE | Verdict.IGNORED:
                queue.unanswered(outgoing)
            case Verdict.SPLIT:
                pass
        self._finish_queue(queue)
        return verdict

    def _verdict(self, outgoing: Outgoing, code: ErrorCode, now_ms: float) -> Verdict:
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            # A duplicate is in the log: the response to an earlier attempt was lost.
            return Verdict.DONE
        if outgoing.is_given_up:
            return Verdict.IGNORED
        if code in _TOO_LARGE and outgoing.batch.count > 1:
            return Verdict.SPLIT
        if not self._is_transient(outgoing, code):
            return Verdict.FAILED
        is_over = now_ms >= outgoing.created_ms + self.rules.delivery_timeout_ms
        return (
            Verdict.TOO_LATE if is_over or outgoing.attempts > self.rules.retries else Verdict.RETRY
        )

    def _is_transient(self, outgoing: Outgoing, code: ErrorCode) -> bool:
        queue = outgoing.queue
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if not queue.is_first(outgoing):
                # An earlier batch failed, and this one arrived before its retry.
                return True
            queue.is_gapped = not self.rules.is_transactional
            return queue.is_gapped
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # The broker has forgotten this producer: its records there are deleted.
            queue.is_gapped = not self.rules.is_transactional
            return queue.is_gapped
        return code in RETRIABLE

    def split(self, outgoing: Outgoing, parts: list[Batch]) -> None:
        outgoing.queue.split(outgoing, parts)

    def expire(self, now_ms: float) -> list[Outgoing]:
        """Gives up the batches that exceeded the delivery timeout, and returns them."""
        limit_ms = now_ms - self.rules.delivery_timeout_ms
        expired = []
        for queue in list(self._active.values()):
            for outgoing in [*queue.in_flight, *queue.to_retry, *queue.waiting]:
                if outgoing.created_ms <= limit_ms and not outgoing.is_given_up:
                    outgoing.batch.seal()
                    queue.given_up(outgoing)
                    expired.append(outgoing)
            self._finish_queue(queue)
        return expired

    def drop_unsent(self) -> list[Outgoing]:
        dropped = []
        for queue in list(self._active.values()):
            for outgoing in queue.drop_unsent():
                outgoing.batch.seal()
                dropped.append(outgoing)
                queue.is_unresolved = queue.is_unresolved or outgoing.attempts > 0
            self._finish_queue(queue)
        return dropped

    def _finish_queue(self, queue: PartitionQueue) -> None:
        if queue.needs_new_epoch() and not self.rules.is_transactional:
            self._raise_epoch(queue)
        if queue.is_idle:
            self._active.pop(queue.partition, None)

    def _raise_epoch(self, queue: PartitionQueue) -> None:
        """Other partitions keep the old epoch until they have nothing in flight."""
        if self.identity is None or self.identity == NO_PRODUCER:
            return
        if queue.identity == self.identity:
            producer_id, epoch = self.identity
            if epoch == PRODUCER_EPOCH_MAX:
                self.identity = None
                return
            self.identity = ProducerIdentity(producer_id, ProducerEpoch(epoch + 1))
        queue.begin_epoch(self.identity)

    def identified(self, identity: ProducerIdentity) -> None:
        """Sets the identity; queues whose sequences must restart do so with it."""
        self.identity = identity
        for queue in self._queues.values():
            if queue.in_flight:
                continue
            if queue.is_gapped or self.rules.is_transactional:
                queue.begin_epoch(identity)
