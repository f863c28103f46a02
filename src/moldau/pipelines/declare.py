"""What users write: topics, formats, tables, flows. Each keeps the line where it was written."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from moldau.core.pipelines.errors import OptionError, suggestion
from moldau.core.pipelines.graph import (
    Catalog,
    Cursor,
    Delivery,
    Example,
    Files,
    Flow,
    Format,
    FormatKind,
    Http,
    Mode,
    OnError,
    PipelineError,
    Problem,
    Spot,
    Sql,
    Table,
    TableKind,
    Target,
    Topic,
    Trigger,
)
from moldau.core.pipelines.sql_inputs import tables_in
from moldau.frozen import frozen

FLOW_MARK = "__moldau_flow__"
RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp", "headers")
FILE_FORMATS = ("json", "csv", "text", "parquet")
HTTP_LINES = ("json_lines", "csv", "text")
_STARTS = ("latest", "earliest", "group")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
Function = TypeVar("Function", bound=Callable[..., Any])
Word = TypeVar("Word", bound=StrEnum)


@frozen(kw_only=True)
class Settings:
    """What holds for a whole pipeline."""

    spot: Spot
    name: str | None = None
    delivery: Delivery = Delivery.EXACTLY_ONCE
    trigger: Trigger = Trigger()
    settings: tuple[tuple[str, str], ...] = ()
    checkpoint: str | None = None


@frozen
class SqlFlow:
    """A flow whose name is that of its variable."""

    flow: Flow


# Formats.


def json(schema: str | None = None, **options: str) -> Format:
    """One JSON object in each value; options as those of Spark's from_json and to_json."""
    return Format(FormatKind.JSON, schema, _pairs(options))


def csv(schema: str | None = None, **options: str) -> Format:
    """One line of CSV in each value; options as those of Spark's from_csv and to_csv."""
    return Format(FormatKind.CSV, schema, _pairs(options))


def text() -> Format:
    """The column `value`, a STRING."""
    return Format(FormatKind.TEXT)


def bytes() -> Format:  # noqa: A001 - used as mp.bytes()
    """The column `value`, as it is."""
    return Format(FormatKind.BYTES)


def avro(registry: str, schema: str | None = None, *, avro_schema: str | None = None) -> Format:
    """With a schema registry, in Confluent's wire format. `avro_schema` is for writing."""
    return _registered(FormatKind.AVRO, registry, schema, avro_schema)


def json_schema(
    registry: str, schema: str | None = None, *, json_schema: str | None = None
) -> Format:
    """JSON behind a schema id, in Confluent's wire format. `json_schema` is for writing."""
    return _registered(FormatKind.JSON_SCHEMA, registry, schema, json_schema)


def protobuf(registry: str, schema: str | None = None, *, message: str = "") -> Format:
    """`message`: `package.module:Message`, a generated class that the tasks can import."""
    return _registered(FormatKind.PROTOBUF, registry, schema, message)


def _registered(kind: FormatKind, registry: str, schema: str | None, written: str | None) -> Format:
    return Format(kind, schema, (("registry", registry), ("written", written or "")))


# Datasets and targets.


def topic(  # noqa: PLR0913 - a topic has many sides
    name: str,
    *,
    format: Format | str = "json",  # noqa: A002 - the user's word
    schema: str | None = None,
    key: str | Sequence[str] = (),
    compacted: bool = False,
    start: str | int | datetime = "latest",
    dead_letter: str | None = None,
    on_error: str | None = None,
    max_offsets_per_trigger: int | None = None,
    fail_on_data_loss: bool = True,
    columns: Sequence[str] = (),
    spot: Spot | None = None,
) -> Topic:
    """A topic to read (its variable's name is the dataset's), or to write into."""
    spot = spot or _caller()
    if not str(name).strip():
        raise wrong(spot, "a topic needs a name")
    for column in columns:
        if column not in RECORD_COLUMNS:
            hint = suggestion(column, RECORD_COLUMNS)
            raise wrong(spot, f"a record has no '{column}'{hint}")
    return Topic(
        name=name,
        format=format_of(format, schema, spot),
        spot=spot,
        key=(key,) if isinstance(key, str) else tuple(key),
        compacted=compacted,
        start=start_of(start, spot),
        dead_letter=dead_letter,
        on_error=_on_error_of(on_error, dead_letter, spot),
        max_offsets_per_trigger=max_offsets_per_trigger,
        fail_on_data_loss=fail_on_data_loss,
        columns=tuple(columns),
    )


