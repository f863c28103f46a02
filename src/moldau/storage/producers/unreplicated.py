"""Transactions that are decided but not replicated: they limit the last stable offset."""

from collections import deque

from moldau.types import Offset


class UnreplicatedTransactions:
    """Completed transactions whose markers are not below the high watermark yet. They end in log
    order but may have begun in any order. The minimum of their starts is that of a sliding window,
    so each transaction costs constant time however far the high watermark lags.
    """

    __slots__ = ("_minima",)

    def __init__(self) -> None:
        # (first offset, last offset), both ascending; entries undercut by a later one are dropped.
        self._minima: deque[tuple[Offset, Offset]] = deque()

    @property
    def first_offset(self) -> Offset | None:
        return self._minima[0][0] if self._minima else None

    def add(self, first_offset: Offset, last_offset: Offset) -> None:
        minima = self._minima
        while minima and minima[-1][0] >= first_offset:
            minima.pop()
        minima.append((first_offset, last_offset))

    def forget_before(self, offset: Offset) -> None:
        while self._minima and self._minima[0][1] < offset:
            self._minima.popleft()
