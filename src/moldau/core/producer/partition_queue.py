"""The batches of one partition: in order, with sequence numbers by which the broker drops
duplicates and refuses gaps. A failed batch is retried alone and first; no new batch is sent before
it.
"""

from collections import deque
from typing import NamedTuple

from moldau.core.producer.batching import Batch
from moldau.protocol.records.batches import add_to_sequence
from moldau.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Buffer,
    ProducerEpoch,
    TopicPartition,
)


class ProducerIdentity(NamedTuple):
    producer_id: int = NO_PRODUCER_ID
    epoch: ProducerEpoch = NO_PRODUCER_EPOCH


NO_PRODUCER = ProducerIdentity()


class Outgoing:
    """A batch and its attempts."""

    __slots__ = (
        "attempts",
        "batch",
        "content",
        "created_ms",
        "identity",
        "is_given_up",
        "queue",
        "sequence",
    )

    def __init__(self, batch: Batch, queue: "PartitionQueue", created_ms: float) -> None:
        self.batch = batch
        self.queue = queue
        self.created_ms = created_ms
        self.attempts = 0
        self.identity = NO_PRODUCER
        self.sequence = NO_SEQUENCE
        self.content: Buffer | None = None
        """The encoded batch; None until it is built, and when its sequence numbers change."""
        self.is_given_up = False
        """The batch expired while a request with it was in flight."""


