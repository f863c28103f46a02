"""Two kinds of transactional producers behind one small interface: librdkafka's, and the one that
speaks the protocol itself. Where nodes are killed only the latter is used: librdkafka 2.x may
then fail an assertion of its own (`txn_req_cnt > 0`), and abort the whole process.
"""

from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import KafkaException, Producer
from system.node.questions import Place
from system.transactions.wire_producer import Style, WireProducer

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

CLIENT_TIMEOUT_S = 60.0
TIMEOUT_MS = 30_000
_ATTEMPTS_MAX = 50

QUIET = {
    "log_level": 0,
    "error_cb": lambda _error: None,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
}
_SHUT_OUT = {
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
_ABORTABLE = {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE}


class MustAbortError(Exception):
    """The transaction can only be aborted."""


class LostError(Exception):
    """The producer is unusable from now on."""

    def __init__(self, reason: object, *, is_fenced: bool) -> None:
        super().__init__(reason)
        self.is_fenced = is_fenced


class Session(Protocol):
    """Has its transactional id from the beginning. Raises MustAbortError or LostError."""

    def begin(self) -> None: ...
    def send(self, place: Place, value: bytes) -> None: ...
    def flush(self) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


OpenSession = Callable[[str], Session]
"""By transactional id."""


class ConfluentSession:
    def __init__(self, address: str, transactional_id: str) -> None:
        self._producer: Any = Producer(
            {
                "bootstrap.servers": address,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 0,
                **QUIET,
            }
        )
        self._again(self._producer.init_transactions)

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise _named(error) from error

    def send(self, place: Place, value: bytes) -> None:
        topic, index = place
        try:
            self._producer.produce(topic, value, partition=index)
        except KafkaException as error:
            raise _named(error) from error

    def flush(self) -> None:
        self._producer.flush(CLIENT_TIMEOUT_S)

    def commit(self) -> None:
        self._again(self._producer.commit_transaction)

    def abort(self) -> None:
        self._again(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.purge()

    def _again(self, attempt: Callable[[float], None]) -> None:
        """As librdkafka requests it."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                attempt(CLIENT_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise _named(error) from error
            else:
                return
        raise AssertionError("no attempt was the last")


def _named(error: KafkaException) -> Exception:
    reason = error.args[0]
    if reason.txn_requires_abort():
        return MustAbortError(reason)
    return LostError(reason, is_fenced=reason.code() == ConfluentError._FENCED)


class WireSession:
    def __init__(self, address: str, transactional_id: str, style: Style) -> None:
        self._producer = WireProducer(address, transactional_id, style, TIMEOUT_MS)
        self._try(self._producer.init)

    def begin(self) -> None:
        """The id is irrelevant."""

    def send(self, place: Place, value: bytes) -> None:
        self._try(lambda: self._producer.send(place, value))

    def flush(self) -> None:
        """Everything was answered."""

    def commit(self) -> None:
        self._try(lambda: self._producer.end(commits=True))

    def abort(self) -> None:
        self._try(lambda: self._producer.end(commits=False))

    def close(self) -> None:
        self._producer.hang_up()

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except KafkaError as error:
            if error.code in _ABORTABLE:
                raise MustAbortError(error) from error
            raise LostError(error, is_fenced=error.code in _SHUT_OUT) from error
