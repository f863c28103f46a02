"""Python's loggers as Kafka's BROKER_LOGGER resource: their levels under Kafka's names. They belong
to the process, so that nodes in one process share them. Changes do not survive a restart.
"""

import logging
from collections.abc import Sequence

from moldau.config.alter import Change, Operation
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

ROOT = "root"
_LEVELS = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}


def logger_levels() -> dict[str, str]:
    """The effective level of each logger that exists, including the root's."""
    known = sorted(
        name
        for name, logger in logging.Logger.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    )
    levels = {ROOT: _level_name(logging.getLogger().level)}
    return levels | {
        name: _level_name(logging.getLogger(name).getEffectiveLevel()) for name in known
    }


def change_levels(changes: Sequence[Change], *, validate_only: bool) -> None:
    """Makes all changes or, if one is invalid, none. Raises KafkaError."""
    known = logger_levels()
    for change in changes:
        _check(change, known)
    if not validate_only:
        for change in changes:
            _logger(change.name).setLevel(_new_level(change))


def _new_level(change: Change) -> int:
    # A deletion's value is ignored; Java sends an empty one.
    if change.operation == Operation.DELETE or change.value is None:
        return logging.NOTSET
    return _LEVELS[change.value.upper()]


def _check(change: Change, known: dict[str, str]) -> None:
    """Raises errors with Kafka's messages."""
    if change.operation not in {Operation.SET, Operation.DELETE}:
        is_known = change.operation in frozenset(Operation)
        operation = Operation(change.operation).name if is_known else f"Unknown {change.operation}"
        detail = f"{operation} operation is not allowed for the BROKER_LOGGER resource"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    if change.name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.operation == Operation.DELETE:
        if change.name == ROOT:
            detail = "Removing the log level of the root logger is not allowed"
            raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
    elif change.value is None or change.value.upper() not in _LEVELS:
        detail = (
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported "
            "log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, detail)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    """The most detailed of Kafka's levels that still shows everything at `level`."""
    return next((name for name, number in _LEVELS.items() if level >= number), "TRACE")
