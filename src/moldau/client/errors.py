"""Errors of the clients. The text of each is one line that says what to do."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError, error_code

_SIMILAR = 0.8
# Apache Kafka's messages, for error codes that brokers send without one.
_MESSAGES = {
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
    """An error on this side: wrong use, wrong settings, or no suitable broker in reach."""


class ConfigError(ClientError):
    """A setting does not exist, is given twice, or has a wrong value."""


class NoBrokerError(ClientError):
    """No broker could be reached, neither a known one nor a bootstrap server."""


class UnsupportedError(ClientError):
    """The broker is too old, or too new, for the request."""


class AuthenticationError(ClientError):
    """The broker rejected this client's credentials, or its own certificate is not trusted. A retry
    does not help.
    """


class ClosedError(ClientError):
    """The client is closed, or was made before the process was forked."""


class ClientTimeoutError(ClientError, TimeoutError):
    """A call took longer than its timeout. The request may still take effect."""


class UnknownTopicError(ClientError):
    """The topic does not exist, or this client may not describe it."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"topic '{name}' does not exist{did_you_mean(name, known)}")
        self.name = name


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=_SIMILAR)
    return f"; did you mean '{close[0]}'?" if close else ""


def check(number: int, detail: str | None = None) -> None:
    """Raises KafkaError unless the number is 0."""
    if number != ErrorCode.NONE:
        fail(number, detail)


def fail(number: int, detail: str | None = None) -> NoReturn:
    code = error_code(number)
    raise KafkaError(code, detail or _MESSAGES.get(code, ""))
