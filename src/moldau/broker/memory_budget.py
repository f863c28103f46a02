"""The memory that all connections of a node take together, and who gives way when it is short.

There are two shares, so that one cannot take the other's: frames that are being read, and what is
served (requests that wait for their turn or their answer, and answers that nobody has read yet).
At its limit a share is not read for any more, except by those who hold next to nothing, and by the
node's own peers. Unread answers may take a part of what is served; beyond it fetches get nothing.
What would then wait for ever is ended: of unfinished frames the stalled ones, or else the youngest,
until the oldest has room; of the rest whoever reads its answers too slowly, or holds a large part
for a request that waits.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from moldau.protocol.frame import FRAME_BYTES_MAX

READ_AGAIN_SHARE = 0.8
SMALL_BYTES = 16 * 1024
"""Who holds no more goes on when memory is short, up to the reserve."""
LARGE_BYTES = 256 * 1024
"""A frame that is larger waits when half of the share is taken: what was begun needs the rest."""
_RESERVE_SHARE = 1.25
_PEERS_RESERVE_SHARE = 1.5
_ANSWER_BYTES_MIN = 64 * 1024
_ANSWERS_SHARE = 0.75
"""Of what is served, for answers that nobody has read: requests of others need the rest."""
TIGHT_READ_BYTES = 16 * 1024
"""What is read at once when memory is tight."""
_STALLED_MS = 1_000
_HOG_SHARE = 1 / 8
_READ_SWEEPS_MAX = 10
"""A client is slow if it needs more of the listener's sweeps for the rest of its answers."""


class Holder(Protocol):
    """A connection."""

    is_privileged: bool
    held_bytes: int
    """Requests that wait."""
    answer_bytes: int
    """Answers that it has not read."""
    unfinished_bytes: int
    """A frame that is not complete."""

    @property
    def wanted_bytes(self) -> int:
        """What is missing of it."""

    def budget_is_back(self) -> None: ...

    def is_stalled(self, now_ms: float, patience_ms: float) -> bool:
        """Whether its client has not done its part for so long, or reads far too slowly."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a request of it waits, and all behind it: not one that is being written."""

    def cut_off(self, reason: str) -> None: ...


