"""The states of a transactional producer, and the effect of errors: continue, abort, or stop.
Covers both protocols: in the second one (KIP-890) brokers add partitions automatically, and every
end of a transaction raises the epoch.
"""

from enum import Enum, auto

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.types import TopicPartition

TRANSACTION_VERSION_FEATURE = "transaction.version"

_STOPS = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class MustAbortError(KafkaError):
    """The transaction cannot be committed; abort it and begin another one."""


class MustStopError(KafkaError):
    """This producer is unusable; close it. Another producer has its transactional id, or the broker
    and this producer disagree on its state.
    """


class Phase(Enum):
    NEW = auto()
    READY = auto()
    OPEN = auto()
    COMMITTING = auto()
    ABORTING = auto()
    MUST_ABORT = auto()
    MUST_STOP = auto()


_NAMES = {
    Phase.NEW: "init_transactions() was not called",
    Phase.READY: "no transaction is open",
    Phase.OPEN: "a transaction is open",
    Phase.COMMITTING: "the transaction is being committed",
    Phase.ABORTING: "the transaction is being aborted",
}


class TransactionMisuseError(MoldauError):
    """The call is not allowed in the transaction's state."""


class Transactions:
    def __init__(self) -> None:
        self.phase = Phase.NEW
        self.error: KafkaError | None = None
        self.is_second_protocol = False
        self.needs_new_epoch = False
        """Whether batches that were sent before an abort may or may not be in the log."""
        self._added: set[TopicPartition] = set()
        self._pending: set[TopicPartition] = set()
        self._has_written = False

    # The user's calls.

    def initialized(self, *, is_second_protocol: bool) -> None:
        self.phase = Phase.READY
        self.is_second_protocol = is_second_protocol

    def begin(self) -> None:
        self._expect({Phase.READY}, "begin a transaction")
        self.phase = Phase.OPEN
        self._added.clear()
        self._pending.clear()
        self._has_written = False

    def check_open(self, what: str) -> None:
        """Raises unless records and offsets can be added."""
        self._expect({Phase.OPEN}, what)

    def begin_commit(self) -> None:
        self._expect({Phase.OPEN}, "commit")
        self.phase = Phase.COMMITTING

    def begin_abort(self) -> None:
        self._expect({Phase.OPEN, Phase.MUST_ABORT}, "abort")
        self.phase = Phase.ABORTING
        self.error = None
        self._pending.clear()

    def ended(self) -> None:
        self.phase = Phase.READY
        self.error = None
        self.needs_new_epoch = False

    def _expect(self, phases: set[Phase], what: str) -> None:
        if self.phase in phases:
            return
        if self.error is not None:
            raise self.error
        raise TransactionMisuseError(f"cannot {what}: {_NAMES[self.phase]}")

    # Partitions.

    def may_write(self, partition: TopicPartition) -> bool:
        """Whether the partition is part of the transaction. If not, remembers that it must first be
        added at the coordinator.
        """
        if self.phase in {Phase.NEW, Phase.READY, Phase.MUST_ABORT, Phase.MUST_STOP}:
            return False
        if self.is_second_protocol or partition in self._added:
            self._has_written = True
            return True
        if self.phase is not Phase.ABORTING:
            self._pending.add(partition)
        return False

    @property
    def pending(self) -> set[TopicPartition]:
        return set(self._pending)

    def added(self, partitions: set[TopicPartition]) -> None:
        self._pending -= partitions
        self._added |= partitions

    def offsets_added(self) -> None:
        self._has_written = True

    @property
    def must_be_ended(self) -> bool:
        """False if the coordinator does not know this transaction."""
        return self._has_written or bool(self._added)

    # Errors.

    def failed(self, error: Exception) -> KafkaError:
        """The effect of a failed batch or request; returns the error that users get from now on."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        detail = error.detail if isinstance(error, KafkaError) else str(error)
        if self.phase is Phase.MUST_STOP:
            assert self.error is not None
            return self.error
        if code in _STOPS or self.phase is Phase.NEW:
            self.phase = Phase.MUST_STOP
            self.error = MustStopError(code, f"{detail}; close this producer".lstrip("; "))
        elif self.phase in {Phase.OPEN, Phase.COMMITTING, Phase.MUST_ABORT}:
            self.phase = Phase.MUST_ABORT
            self.error = MustAbortError(code, f"{detail}; abort the transaction".lstrip("; "))
            self.needs_new_epoch = True
        else:
            return error if isinstance(error, KafkaError) else KafkaError(code, detail)
        return self.error
