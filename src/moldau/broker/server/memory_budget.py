"""The memory that all connections of a node take together, and which of them yield when it is
short.

There are three shares, so that none can take another's: frames that are being read, what is served
(requests that wait for their turn or their response, and unread responses), and large responses.
When a share is at its limit, no more is read for it, except by connections that hold next to
nothing, and by the node's own peers: these have reserves of their own. Unread responses may take a
part of the served share; beyond it fetches get no records. Connections that would then wait
for ever are closed: for unfinished frames the stalled ones, or else the youngest, until the oldest
has room; for the rest those that read their responses too slowly, hold a large part for a waiting
request, or have long waits that they requested. Far beyond the limit, the connection that holds
most is closed at once.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from moldau.broker.server.large_answers import LargeAnswers
from moldau.protocol.wire.frame import FRAME_BYTES_MAX, LENGTH_BYTES

READ_AGAIN_SHARE = 0.8
SMALL_BYTES = 16 * 1024
"""A connection that holds no more continues when memory is short, up to the reserve."""
LARGE_BYTES = 256 * 1024
"""A larger frame waits when half of the share is taken: frames that were begun need the rest."""
_RESERVE_SHARE = 0.25
"""On top of a share, for connections that hold next to nothing."""
_PEERS_RESERVE_SHARE = 0.5
_EXCESS_SHARE = 0.5
_EXCESS_BYTES_MIN = 32 * 1024 * 1024
"""At this excess over the served share's limit, memory is freed without waiting for the next sweep.
"""
_LARGE_ANSWERS_SHARE = 0.25
_ANSWER_BYTES_AT_ONCE = 1024 * 1024
"""A larger response without records counts as large."""
_ANSWER_BYTES_MIN = 64 * 1024
_ANSWERS_SHARE = 0.75
"""The part of the served share for unread responses: other clients' requests need the rest."""
TIGHT_READ_BYTES = 16 * 1024
"""Bytes per read when memory is tight."""
_STALLED_MS = 1_000
_HOG_SHARE = 1 / 8
_READ_SWEEPS_MAX = 10
"""A client is slow if it needs more of the listener's sweeps for the rest of its responses."""


class Holder(ABC):
    """A connection, and the memory it holds."""

    def __init__(self, budget: "MemoryBudget", *, is_privileged: bool) -> None:
        self._budget = budget
        self._is_gone = False
        self.is_privileged = is_privileged
        self.held_bytes = 0
        """Requests that wait."""
        self.answer_bytes = 0
        """Responses that its client has not read."""
        self.large_bytes = 0
        """Likewise, if a large one is among them."""
        self.unfinished_bytes = 0
        """A frame that is not complete."""

    @property
    @abstractmethod
    def wanted_bytes(self) -> int:
        """The missing bytes of the unfinished frame."""

    @abstractmethod
    def resume(self) -> None: ...

    @abstractmethod
    def is_stalled(self, now_ms: float, patience_ms: float) -> bool:
        """Whether its client has made no progress for `patience_ms`, or reads far too slowly."""

    @property
    @abstractmethod
    def parked_since_ms(self) -> float | None:
        """The time since which its oldest request waits. None if that request carries records,
        which are appended regardless of their connection.
        """

    @abstractmethod
    def cut_off(self, reason: str) -> None: ...

    @property
    def large_answers(self) -> LargeAnswers:
        return self._budget.large_answers

    def hold(self, count: int) -> None:
        self.held_bytes += count
        self._budget.hold(count, self)

    def hold_answers(self, size: int) -> None:
        """Responses that the client has not read yet."""
        if self.large_bytes:
            change, self.large_bytes = size - self.large_bytes, size
            self._budget.large_answers.hold(change)
        elif size != self.answer_bytes:
            change, self.answer_bytes = size - self.answer_bytes, size
            self._budget.hold_answers(change, self)

    def hold_large(self, size: int) -> None:
        """A large response was encoded. Other unread responses count with it until all are read."""
        if self._is_gone:
            return
        if self.answer_bytes:
            size += self.answer_bytes
            self.hold_answers(0)
        self.large_bytes += size
        self._budget.large_answers.hold(size)

    def hold_unfinished(self, size: int) -> None:
        before, self.unfinished_bytes = self.unfinished_bytes, size
        if size != before:
            self._budget.hold_unfinished(self, before, size)

    def hold_nothing(self) -> None:
        """The connection is closed."""
        self._is_gone = True
        self.hold(-self.held_bytes)
        self.hold_answers(0)
        self.hold_unfinished(0)


class UnreadAnswers:
    """Measures how fast a client reads, from one sweep of its listener to the next."""

    __slots__ = ("_bytes", "is_read_slowly")

    def __init__(self) -> None:
        self._bytes = 0
        self.is_read_slowly = False
        """A client that reads a byte now and then frees hardly more than one that reads nothing."""

    def update(self, unread_bytes: int) -> bool:
        """Whether the client has read anything since the previous sweep."""
        before, self._bytes = self._bytes, unread_bytes
        read_bytes = max(before - unread_bytes, 0)
        self.is_read_slowly = before > 0 and unread_bytes > read_bytes * _READ_SWEEPS_MAX
        return read_bytes > 0


