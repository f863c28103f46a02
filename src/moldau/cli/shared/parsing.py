"""Parses values of the command line: times, durations, topics with partitions, settings."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import typer

from moldau.net.clock import Clock
from moldau.types import TopicPartition

_ISO_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)
_SHORT_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)


def parse_time_ms(text: str) -> int:
    """Milliseconds, or ISO 8601; a time without a zone is UTC, as in Kafka's tools. Never below
    zero: negative timestamps have special meanings to a broker.
    """
    if re.fullmatch(r"\d{5,}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' is not a time; write 2026-05-01T12:00:00, or milliseconds since 1970."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(round(moment.timestamp() * 1000), 0)


def parse_duration_ms(text: str) -> int:
    """ISO 8601 (PT1H30M) or short (90m)."""
    if short := _SHORT_DURATION.fullmatch(text):
        return round(float(short[1]) * _UNIT_MS[short[2]])
    if (iso := _ISO_DURATION.fullmatch(text)) and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
    raise typer.BadParameter(f"'{text}' is not a duration; write 90m, 2h, 7d or PT1H30M.")


def parse_ago_ms(text: str) -> int:
    """A duration before now."""
    return max(Clock().wall_ms() - parse_duration_ms(text), 0)


def parse_size(text: str) -> int:
    """1000, 64k, 1MiB"""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"'{text}' is not a size; write 1000, 64k or 1m.")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


def parse_pattern(text: str) -> re.Pattern[str]:
    """A regular expression, to be matched with whole names."""
    try:
        return re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"'{text}' is not a regular expression: {error}.") from None


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """`orders`, `orders:3`, `orders:0,1` or `orders:0-5`; None: all partitions."""
    name, colon, numbers = text.partition(":")
    if not name:
        raise typer.BadParameter(f"'{text}' has no topic name.")
    return name, parse_numbers(numbers) if colon else None


def parse_numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise typer.BadParameter(f"'{text}' is not a list of numbers; write 0,1,5-7.")
        numbers += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(numbers))


def parse_partitions(texts: Iterable[str]) -> tuple[list[str], list[TopicPartition]]:
    """Topics with all their partitions, and single partitions."""
    topics, partitions = [], []
    for text in texts:
        name, numbers = parse_topic(text)
        if numbers is None:
            topics.append(name)
        else:
            partitions += [TopicPartition(name, number) for number in numbers]
    return topics, partitions


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """`name=value`; a value may contain `=`."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"'{text}' is not a setting; write name=value.")
        settings[name.strip()] = value
    return settings


def time_text(time_ms: int) -> str:
    """In UTC, to the millisecond."""
    if time_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1000:03d}Z"
