"""Validates arguments, of Python and YAML alike: words, times, formats."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias, TypeVar

from moldau.core.pipelines.graph import (
    Expectation,
    Format,
    FormatKind,
    OnError,
    PipelineError,
    Problem,
    Spot,
    Trigger,
)
from moldau.core.spark.errors import OptionError, suggestion

_STARTS = ("latest", "earliest", "group")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
Word = TypeVar("Word", bound=StrEnum)
Expected: TypeAlias = Mapping[str, str] | Sequence[Expectation] | None
"""Conditions in Spark SQL by name."""


def pipeline_error(spot: Spot, text: str) -> PipelineError:
    return PipelineError(Problem(spot, text))


def word_of(kind: type[Word], value: object, what: str, spot: Spot) -> Word:
    words = [member.value for member in kind]
    if value not in words:
        hint = suggestion(str(value), words)
        raise pipeline_error(
            spot, f"{what} must be {', '.join(words[:-1])} or {words[-1]}, not '{value}'{hint}"
        )
    return kind(value)


def on_error_of(word: str | None, dead_letter: str | None, spot: Spot) -> OnError:
    """Decides how a source handles bad records: as `on_error` says, or as dead letters if it
    names a topic for them.
    """
    if word is not None:
        return word_of(OnError, word, "on_error", spot)
    return OnError.FAIL if dead_letter is None else OnError.DEAD_LETTER


def whole_of(given: object, what: str, spot: Spot) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise pipeline_error(spot, f"{what} must be a whole number from 1, not {given!r}")
    return given


def check_whole(spot: Spot, **given: object) -> None:
    """Checks the arguments that are not None."""
    for name, value in given.items():
        if value is not None:
            whole_of(value, name, spot)


def format_of(given: Format | str, schema: str | None, spot: Spot) -> Format:
    if isinstance(given, Format):
        if schema is not None:
            raise pipeline_error(spot, "put the schema into the format: mp.json('id BIGINT')")
        return given
    kind = word_of(FormatKind, given, "format", spot)
    if kind in {FormatKind.AVRO, FormatKind.PROTOBUF, FormatKind.JSON_SCHEMA}:
        raise pipeline_error(spot, f"{kind} needs a registry")
    return Format(kind, schema)


def start_of(given: str | int | datetime, spot: Spot) -> str:
    """A word, or milliseconds since 1970."""
    if isinstance(given, datetime):
        moment = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
        return str(round(moment.timestamp() * 1000))
    if isinstance(given, int):
        return str(given)
    if given in _STARTS or str(given).isdecimal():
        return given
    try:
        return start_of(datetime.fromisoformat(given), spot)
    except (ValueError, TypeError):
        hint = suggestion(str(given), _STARTS)
        raise pipeline_error(
            spot, f"start must be latest, earliest, group or a time, not '{given}'{hint}"
        ) from None


def trigger_of(given: str | None, spot: Spot) -> Trigger:
    if given is None:
        return Trigger()
    if given == "available_now":
        return Trigger(available_now=True)
    try:
        return Trigger(every_ms=duration_ms(given))
    except OptionError as error:
        raise pipeline_error(spot, f"trigger {error}, or available_now") from None


def refresh_of(given: str, spot: Spot) -> int | None:
    """`start`, which is None, or a duration."""
    if given == "start":
        return None
    try:
        return duration_ms(given)
    except OptionError as error:
        raise pipeline_error(spot, f"refresh {error}, or start") from None


def settings_of(given: Mapping[str, object] | None) -> tuple[tuple[str, str], ...]:
    """Values as Kafka writes them: true, not True."""
    return tuple(
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in (given or {}).items()
    )


def expectations_of(
    given: Mapping[str, str] | Sequence[Expectation] | None, spot: Spot
) -> tuple[Expectation, ...]:
    """Expectations from `{name: condition}`, or from YAML, where each has its line already."""
    if not isinstance(given, Mapping):
        return tuple(given or ())
    for name, condition in given.items():
        if not str(condition).strip():
            raise pipeline_error(spot, f"expectation {name} has no condition")
    return tuple(Expectation(name, str(condition), spot) for name, condition in given.items())


def duration_ms(given: str) -> int:
    """`500ms`, `10s`, `5m`. Raises OptionError."""
    number = str(given).rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = str(given)[len(number) :].strip()
    if not number.isdecimal() or unit not in _UNITS_MS:
        raise OptionError(f"'{given}' is not a duration; write 500ms, 10s, 5m or 2h")
    return int(number) * _UNITS_MS[unit]