def _on_error_of(given: str | None, dead_letter: str | None, spot: Spot) -> OnError:
    if given is not None:
        return word_of(OnError, given, "on_error", spot)
    return OnError.FAIL if dead_letter is None else OnError.DEAD_LETTER


def http(  # noqa: PLR0913 - as of a topic
    url: str,
    *,
    format: Format | str = "json",  # noqa: A002 - the user's word
    schema: str | None = None,
    every: str = "10s",
    timeout: str = "30s",
    attempts: int = 5,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
    path: str | None = None,
    cursor: Mapping[str, str] | None = None,
    dead_letter: str | None = None,
    on_error: str | None = None,
    spot: Spot | None = None,
) -> Http:
    """An address that is asked again and again. `path`: where in its JSON the rows are."""
    spot = spot or _caller()
    is_lines = format in HTTP_LINES
    if isinstance(format, Format):
        is_lines = format.kind is not FormatKind.JSON
    elif format not in ("json", *HTTP_LINES):
        known = ("json", *HTTP_LINES)
        raise wrong(
            spot, f"answers are {', '.join(known)}, not '{format}'{suggestion(format, known)}"
        )
    try:
        every_ms, timeout_ms = duration_ms(every), duration_ms(timeout)
    except OptionError as error:
        raise wrong(spot, str(error)) from None
    return Http(
        url=url,
        format=format_of("json" if format == "json_lines" else format, schema, spot),
        spot=spot,
        is_lines=is_lines,
        every_ms=every_ms,
        timeout_ms=timeout_ms,
        attempts=attempts,
        headers=_pairs(headers or {}),
        params=_pairs(params or {}),
        path=path,
        cursor=None if cursor is None else _cursor_of(cursor, spot),
        dead_letter=dead_letter,
        on_error=_on_error_of(on_error, dead_letter, spot),
    )


def _cursor_of(given: Mapping[str, str], spot: Spot) -> Cursor:
    known = ("param", "last", "next", "start")
    for name in given:
        if name not in known:
            raise wrong(spot, f"a cursor has no '{name}'{suggestion(name, known)}")
    if "param" not in given or ("last" in given) == ("next" in given):
        raise wrong(
            spot,
            "a cursor has a param, and last (a field of the last row) or next (a field of the "
            "answer)",
        )
    words = {name: str(value) for name, value in given.items()}
    return Cursor(words["param"], words.get("last"), words.get("next"), words.get("start"))


def files(  # noqa: PLR0913 - as of a topic
    path: str | Path,
    *,
    format: str,  # noqa: A002 - the user's word
    schema: str | None = None,
    dead_letter: str | None = None,
    on_error: str | None = None,
    max_files_per_trigger: int | None = None,
    options: Mapping[str, str] | None = None,
    spot: Spot | None = None,
) -> Files:
    """A folder whose new files are read, each once."""
    spot = spot or _caller()
    if format not in FILE_FORMATS:
        raise wrong(
            spot,
            f"files are {', '.join(FILE_FORMATS)}, not '{format}'"
            f"{suggestion(format, FILE_FORMATS)}",
        )
    return Files(
        path=str(path),
        format=format,
        spot=spot,
        schema=schema,
        dead_letter=dead_letter,
        on_error=_on_error_of(on_error, dead_letter, spot),
        max_files_per_trigger=max_files_per_trigger,
        options=_pairs(options or {}),
    )


def table(
    path: str | Path,
    *,
    format: str = "parquet",  # noqa: A002 - the user's word
    partition_by: Sequence[str] = (),
    catalog: str | Mapping[str, str] | None = None,
    spot: Spot | None = None,
) -> Table:
    """A table to write into: parquet, delta or iceberg. `catalog`: of iceberg, by the name that
    pyiceberg knows it by, or its properties; the path is the table's name in it then.
    """
    spot = spot or _caller()
    kind = word_of(TableKind, format, "format", spot)
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return Table(
        path=str(path),
        kind=kind,
        spot=spot,
        partition_by=columns,
        catalog=None if catalog is None else _catalog_of(catalog),
    )


def _catalog_of(given: str | Mapping[str, str]) -> Catalog:
    if isinstance(given, str):
        return Catalog(given)
    properties = dict(given)
    return Catalog(properties.pop("name", "moldau"), _pairs(properties))


