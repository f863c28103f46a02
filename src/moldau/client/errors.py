"""What can go wrong for a user of the client, each with one line that says what to do."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError

_SIMILAR = 0.8
# Kafka's words for codes that come without a message.
_WORDS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.INVALID_GROUP_ID: "The configured groupId is invalid.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    ErrorCode.KAFKA_STORAGE_ERROR: "Disk error when trying to access log file on the disk.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
}


class ClientError(MoldauError):
    """Wrong use, wrong settings, a broker that cannot do it, or nobody there."""


class ConfigError(ClientError):
    """A setting that does not exist, or a value that it does not take."""


class NoBrokerError(ClientError):
    """None of the addresses that were given answers."""


class UnsupportedError(ClientError):
    """The broker is too old, or too new, for what is asked."""


class AuthenticationError(ClientError):
    """The broker does not believe who this client is, or this client not who the broker is. It does
    not pass by itself.
    """


class ClosedError(ClientError):
    """The client is closed, or belongs to a process that this one was forked from."""


class ClientTimeoutError(ClientError, TimeoutError):
    """It took longer than it may. What was asked may still happen."""


class UnknownTopicError(ClientError):
    """The cluster has no topic of this name, or hides it."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"topic '{name}' does not exist{did_you_mean(name, known)}")
        self.name = name


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=_SIMILAR)
    return f"; did you mean '{close[0]}'?" if close else ""


def error_code(number: int) -> ErrorCode:
    """A number of a newer broker that has no name here is an unknown error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def check(number: int, detail: str | None = None) -> None:
    """Raises KafkaError unless the number says that all is well."""
    if number != ErrorCode.NONE:
        fail(number, detail)


def fail(number: int, detail: str | None = None) -> NoReturn:
    code = error_code(number)
    raise KafkaError(code, detail or _WORDS.get(code, ""))