class PartitionQueue:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Outgoing] = deque()
        """Batches that were never sent."""
        self.to_retry: list[Outgoing] = []
        """Batches to retry, in order."""
        self.in_flight: list[Outgoing] = []
        self.identity = NO_PRODUCER
        self.next_sequence = 0
        self.paused_until_ms = 0.0
        self.failures = 0
        self.is_gapped = False
        """A sequence number was used for a batch that the broker does not have: sequences restart
        with a new epoch when nothing is in flight."""
        self.is_unresolved = False
        """A batch was given up, and the broker may or may not have it."""
        self._acknowledged_next = 0
        self._is_known = False
        """Whether the broker has a batch of this producer. Until then it accepts any first sequence
        number, so the second batch must not overtake the first: only one may be in flight."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.to_retry and not self.in_flight

    @property
    def has_something_to_send(self) -> bool:
        return bool(self.waiting or self.to_retry)

    def head(self) -> Outgoing | None:
        if self.to_retry:
            return self.to_retry[0]
        return self.waiting[0] if self.waiting else None

    def may_send(self, now_ms: float, identity: ProducerIdentity) -> bool:
        """Whether the head may be sent now, as far as this partition is concerned."""
        if now_ms < self.paused_until_ms or not self.has_something_to_send:
            return False
        if not self.in_flight:
            # New sequence numbers wait until the outcome of the old ones is known.
            return not self.is_unresolved or bool(self.to_retry)
        # A broker remembers the last five batches. A new one must not evict a batch to retry.
        is_repeating = bool(self.to_retry) or any(each.attempts > 1 for each in self.in_flight)
        may_pipeline = not (is_repeating or self.is_gapped or self.is_unresolved)
        return (
            may_pipeline
            and self.identity == identity
            and (self._is_known or identity == NO_PRODUCER)
        )

    def take(self, identity: ProducerIdentity) -> Outgoing:
        """Removes the head for sending. Only valid if `may_send`."""
        if not self.in_flight and not self.to_retry and self.identity != identity:
            self._start_over(identity)
        outgoing = self.to_retry.pop(0) if self.to_retry else self.waiting.popleft()
        if outgoing.sequence == NO_SEQUENCE and identity != NO_PRODUCER:
            self._assign_sequence(outgoing)
        outgoing.attempts += 1
        self.in_flight.append(outgoing)
        return outgoing

    def _assign_sequence(self, outgoing: Outgoing) -> None:
        outgoing.identity = self.identity
        outgoing.sequence = self.next_sequence
        outgoing.content = None
        outgoing.batch.seal()
        self.next_sequence = add_to_sequence(self.next_sequence, outgoing.batch.count)

    def _start_over(self, identity: ProducerIdentity) -> None:
        self._is_known = self._is_known and identity.producer_id == self.identity.producer_id
        self.identity = identity
        self.next_sequence = self._acknowledged_next = 0
        self.is_gapped = self.is_unresolved = False
        for outgoing in self.to_retry:
            self._assign_sequence(outgoing)

    # Outcomes.

    def is_first(self, outgoing: Outgoing) -> bool:
        """Whether every earlier batch has an outcome."""
        earlier = [*self.to_retry, *self.in_flight]
        return not any(_is_before(other, outgoing) for other in earlier)

    def acknowledged(self, outgoing: Outgoing) -> None:
        self.in_flight.remove(outgoing)
        self.failures = 0
        self._is_known = (
            self._is_known or outgoing.identity.producer_id == self.identity.producer_id
        )
        if outgoing.sequence != NO_SEQUENCE and outgoing.identity == self.identity:
            end = add_to_sequence(outgoing.sequence, outgoing.batch.count)
            self._acknowledged_next = end

    def retry(self, outgoing: Outgoing, until_ms: float) -> None:
        self.in_flight.remove(outgoing)
        self.requeue([outgoing])
        self.failures += 1
        self.paused_until_ms = until_ms

    def requeue(self, batches: list[Outgoing]) -> None:
        """Inserts the batches by their order before later ones."""
        index = 0
        while index < len(self.to_retry) and _is_before(self.to_retry[index], batches[0]):
            index += 1
        self.to_retry[index:index] = batches

    def split(self, outgoing: Outgoing, parts: list[Batch]) -> None:
        """The parts share the sequence numbers of the whole, which the broker refused."""
        self.in_flight.remove(outgoing)
        sequence = outgoing.sequence
        outgoing_parts = []
        for part in parts:
            own = Outgoing(part, self, outgoing.created_ms)
            own.identity = outgoing.identity
            own.sequence = sequence
            if sequence != NO_SEQUENCE:
                sequence = add_to_sequence(sequence, part.count)
            outgoing_parts.append(own)
        self.requeue(outgoing_parts)

    def refused(self, outgoing: Outgoing) -> None:
        """The batch failed for good: the broker does not have it."""
        self.in_flight.remove(outgoing)
        if outgoing.sequence != NO_SEQUENCE:
            self.is_gapped = True

    def given_up(self, outgoing: Outgoing) -> None:
        """The batch expired; the broker may or may not have it."""
        if outgoing in self.in_flight:
            outgoing.is_given_up = True
            return
        if outgoing in self.to_retry:
            self.to_retry.remove(outgoing)
            if outgoing.sequence != NO_SEQUENCE:
                self.is_unresolved = True
        else:
            self.waiting.remove(outgoing)

    def unanswered(self, outgoing: Outgoing) -> None:
        """The request of a batch that was given up ended without a definite result."""
        self.in_flight.remove(outgoing)
        if outgoing.sequence != NO_SEQUENCE:
            self.is_unresolved = True

    def drop_unsent(self) -> list[Outgoing]:
        """Drops everything that is not in flight, for an abort."""
        dropped = [*self.to_retry, *self.waiting]
        self.to_retry.clear()
        self.waiting.clear()
        return dropped

    def needs_new_epoch(self) -> bool:
        """Also checks whether an unresolved batch is resolved by now."""
        if self.in_flight:
            return False
        if self.is_unresolved and not self.to_retry:
            self.is_unresolved = False
            # If the broker acknowledged later batches, it has the earlier ones, too.
            self.is_gapped = self.is_gapped or self._acknowledged_next != self.next_sequence
        return self.is_gapped

    def begin_epoch(self, identity: ProducerIdentity) -> None:
        assert not self.in_flight
        self._start_over(identity)


def _is_before(one: Outgoing, other: Outgoing) -> bool:
    if one.sequence == NO_SEQUENCE or other.sequence == NO_SEQUENCE:
        return one.created_ms < other.created_ms
    # Sequence numbers wrap to zero: a distance of less than half the range means before.
    return 0 < (other.sequence - one.sequence) & 0x7FFF_FFFF < 0x4000_0000