class MemoryBudget:
    def __init__(
        self, limit: Callable[[], int], frame_bytes_max: Callable[[], int] = lambda: FRAME_BYTES_MAX
    ) -> None:
        self._limit = limit
        self._frame_bytes_max = frame_bytes_max
        self.held = 0
        self.answer_bytes = 0
        self.unfinished = 0
        self.large_answers = LargeAnswers()
        self.answer_bytes_at_once = _ANSWER_BYTES_AT_ONCE
        """Larger responses wait for their turn, unless they are records."""
        # Held by connections that hold next to nothing, and by the node's peers.
        self._small = 0
        self._peers = 0
        # Other connections, which hold more.
        self._not_small: dict[Holder, None] = {}
        self._is_relieving = False
        self.is_tight = False
        """Half of a share is taken: reads are shorter, and some may have to wait."""
        self._waiting: dict[Holder, None] = {}
        # Ordered by age.
        self._unfinished: dict[Holder, None] = {}
        self.read_limit()

    def read_limit(self) -> None:
        """The setting may have changed; read only periodically, as every request needs it."""
        limit = self._limit()
        self.served_max = limit // 2
        # The largest frame has room to its last byte, with its length in front.
        largest = self._frame_bytes_max() + LENGTH_BYTES
        self.unfinished_max = max(limit - self.served_max, largest)
        self._served_tight, self._unfinished_tight = self.served_max // 2, self.unfinished_max // 2
        over = max(int(self.served_max * _EXCESS_SHARE), _EXCESS_BYTES_MIN)
        self._excess_max = self.served_max + over
        self._answers_max = int(self.served_max * _ANSWERS_SHARE)
        self.large_answers.limit(int(self.served_max * _LARGE_ANSWERS_SHARE))
        self._changed(0)

    @property
    def connection_bytes_max(self) -> int:
        """The bound for one connection: a part of the bound for all."""
        return self.served_max // 4

    def room_for_answer(self, *, is_privileged: bool = False) -> int:
        """The maximum size of a response that could also come in parts, or later. The more is held,
        the less is left for each; 0 for all but the node's peers when too many responses are
        unread.
        """
        answer_bytes = self.answer_bytes
        if answer_bytes >= self._answers_max and not is_privileged:
            return 0
        return max(self.served_max - self.held - answer_bytes, _ANSWER_BYTES_MIN)

    @property
    def _is_full_of_answers(self) -> bool:
        return self.answer_bytes >= self._answers_max

    # Accounting

    def hold(self, count: int, holder: Holder | None = None) -> None:
        self.held += count
        if holder is not None:
            self._weigh(holder, count)
        self._changed(count)

    def hold_answers(self, count: int, holder: Holder | None = None) -> None:
        self.answer_bytes += count
        if holder is not None:
            self._weigh(holder, count)
        self.answer_bytes_at_once = (
            LARGE_BYTES if self._is_full_of_answers else _ANSWER_BYTES_AT_ONCE
        )
        self._changed(count)

    def _weigh(self, holder: Holder, count: int) -> None:
        """The connection holds `count` bytes more now."""
        if holder.is_privileged:
            self._peers += count
            return
        now = holder.held_bytes + holder.answer_bytes
        before = now - count
        if now <= SMALL_BYTES:
            if before <= SMALL_BYTES:
                self._small += count
            else:
                self._small += now
                del self._not_small[holder]
        elif before <= SMALL_BYTES:
            self._small -= before
            self._not_small[holder] = None

    def hold_unfinished(self, holder: Holder, before: int, now: int) -> None:
        self.unfinished += now - before
        if not before:
            self._unfinished[holder] = None
        elif not now:
            del self._unfinished[holder]
        self._changed(now - before)

    def _changed(self, count: int) -> None:
        served = self.held + self.answer_bytes
        self.is_tight = served >= self._served_tight or self.unfinished >= self._unfinished_tight
        if count < 0:
            if self._waiting:
                self._wake()
        elif served >= self._excess_max and not self._is_relieving:
            self._is_relieving = True
            asyncio.get_running_loop().call_soon(self._relieve_at_once)

    def _wake(self) -> None:
        if self.is_spent(READ_AGAIN_SHARE):
            # There may be room for one.
            oldest = next(iter(self._unfinished), None)
            woken = [oldest] if oldest in self._waiting and oldest is not None else []
        else:
            woken = list(self._waiting)
        for holder in woken:
            del self._waiting[holder]
            asyncio.get_running_loop().call_soon(holder.resume)

    def is_spent(self, share: float = 1.0) -> bool:
        return (
            self.held + self.answer_bytes >= self.served_max * share
            or self.unfinished >= self.unfinished_max * share
        )

    def forget(self, holder: Holder) -> None:
        self._waiting.pop(holder, None)

    # Permission to read

    def refuses(self, holder: Holder) -> bool:
        """Whether the connection must not read; it resumes when it may."""
        if self._has_served_room(holder) and self._has_frame_room(holder):
            return False
        self._waiting[holder] = None
        return True

    def _has_served_room(self, holder: Holder) -> bool:
        served = self.held + self.answer_bytes
        if holder.unfinished_bytes > LARGE_BYTES and served * 4 >= self.served_max:
            # When it is complete it is served, and all of it counts there.
            served += holder.unfinished_bytes + holder.wanted_bytes
        if served < self.served_max:
            return True
        if holder.is_privileged:
            return self._peers < self.served_max * _PEERS_RESERVE_SHARE
        is_small = (
            holder.held_bytes + holder.answer_bytes <= SMALL_BYTES
            and holder.unfinished_bytes + holder.wanted_bytes <= SMALL_BYTES
        )
        return is_small and self._small < self.served_max * _RESERVE_SHARE

    def _has_frame_room(self, holder: Holder) -> bool:
        unfinished, limit = self.unfinished, self.unfinished_max
        if unfinished * 2 < limit or not holder.unfinished_bytes:
            return True
        if holder.is_privileged:
            return unfinished < limit * (1 + _PEERS_RESERVE_SHARE)
        if holder.unfinished_bytes + holder.wanted_bytes <= SMALL_BYTES:
            return unfinished < limit * (1 + _RESERVE_SHARE)
        has_begun = holder.unfinished_bytes > LARGE_BYTES or next(iter(self._unfinished)) is holder
        return unfinished < limit and has_begun

    # Making room

    def relieve(self, now_ms: float) -> None:
        """Called periodically: closes connections whose unfinished frames make others wait."""
        for holder in list(self._blocking_others(now_ms)):
            holder.cut_off("memory for unfinished requests is short")
        for holder in list(self._parked(now_ms)):
            holder.cut_off("memory is short, and its request waits for something else")

    def _parked(self, now_ms: float) -> Iterator[Holder]:
        """The connections to close, largest first: their requests have waited for long, and
        together they hold most of the memory, though each holds little.
        """
        surplus = self.held + self.answer_bytes - self.served_max * READ_AGAIN_SHARE
        if not self._waiting or self.held + self.answer_bytes < self.served_max:
            return
        before_ms = now_ms - _STALLED_MS
        parked = [
            holder
            for holder in self._not_small
            if (since_ms := holder.parked_since_ms) is not None and since_ms < before_ms
        ]
        if sum(holder.held_bytes for holder in parked) * 2 < self.served_max:
            return
        for holder in sorted(parked, key=_bytes_of, reverse=True):
            if surplus <= 0:
                return
            surplus -= _bytes_of(holder)
            yield holder

    def _relieve_at_once(self) -> None:
        """Closes connections, largest first, until the excess is gone. The oldest stays, as a
        single request may be larger than the limit, and so do records that are being appended:
        closing their connection would not free them.
        """
        self._is_relieving = False
        surplus = self.held + self.answer_bytes - self._excess_max
        if surplus < 0:
            return
        surplus += (self._excess_max - self.served_max) // 2
        younger = [
            holder
            for holder in list(self._not_small)[1:]
            if holder.answer_bytes or holder.parked_since_ms is not None
        ]
        for holder in sorted(younger, key=_bytes_of, reverse=True):
            if surplus <= 0:
                return
            surplus -= _bytes_of(holder)
            holder.cut_off("memory is very short, and this client holds most of it")

    def _blocking_others(self, now_ms: float) -> Iterator[Holder]:
        is_short = self.unfinished >= self._unfinished_tight
        if not is_short or not any(holder in self._waiting for holder in self._unfinished):
            return
        ordinary = [holder for holder in self._unfinished if not holder.is_privileged]
        stalled = [holder for holder in ordinary if holder.is_stalled(now_ms, _STALLED_MS)]
        if stalled or not ordinary:
            yield from stalled
            return
        if self.unfinished < self.unfinished_max or ordinary[0] not in self._waiting:
            return
        if not self._has_served_room(ordinary[0]):
            # Closing others would not help it.
            return
        oldest, *younger = ordinary
        room = self.unfinished_max - self.unfinished
        while younger and room < oldest.wanted_bytes:
            youngest = younger.pop()
            room += youngest.unfinished_bytes
            yield youngest

    def is_hog(self, holder: Holder, now_ms: float) -> bool:
        """Whether it makes others wait for memory of the served share."""
        if holder.is_privileged:
            return False
        if holder.large_bytes and self.large_answers.is_waited_for:
            return holder.is_stalled(now_ms, _STALLED_MS)
        is_short = self.held + self.answer_bytes >= self.served_max or self._is_full_of_answers
        if not is_short:
            return False
        if holder.answer_bytes and holder.is_stalled(now_ms, _STALLED_MS):
            return True
        is_parked = holder.parked_since_ms is not None
        return is_parked and holder.held_bytes > self.served_max * _HOG_SHARE


def _bytes_of(holder: Holder) -> int:
    return holder.held_bytes + holder.answer_bytes
