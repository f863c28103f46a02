"""The batches of one partition on their way: in the order of their records, numbered so that the
broker drops what comes twice and refuses what comes too early. What failed goes again alone and
first; nothing new is sent before it.
"""

from collections import deque
from typing import NamedTuple

from moldau.core.producer.batching import Batch
from moldau.protocol.records.batches import add_to_sequence
from moldau.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer, TopicPartition


class ProducerIdentity(NamedTuple):
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NOBODY = ProducerIdentity()


class Outgoing:
    """A batch and what is known of its attempts."""

    __slots__ = (
        "attempts",
        "batch",
        "content",
        "created_ms",
        "identity",
        "is_given_up",
        "line",
        "sequence",
    )

    def __init__(self, batch: Batch, line: "PartitionQueue", created_ms: float) -> None:
        self.batch = batch
        self.line = line
        self.created_ms = created_ms
        self.attempts = 0
        self.identity = NOBODY
        self.sequence = NO_SEQUENCE
        self.content: Buffer | None = None
        """What is sent; None until it is built, and again when its numbers change."""
        self.is_given_up = False
        """Its time was over while a request with it was under way."""


class PartitionQueue:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Outgoing] = deque()
        """Never sent."""
        self.again: list[Outgoing] = []
        """Sent before, in order."""
        self.under_way: list[Outgoing] = []
        self.identity = NOBODY
        self.next_sequence = 0
        self.paused_until_ms = 0.0
        self.failures = 0
        self.is_gapped = False
        """A number was used for a batch that the broker does not have: numbers begin again, under
        a new epoch, when nothing is under way."""
        self.is_unresolved = False
        """Whether the broker has a batch that was given up is not known."""
        self._acknowledged_next = 0
        self._is_met = False
        """Whether the broker has a batch of this producer. Until then it takes any number for the
        first one, so a second batch must not overtake it: one is under way at a time."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.again and not self.under_way

    @property
    def has_something_to_send(self) -> bool:
        return bool(self.waiting or self.again)

    def head(self) -> Outgoing | None:
        if self.again:
            return self.again[0]
        return self.waiting[0] if self.waiting else None

    def may_send(self, now_ms: float, identity: ProducerIdentity) -> bool:
        """Whether the head may go now, as far as this partition is concerned."""
        if now_ms < self.paused_until_ms or not self.has_something_to_send:
            return False
        if not self.under_way:
            # Fresh numbers wait until it is known what became of the old ones.
            return not self.is_unresolved or bool(self.again)
        # A broker knows the last five batches: none may be sent that pushes out one which may be
        # there already.
        is_repeating = bool(self.again) or any(one.attempts > 1 for one in self.under_way)
        is_settled = not (is_repeating or self.is_gapped or self.is_unresolved)
        return is_settled and self.identity == identity and (self._is_met or identity == NOBODY)

    def take(self, identity: ProducerIdentity) -> Outgoing:
        """The head goes. Call it when `may_send` says so."""
        if not self.under_way and not self.again and self.identity != identity:
            self._start_over(identity)
        outgoing = self.again.pop(0) if self.again else self.waiting.popleft()
        if outgoing.sequence == NO_SEQUENCE and identity != NOBODY:
            self._number(outgoing)
        outgoing.attempts += 1
        self.under_way.append(outgoing)
        return outgoing

    def _number(self, outgoing: Outgoing) -> None:
        outgoing.identity = self.identity
        outgoing.sequence = self.next_sequence
        outgoing.content = None
        outgoing.batch.seal()
        self.next_sequence = add_to_sequence(self.next_sequence, outgoing.batch.count)

    def _start_over(self, identity: ProducerIdentity) -> None:
        self._is_met = self._is_met and identity.producer_id == self.identity.producer_id
        self.identity = identity
        self.next_sequence = self._acknowledged_next = 0
        self.is_gapped = self.is_unresolved = False
        for outgoing in self.again:
            self._number(outgoing)

    # What became of it.

    def is_first(self, outgoing: Outgoing) -> bool:
        """Whether no earlier batch is still without an outcome."""
        earlier = [*self.again, *self.under_way]
        return not any(_is_before(other, outgoing) for other in earlier)

    def acknowledged(self, outgoing: Outgoing) -> None:
        self.under_way.remove(outgoing)
        self.failures = 0
        self._is_met = self._is_met or outgoing.identity.producer_id == self.identity.producer_id
        if outgoing.sequence != NO_SEQUENCE and outgoing.identity == self.identity:
            end = add_to_sequence(outgoing.sequence, outgoing.batch.count)
            self._acknowledged_next = end

    def retry(self, outgoing: Outgoing, until_ms: float) -> None:
        self.under_way.remove(outgoing)
        self.put_back([outgoing])
        self.failures += 1
        self.paused_until_ms = until_ms

    def put_back(self, some: list[Outgoing]) -> None:
        """Before everything that comes after them."""
        place = 0
        while place < len(self.again) and _is_before(self.again[place], some[0]):
            place += 1
        self.again[place:place] = some

    def split(self, outgoing: Outgoing, parts: list[Batch]) -> None:
        """The parts share the numbers of the whole, which the broker did not take."""
        self.under_way.remove(outgoing)
        sequence = outgoing.sequence
        made = []
        for part in parts:
            own = Outgoing(part, self, outgoing.created_ms)
            own.identity = outgoing.identity
            own.sequence = sequence
            if sequence != NO_SEQUENCE:
                sequence = add_to_sequence(sequence, part.count)
            made.append(own)
        self.put_back(made)

    def refused(self, outgoing: Outgoing) -> None:
        """For good: the broker does not have it."""
        self.under_way.remove(outgoing)
        if outgoing.sequence != NO_SEQUENCE:
            self.is_gapped = True

    def given_up(self, outgoing: Outgoing) -> None:
        """Its time is over; the broker may have it or not."""
        if outgoing in self.under_way:
            outgoing.is_given_up = True
            return
        if outgoing in self.again:
            self.again.remove(outgoing)
            if outgoing.sequence != NO_SEQUENCE:
                self.is_unresolved = True
        else:
            self.waiting.remove(outgoing)

    def unanswered(self, outgoing: Outgoing) -> None:
        """A batch that was given up, and whose request ended without saying whether it is there."""
        self.under_way.remove(outgoing)
        if outgoing.sequence != NO_SEQUENCE:
            self.is_unresolved = True

    def drop_unsent(self) -> list[Outgoing]:
        """For an abort: whatever is not under way."""
        dropped = [*self.again, *self.waiting]
        self.again.clear()
        self.waiting.clear()
        return dropped

    def needs_new_epoch(self) -> bool:
        """Looks whether what was unresolved has resolved itself."""
        if self.under_way:
            return False
        if self.is_unresolved and not self.again:
            self.is_unresolved = False
            # Later batches were taken by the broker: so it has those before them, too.
            self.is_gapped = self.is_gapped or self._acknowledged_next != self.next_sequence
        return self.is_gapped

    def begin_epoch(self, identity: ProducerIdentity) -> None:
        assert not self.under_way
        self._start_over(identity)


def _is_before(one: Outgoing, other: Outgoing) -> bool:
    if one.sequence == NO_SEQUENCE or other.sequence == NO_SEQUENCE:
        return one.created_ms < other.created_ms
    # Numbers go on at zero: nearer than half the way round is before.
    return 0 < (other.sequence - one.sequence) & 0x7FFF_FFFF < 0x4000_0000
