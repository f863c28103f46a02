"""Transactions that are decided but not replicated: readers of committed records wait for them."""

from collections import deque

from moldau.types import Offset


class UnreplicatedTransactions:
    """Completed transactions whose markers are not below the high watermark yet. They end in log
    order but may have begun in any: the smallest beginning of a sliding window, so each transaction
    costs a constant however far the high watermark lags.
    """

    __slots__ = ("_minima",)

    def __init__(self) -> None:
        # (first offset, last offset), both ascending; those that a later one undercuts drop out.
        self._minima: deque[tuple[int, int]] = deque()

    @property
    def first_offset(self) -> int | None:
        return self._minima[0][0] if self._minima else None

    def add(self, first_offset: Offset, last_offset: Offset) -> None:
        minima = self._minima
        while minima and minima[-1][0] >= first_offset:
            minima.pop()
        minima.append((first_offset, last_offset))

    def forget_before(self, offset: Offset) -> None:
        while self._minima and self._minima[0][1] < offset:
            self._minima.popleft()
