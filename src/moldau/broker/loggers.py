"""Python's loggers as Kafka's BROKER_LOGGER resource: their levels under Kafka's names. They belong
to the process: nodes that share one share their loggers. Nothing of it survives a restart.
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
    """The level in force of each logger that exists, the root's among them."""
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
    """All of them or, if one can not be made, none. Raises KafkaError."""
    known = logger_levels()
    for change in changes:
        _check(change, known)
    if not validate_only:
        for change in changes:
            _logger(change.name).setLevel(_new_level(change))


def _new_level(change: Change) -> int:
    # A deletion's value means nothing; Java sends an empty one.
    if change.operation == Operation.DELETE or change.value is None:
        return logging.NOTSET
    return _LEVELS[change.value.upper()]


def _check(change: Change, known: dict[str, str]) -> None:
    if change.operation not in {Operation.SET, Operation.DELETE}:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{change.name}: a logger's level is only set or deleted"
        )
    if change.name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name}: no such logger")
    if change.operation == Operation.DELETE:
        if change.name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger always has a level")
    elif change.value is None or change.value.upper() not in _LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{change.name}={change.value!r} is not one of {', '.join(_LEVELS)}",
        )


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    """The most detailed of Kafka's levels that still shows everything at `level`."""
    return next((name for name, number in _LEVELS.items() if level >= number), "TRACE")
