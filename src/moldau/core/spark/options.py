"""The options of source and sink, with the names and meanings of Spark's own `kafka` format. Spark
passes names in lower case. Errors are one line, raised before anything runs.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from moldau.core.spark.errors import OptionError, suggestion
from moldau.core.spark.offset_bounds import (
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    Latest,
    OffsetBound,
)
from moldau.core.spark.offset_json import parse_assignment, parse_numbers
from moldau.frozen import frozen
from moldau.types import TopicPartition

KAFKA_PREFIX = "kafka."
SOURCE_OPTIONS = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "groupIdPrefix",
    "pushFilters",
    "longPollMs",
    "publishProgress",
)
SINK_OPTIONS = ("topic", "includeHeaders", "delivery")
# Options of Spark itself, and those of its own source that have no effect here.
IGNORED_OPTIONS = (
    "path",
    "checkpointLocation",
    "queryName",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
)
_ALL = (*SOURCE_OPTIONS, *SINK_OPTIONS, *IGNORED_OPTIONS)
_LOWER = {name.lower() for name in _ALL}
# Settings that the source controls itself; Spark's own source refuses them, too.
_REFUSED_SETTINGS = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "the query's position is in its checkpoint",
    "key.deserializer": "keys are bytes; cast them in the query",
    "value.deserializer": "values are bytes; cast them in the query",
    "interceptor.classes": "interceptors are not supported",
}
_REFUSED_SINK_SETTINGS = {
    "key.serializer": "keys are bytes or texts; cast them in the query",
    "value.serializer": "values are bytes or texts; cast them in the query",
}
_TABLE = (
    "CREATE TABLE ... USING moldau does not work because Spark drops its options; "
    "write CREATE TEMPORARY VIEW ... USING moldau OPTIONS (...)"
)
QUERY_ID_PROPERTY = "sql.streaming.queryId"
"""The local property of Spark's driver that has the id of a micro-batch's query."""
_DELAY_MS_DEFAULT = 15 * 60 * 1000
_LONG_POLL_MS_DEFAULT = 500
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@frozen
class Subscribe:
    topics: tuple[str, ...]


@frozen
class SubscribePattern:
    pattern: str


@frozen
class Assign:
    partitions: frozenset[TopicPartition]


Strategy: TypeAlias = Subscribe | SubscribePattern | Assign


@frozen(kw_only=True)
class SourceOptions:
    settings: dict[str, str]
    """Settings of the client, without their prefix."""
    strategy: Strategy
    starting: OffsetBound
    ending: OffsetBound
    is_lenient_by_time: bool
    """Whether a time after the last record means latest; otherwise it is an error."""
    fails_on_data_loss: bool
    tasks_min: int | None
    rows_per_task_max: int | None
    rows_max: int | None
    rows_min: int | None
    delay_ms_max: int
    has_headers: bool
    group_prefix: str
    pushes_filters: bool
    long_poll_ms: int
    publishes_progress: bool


@frozen(kw_only=True)
class SinkOptions:
    settings: dict[str, str]
    topic: str | None
    """None: the topic is a column of each row."""


Options: TypeAlias = Mapping[str, str]


def check_names(options: Options) -> None:
    """Raises OptionError for an unknown option."""
    if "provider" in options:
        # Spark's own property for a table's format.
        raise OptionError(_TABLE)
    for name in options:
        if name.lower() not in _LOWER and not name.lower().startswith(KAFKA_PREFIX):
            hint = suggestion(name, (*_ALL, "kafka.bootstrap.servers"))
            raise OptionError(f"there is no option '{name}'{hint}")


def source_options(options: Options, *, is_stream: bool) -> SourceOptions:
    options = {name.lower(): value for name, value in options.items()}
    check_names(options)
    settings = _settings(options, _REFUSED_SETTINGS)
    settings.setdefault("isolation.level", "read_committed")
    starting = _bound(options, "starting", Latest() if is_stream else Earliest())
    ending = _bound(options, "ending", Latest())
    _check_bounds(options, starting, ending, is_stream=is_stream)
    strategy_by_time = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy_by_time not in {"error", "latest"}:
        raise OptionError(
            f"startingOffsetsByTimestampStrategy must be error or latest, not '{strategy_by_time}'"
        )
    rows_max = _whole_number(options, "maxOffsetsPerTrigger")
    rows_min = _whole_number(options, "minOffsetsPerTrigger")
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        raise OptionError(
            f"minOffsetsPerTrigger={rows_min} is more than maxOffsetsPerTrigger={rows_max}"
        )
    long_poll_ms = _whole_number(options, "longPollMs", least=0)
    return SourceOptions(
        settings=settings,
        strategy=_strategy(options),
        starting=starting,
        ending=ending,
        is_lenient_by_time=strategy_by_time == "latest",
        fails_on_data_loss=_flag(options, "failOnDataLoss", True),
        tasks_min=_whole_number(options, "minPartitions"),
        rows_per_task_max=_whole_number(options, "maxRecordsPerPartition"),
        rows_max=rows_max,
        rows_min=rows_min,
        delay_ms_max=_duration_ms(options, "maxTriggerDelay", _DELAY_MS_DEFAULT),
        has_headers=_flag(options, "includeHeaders", False),
        group_prefix=options.get("groupidprefix", "moldau.query"),
        pushes_filters=_flag(options, "pushFilters", False),
        long_poll_ms=_LONG_POLL_MS_DEFAULT if long_poll_ms is None else long_poll_ms,
        publishes_progress=_flag(options, "publishProgress", True),
    )


def sink_options(options: Options) -> SinkOptions:
    options = {name.lower(): value for name, value in options.items()}
    check_names(options)
    misplaced = [
        name for name in SOURCE_OPTIONS if name.lower() in options and name not in SINK_OPTIONS
    ]
    if misplaced:
        hint = "; write topic" if "subscribe" in misplaced else ""
        raise OptionError(f"{misplaced[0]} is an option for reading, not for writing{hint}")
    delivery = options.get("delivery", "at_least_once").strip().lower()
    if delivery == "exactly_once":
        raise OptionError(
            "delivery=exactly_once needs one task per partition, which Spark does not give a sink; "
            "write with foreachBatch(moldau.spark.ExactlyOnceSink(...))"
        )
    if delivery != "at_least_once":
        raise OptionError(f"delivery must be at_least_once or exactly_once, not '{delivery}'")
    topic = options.get("topic")
    if topic is not None and not (topic := topic.strip()):
        raise OptionError("topic is empty; name the topic to write to")
    return SinkOptions(settings=_settings(options, _REFUSED_SINK_SETTINGS), topic=topic)


def _settings(options: Options, refused: Mapping[str, str]) -> dict[str, str]:
    settings = {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in options.items()
        if name.startswith(KAFKA_PREFIX)
    }
    for name, reason in refused.items():
        if name in settings:
            raise OptionError(f"kafka.{name} is not supported; {reason}")
    if options.keys() <= {"path"}:
        raise OptionError(_TABLE)
    if not settings.get("bootstrap.servers", "").strip():
        raise OptionError('no broker is given; add .option("kafka.bootstrap.servers", "host:9092")')
    return settings


def _strategy(options: Options) -> Strategy:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(ways) != 1:
        found = " and ".join(ways) + " are given" if ways else "none is given"
        raise OptionError(f"one of subscribe, subscribePattern and assign is needed; {found}")
    text = options[ways[0].lower()].strip()
    match ways[0]:
        case "subscribe":
            topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
            if not topics:
                raise OptionError("subscribe is empty; name topics, separated by commas")
            return Subscribe(topics)
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise OptionError(f"subscribePattern: '{text}' is not a pattern: {error}") from None
            if not text:
                raise OptionError("subscribePattern is empty; orders.* is a pattern")
            return SubscribePattern(text)
        case _:
            return Assign(parse_assignment(text))


def _bound(options: Options, side: str, default: OffsetBound) -> OffsetBound:
    """As in Spark, one time for all has priority over times, and times over offsets."""
    option = f"{side}Timestamp"
    if (text := options.get(option.lower())) is not None:
        if not text.strip().isdecimal():
            raise OptionError(f"{option}={text} is not a time; write milliseconds since 1970")
        return AtTime(int(text), option)
    option = f"{side}OffsetsByTimestamp"
    if (text := options.get(option.lower())) is not None:
        return AtTimes(parse_numbers(text, option, least=0), option)
    option = f"{side}Offsets"
    text = options.get(option.lower())
    if text is None:
        return default
    match text.strip().lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case "group":
            return AtGroup()
        case word if word.startswith("{"):
            return AtOffsets(parse_numbers(text, option), option)
        case word:
            hint = suggestion(word, ("earliest", "latest", "group"))
            raise OptionError(f"{option}={text} is not earliest, latest, group or JSON{hint}")


def _check_bounds(
    options: Options, starting: OffsetBound, ending: OffsetBound, *, is_stream: bool
) -> None:
    if is_stream:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if name.lower() in options:
                raise OptionError(f"{name} is for batch reading; a stream has no end")
        return
    if isinstance(starting, Latest):
        raise OptionError("startingOffsets=latest reads nothing in a batch; write earliest")
    if isinstance(ending, Earliest):
        raise OptionError("endingOffsets=earliest reads nothing; write latest")
    if isinstance(ending, AtGroup):
        raise OptionError("endingOffsets=group is not supported; write latest or offsets")
    _refuse_number(starting, -1, "latest at the beginning reads nothing")
    _refuse_number(ending, -2, "earliest at the end reads nothing")


def _refuse_number(bound: OffsetBound, number: int, reason: str) -> None:
    if isinstance(bound, AtOffsets):
        for partition, offset in bound.offsets.items():
            if offset == number:
                raise OptionError(f"{bound.option}: {partition} has {number}; {reason}")


def _flag(options: Options, name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in {"true", "false"}:
        raise OptionError(f"{name}={text} is neither true nor false")
    return text.strip().lower() == "true"


def _whole_number(options: Options, name: str, least: int = 1) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise OptionError(f"{name}={text} is not a whole number from {least}")
    return int(text)


def _duration_ms(options: Options, name: str, default_ms: int) -> int:
    """Parses `15m`, `90s`, `500ms`; a plain number is milliseconds."""
    text = options.get(name.lower())
    if text is None:
        return default_ms
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if match is None or (match[2] and match[2] not in _UNITS_MS):
        raise OptionError(f"{name}={text} is not a duration; write 500ms, 90s, 15m or 2h")
    return int(match[1]) * _UNITS_MS.get(match[2], 1)


def schema_problem(
    requested: Mapping[str, Any], known: Mapping[str, Any], name_of: Callable[[Any], str] = str
) -> str | None:
    """The problem of a user's schema, None if it is valid. It may omit and reorder columns."""
    for name, kind in requested.items():
        if name not in known:
            hint = suggestion(name, known)
            return f"there is no column '{name}'{hint}; choose from {', '.join(known)}"
        if kind != known[name]:
            return f"column {name} is {name_of(known[name])}, not {name_of(kind)}; cast it later"
    return None if requested else f"no column is chosen; choose from {', '.join(known)}"
