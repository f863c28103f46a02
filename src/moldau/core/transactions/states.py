"""The states of a transactional id.

                    add partitions              end               all markers written
    Empty, Complete* ───────────> Ongoing ───────────> Prepare* ────────────────────> Complete*
    Empty, Complete* ─────abort (transaction version 2)────> PrepareAbort

InitProducerId turns Empty and Complete* into Empty, and aborts an Ongoing transaction. Numbers are
those of the log, names those of DescribeTransactions. Dead and PrepareEpochFence are never stored:
the id is about to expire, or its producer is about to be fenced.
"""

from enum import Enum


class TransactionState(Enum):
    EMPTY = (0, "Empty")
    ONGOING = (1, "Ongoing")
    PREPARE_COMMIT = (2, "PrepareCommit")
    """The commit is decided; nothing else can follow."""
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
"""No transaction is open: the id may expire or begin another one."""
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
"""The states that may follow each state."""

STORED = {state.number: state for state in _S if state not in {_S.DEAD, _S.PREPARE_EPOCH_FENCE}}
BY_TEXT = {state.text: state for state in _S}
