"""What a producer sends to whom, and what it makes of the answers. Time, chance and leaders come in
as arguments; whoever calls does the asking.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from moldau.core.client.backoff import Backoff
from moldau.core.producer.batching import Batch
from moldau.core.producer.partition_queue import NOBODY, Outgoing, PartitionQueue, ProducerIdentity
from moldau.frozen import frozen
from moldau.protocol.error_codes import RETRIABLE, ErrorCode
from moldau.protocol.records.batch_builder import BatchFacts, BatchOptions, finish_batch
from moldau.protocol.records.compression import Compression
from moldau.types import INT32_MAX, PRODUCER_EPOCH_MAX, Buffer, TopicPartition

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
    AGAIN = auto()
    SPLIT = auto()
    FAILED = auto()
    """For good; the broker does not have it."""
    TOO_LATE = auto()
    """Tried for as long, or as often, as it may be."""
    IGNORED = auto()
    """It was given up before."""


class Plan(NamedTuple):
    requests: dict[int, list[Outgoing]]
    topics_without_leader: set[str]
    """Topics with something to send to a partition whose leader is not known."""
    next_ms: float
    """When to look again if nothing happens; inf: never."""


class Sending:
    def __init__(self, rules: SendRules) -> None:
        self.rules = rules
        self.identity: ProducerIdentity | None = None if rules.is_idempotent else NOBODY
        """None: one must be asked for before anything is sent."""
        self.is_hurried = False
        """Flushing or closing: nothing lingers."""
        self.may_write: Callable[[TopicPartition], bool] = lambda _: True
        """Whether the transaction knows a partition."""
        self.stalled_since_ms: Mapping[int, float] = {}
        """Nodes that something is due for and that take nothing now. Replaced, never changed:
        other threads read it."""
        self._lines: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}

    @property
    def is_idle(self) -> bool:
        return not self._active

    @property
    def active(self) -> Iterable[PartitionQueue]:
        """Lines with something that has no outcome yet."""
        return self._active.values()

    def waiting_by_partition(self, topic: str, count: int) -> list[int]:
        """How many batches of each partition wait. Any thread may ask."""
        waiting = [0] * count
        for partition, line in self._active.copy().items():
            if partition.topic == topic and partition.partition < count:
                waiting[partition.partition] = len(line.waiting) + len(line.again)
        return waiting

    def file(self, batches: Iterable[Batch], now_ms: float) -> None:
        for batch in batches:
            place = TopicPartition(batch.topic, batch.partition)
            line = self._lines.get(place)
            if line is None:
                line = self._lines[place] = PartitionQueue(place)
            line.waiting.append(Outgoing(batch, line, now_ms))
            self._active[place] = line

    # Sending.

    def plan(
        self,
        now_ms: float,
        leader_of: Callable[[TopicPartition], int | None],
        has_room: Callable[[int], bool],
    ) -> Plan:
        """Takes from the lines what goes now. As soon as one partition of a node is due, all that
        it leads go along.
        """
        topics_without_leader: set[str] = set()
        by_node: dict[int, list[PartitionQueue]] = {}
        due: set[int] = set()
        next_ms = _NEVER_MS
        if self.identity is None:
            return Plan({}, topics_without_leader, next_ms)
        for line in self._active.values():
            head = line.head()
            if head is None or not self.may_write(line.partition):
                continue
            node = leader_of(line.partition)
            if node is None:
                topics_without_leader.add(line.partition.topic)
                continue
            if not line.may_send(now_ms, self.identity):
                if now_ms < line.paused_until_ms:
                    next_ms = min(next_ms, line.paused_until_ms)
                continue
            by_node.setdefault(node, []).append(line)
            due_ms = self._due_ms(line, head)
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

    def _due_ms(self, line: PartitionQueue, head: Outgoing) -> float:
        is_ready = head.batch.is_ready or not head.batch.is_open
        if is_ready or self.is_hurried or len(line.waiting) > 1:
            return 0
        return head.created_ms + self.rules.linger_ms

    def _fill(self, lines: list[PartitionQueue]) -> list[Outgoing]:
        assert self.identity is not None
        taken: list[Outgoing] = []
        size = _REQUEST_OVERHEAD_BYTES
        for line in lines:
            head = line.head()
            assert head is not None
            size += head.batch.size_bytes
            if taken and size > self.rules.request_bytes_max:
                break
            taken.append(line.take(self.identity))
        return taken

    def content_of(self, outgoing: Outgoing) -> Buffer:
        """The batch as it is sent."""
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

    # Answers.

    def judge(self, outgoing: Outgoing, code: ErrorCode, now_ms: float, chance: float) -> Verdict:
        """What an answer, or none (NETWORK_EXCEPTION), means. Moves the line accordingly; a batch
        that is to be split is moved by `split`.
        """
        line = outgoing.line
        verdict = self._verdict(outgoing, code, now_ms)
        match verdict:
            case Verdict.DONE:
                line.acknowledged(outgoing)
            case Verdict.AGAIN:
                pause_ms = self.rules.backoff.pause_ms(line.failures + 1, chance)
                line.retry(outgoing, now_ms + pause_ms)
            case Verdict.FAILED:
                line.refused(outgoing)
            case Verdict.TOO_LATE | Verdict.IGNORED:
                line.unanswered(outgoing)
            case Verdict.SPLIT:
                pass
        self._settle(line)
        return verdict

    def _verdict(self, outgoing: Outgoing, code: ErrorCode, now_ms: float) -> Verdict:
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            # A duplicate is in the log: the answer to an earlier attempt was lost.
            return Verdict.DONE
        if outgoing.is_given_up:
            return Verdict.IGNORED
        if code in _TOO_LARGE and outgoing.batch.count > 1:
            return Verdict.SPLIT
        if not self._may_pass(outgoing, code):
            return Verdict.FAILED
        is_over = now_ms >= outgoing.created_ms + self.rules.delivery_timeout_ms
        return (
            Verdict.TOO_LATE if is_over or outgoing.attempts > self.rules.retries else Verdict.AGAIN
        )

    def _may_pass(self, outgoing: Outgoing, code: ErrorCode) -> bool:
        line = outgoing.line
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if not line.is_first(outgoing):
                # An earlier batch failed, and this one came before its second attempt.
                return True
            line.is_gapped = not self.rules.is_transactional
            return line.is_gapped
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # The broker has forgotten this producer: its records there are deleted.
            line.is_gapped = not self.rules.is_transactional
            return line.is_gapped
        return code in RETRIABLE

    def split(self, outgoing: Outgoing, parts: list[Batch]) -> None:
        outgoing.line.split(outgoing, parts)

    def expire(self, now_ms: float) -> list[Outgoing]:
        """What has taken longer than it may."""
        limit_ms = now_ms - self.rules.delivery_timeout_ms
        found = []
        for line in list(self._active.values()):
            for outgoing in [*line.under_way, *line.again, *line.waiting]:
                if outgoing.created_ms <= limit_ms and not outgoing.is_given_up:
                    outgoing.batch.seal()
                    line.given_up(outgoing)
                    found.append(outgoing)
            self._settle(line)
        return found

    def drop_unsent(self) -> list[Outgoing]:
        dropped = []
        for line in list(self._active.values()):
            for outgoing in line.drop_unsent():
                outgoing.batch.seal()
                dropped.append(outgoing)
                line.is_unresolved = line.is_unresolved or outgoing.attempts > 0
            self._settle(line)
        return dropped

    def _settle(self, line: PartitionQueue) -> None:
        if line.needs_new_epoch() and not self.rules.is_transactional:
            self._raise_epoch(line)
        if line.is_idle:
            self._active.pop(line.partition, None)

    def _raise_epoch(self, line: PartitionQueue) -> None:
        """Other partitions go on with the old one until nothing of theirs is under way."""
        if self.identity is None or self.identity == NOBODY:
            return
        if line.identity == self.identity:
            producer_id, epoch = self.identity
            if epoch == PRODUCER_EPOCH_MAX:
                self.identity = None
                return
            self.identity = ProducerIdentity(producer_id, epoch + 1)
        line.begin_epoch(self.identity)

    def identified(self, identity: ProducerIdentity) -> None:
        """From now on; lines whose numbers must begin again do so."""
        self.identity = identity
        for line in self._lines.values():
            if line.under_way:
                continue
            if line.is_gapped or self.rules.is_transactional:
                line.begin_epoch(identity)