# Flows.


def flow(
    *, into: Target | None = None, mode: str = "append", on_error: str | None = None
) -> Callable[[Function], Function]:
    """Marks a function as a flow and gives it back unchanged. Its arguments' names are datasets."""
    spot = _caller()

    def mark(function: Function) -> Function:
        made = Flow(
            name=function.__name__,
            inputs=tuple(signature(function).parameters),
            body=function,
            spot=_line_of(function, spot),
            into=into,
            mode=word_of(Mode, mode, "mode", spot),
            on_error=None if on_error is None else word_of(OnError, on_error, "on_error", spot),
        )
        setattr(function, FLOW_MARK, made)
        return function

    return mark


def sql(
    text: str, *, into: Target | None = None, mode: str = "append", on_error: str | None = None
) -> SqlFlow:
    """A flow written in Spark SQL; its name is that of its variable."""
    spot = _caller()
    made = Flow(
        name="",
        inputs=tables_in(text),
        body=Sql(text, spot),
        spot=spot,
        into=into,
        mode=word_of(Mode, mode, "mode", spot),
        on_error=None if on_error is None else word_of(OnError, on_error, "on_error", spot),
    )
    return SqlFlow(made)


def pipeline(
    name: str | None = None,
    *,
    delivery: str = "exactly_once",
    trigger: str | None = None,
    settings: Mapping[str, str] | None = None,
    checkpoint: str | Path | None = None,
    spot: Spot | None = None,
) -> Settings:
    """What holds for all of a file. `settings` are the client's, such as bootstrap.servers."""
    spot = spot or _caller()
    return Settings(
        spot=spot,
        name=name,
        delivery=word_of(Delivery, delivery, "delivery", spot),
        trigger=trigger_of(trigger, spot),
        settings=_pairs(settings or {}),
        checkpoint=None if checkpoint is None else str(checkpoint),
    )


def example(
    name: str,
    given: Mapping[str, Sequence[Mapping[str, Any]]],
    expect: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Example:
    """For `moldau pipeline test`: rows in, rows out."""
    return Example(name, _rows(given), _rows(expect), _caller())


def _rows(given: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [dict(row) for row in rows] for name, rows in given.items()}


# What both ways of writing a pipeline need.


def wrong(spot: Spot, text: str) -> PipelineError:
    return PipelineError(Problem(spot, text))


def word_of(kind: type[Word], value: object, what: str, spot: Spot) -> Word:
    words = [one.value for one in kind]
    if value not in words:
        hint = suggestion(str(value), words)
        raise wrong(spot, f"{what} is {', '.join(words[:-1])} or {words[-1]}, not '{value}'{hint}")
    return kind(value)


def format_of(given: Format | str, schema: str | None, spot: Spot) -> Format:
    if isinstance(given, Format):
        if schema is not None:
            raise wrong(spot, "the schema belongs into the format: mp.json('id BIGINT')")
        return given
    kind = word_of(FormatKind, given, "format", spot)
    if kind in {FormatKind.AVRO, FormatKind.PROTOBUF, FormatKind.JSON_SCHEMA}:
        raise wrong(spot, f"{kind} needs a registry")
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
        raise wrong(
            spot, f"start is latest, earliest, group or a time, not '{given}'{hint}"
        ) from None


def trigger_of(given: str | None, spot: Spot) -> Trigger:
    if given is None:
        return Trigger()
    if given == "available_now":
        return Trigger(available_now=True)
    try:
        return Trigger(every_ms=duration_ms(given))
    except OptionError as error:
        raise wrong(spot, f"trigger {error}, or available_now") from None


def duration_ms(given: str) -> int:
    """`500ms`, `10s`, `5m`. Raises OptionError."""
    number = str(given).rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = str(given)[len(number) :].strip()
    if not number.isdecimal() or unit not in _UNITS_MS:
        raise OptionError(f"'{given}' is no duration; write 500ms, 10s, 5m or 2h")
    return int(number) * _UNITS_MS[unit]


def _pairs(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in options.items())


def _caller() -> Spot:
    """The user's line: the first one outside of this file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return Spot(frame.f_code.co_filename, frame.f_lineno)


def _line_of(function: Callable[..., Any], default: Spot) -> Spot:
    code = getattr(function, "__code__", None)
    return default if code is None else Spot(code.co_filename, code.co_firstlineno)