class UnreadAnswers:
    """How a client goes on reading, as the sweeps of its listener find it."""

    __slots__ = ("_bytes", "is_read_slowly")

    def __init__(self) -> None:
        self._bytes = 0
        self.is_read_slowly = False
        """A byte now and then is as good as none to those who need the memory."""

    def are_now(self, unread_bytes: int) -> bool:
        """Whether the client has read some since the sweep before."""
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
        self.is_tight = False
        """Half of a share is taken: less is read at once, and some may have to wait."""
        self._waiting: dict[Holder, None] = {}
        # By age.
        self._unfinished: dict[Holder, None] = {}
        self.read_limit()

    def read_limit(self) -> None:
        """The setting may have changed; asked for now and then, as every request needs it."""
        limit = self._limit()
        self.served_max = limit // 2
        self.unfinished_max = max(limit - self.served_max, self._frame_bytes_max())
        self._served_tight, self._unfinished_tight = self.served_max // 2, self.unfinished_max // 2
        self._changed(0)

    @property
    def connection_bytes_max(self) -> int:
        """What one connection may hold: no more than a part of what all may."""
        return self.served_max // 4

    def room_for_answer(self, *, is_privileged: bool = False) -> int:
        """How large an answer should be at most that could also come in parts, or later. The more
        is held, the less there is for each; 0 for all but the node's peers when too many answers
        are not read.
        """
        if self._is_full_of_answers and not is_privileged:
            return 0
        return max(self.served_max - self.held - self.answer_bytes, _ANSWER_BYTES_MIN)

    @property
    def _is_full_of_answers(self) -> bool:
        return self.answer_bytes >= self.served_max * _ANSWERS_SHARE

    # What is held

    def hold(self, count: int) -> None:
        self.held += count
        self._changed(count)

    def hold_answers(self, count: int) -> None:
        self.answer_bytes += count
        self._changed(count)

    def hold_unfinished(self, holder: Holder, before: int, now: int) -> None:
        self.unfinished += now - before
        if not before:
            self._unfinished[holder] = None
        elif not now:
            del self._unfinished[holder]
        self._changed(now - before)

    def _changed(self, count: int) -> None:
        self.is_tight = (
            self.held + self.answer_bytes >= self._served_tight
            or self.unfinished >= self._unfinished_tight
        )
        if count < 0 and self._waiting:
            self._wake()

    def _wake(self) -> None:
        if self.is_spent(READ_AGAIN_SHARE):
            # There may be room for one.
            oldest = next(iter(self._unfinished), None)
            woken = [oldest] if oldest in self._waiting and oldest is not None else []
        else:
            woken = list(self._waiting)
        for holder in woken:
            del self._waiting[holder]
            asyncio.get_running_loop().call_soon(holder.budget_is_back)

    def is_spent(self, share: float = 1.0) -> bool:
        return (
            self.held + self.answer_bytes >= self.served_max * share
            or self.unfinished >= self.unfinished_max * share
        )

    def forget(self, holder: Holder) -> None:
        self._waiting.pop(holder, None)

    # Who may read

    def refuses(self, holder: Holder) -> bool:
        """Whether it must not read; it is told when it may."""
        if self._has_served_room(holder) and self._has_frame_room(holder):
            return False
        self._waiting[holder] = None
        return True

    def _has_served_room(self, holder: Holder) -> bool:
        served = self.held + self.answer_bytes
        if served < self.served_max:
            return True
        if holder.is_privileged:
            return served < self.served_max * _PEERS_RESERVE_SHARE
        is_small = holder.held_bytes + holder.answer_bytes <= SMALL_BYTES
        return is_small and served < self.served_max * _RESERVE_SHARE

    def _has_frame_room(self, holder: Holder) -> bool:
        unfinished, limit = self.unfinished, self.unfinished_max
        if unfinished * 2 < limit or not holder.unfinished_bytes:
            return True
        if holder.is_privileged:
            return unfinished < limit * _PEERS_RESERVE_SHARE
        if holder.unfinished_bytes + holder.wanted_bytes <= SMALL_BYTES:
            return unfinished < limit * _RESERVE_SHARE
        has_begun = holder.unfinished_bytes > LARGE_BYTES or next(iter(self._unfinished)) is holder
        return unfinished < limit and has_begun

    # Who gives way

    def relieve(self, now_ms: float) -> None:
        """Called every now and then: ends unfinished frames that keep others waiting."""
        for holder in list(self._in_the_way(now_ms)):
            holder.cut_off("memory for unfinished requests is short")

    def _in_the_way(self, now_ms: float) -> Iterator[Holder]:
        is_short = self.unfinished >= self._unfinished_tight
        if not is_short or not any(holder in self._waiting for holder in self._unfinished):
            return
        ordinary = [one for one in self._unfinished if not one.is_privileged]
        stalled = [one for one in ordinary if one.is_stalled(now_ms, _STALLED_MS)]
        if stalled or not ordinary:
            yield from stalled
            return
        if self.unfinished < self.unfinished_max or ordinary[0] not in self._waiting:
            return
        oldest, *younger = ordinary
        room = self.unfinished_max - self.unfinished
        while younger and room < oldest.wanted_bytes:
            youngest = younger.pop()
            room += youngest.unfinished_bytes
            yield youngest

    def is_hog(self, holder: Holder, now_ms: float) -> bool:
        """Whether it keeps others waiting for the memory of what is served."""
        is_short = self.held + self.answer_bytes >= self.served_max or self._is_full_of_answers
        if holder.is_privileged or not is_short:
            return False
        if holder.answer_bytes and holder.is_stalled(now_ms, _STALLED_MS):
            return True
        return holder.is_waited_for and holder.held_bytes > self.served_max * _HOG_SHARE
