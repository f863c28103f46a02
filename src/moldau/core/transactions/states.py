"""The states of a transactional id.

                    add partitions              end               all markers written
    Empty, Complete* ───────────> Ongoing ───────────> Prepare* ────────────────────> Complete*
    Empty, Complete* ─────abort (transaction version 2)────> PrepareAbort

InitProducerId makes Empty of Empty and Complete*, and aborts what is Ongoing. Numbers are those of
the log, names those of DescribeTransactions. Dead and PrepareEpochFence are never in a log: they
say that an id is about to be forgotten, and that its producer is about to be fenced.
"""

from enum import Enum


class TransactionState(Enum):
    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    """Decided: from here on nothing but the commit can happen."""
    PREPARE_ABORT = (3, "PrepareAbort")
    COMPLETE_COMMIT = (4, "CompleteCommit")
    COMPLETE_ABORT = (5, "CompleteAbort")
    DEAD = (6, "Dead")
    PREPARE_EPOCH_FENCE = (7, "PrepareEpochFence")

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def text(self) -> str:
        return self.value[1]


_S = TransactionState

AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open: the id may expire, or begin another."""
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})

ALLOWED: dict[TransactionState, frozenset[TransactionState]] = {
    **dict.fromkeys(AT_REST, frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD})),
    _S.ONGOING: frozenset(
        {_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT, _S.PREPARE_EPOCH_FENCE}
    ),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.DEAD: frozenset(),
}
"""What may follow each state."""

STORED = {state.number: state for state in _S if state not in {_S.DEAD, _S.PREPARE_EPOCH_FENCE}}
BY_TEXT = {state.text: state for state in _S}
