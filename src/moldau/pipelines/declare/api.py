"""What users write: topics, formats, tables, flows. Each keeps the line where it was written."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from inspect import signature
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from moldau.core.pipelines.graph import (
    Catalog,
    Cursor,
    Delivery,
    Example,
    Expectation,
    Files,
    Flow,
    Format,
    FormatKind,
    Http,
    Mode,
    OnError,
    Postgres,
    Spot,
    Sql,
    Table,
    TableKind,
    Target,
    Topic,
    Trigger,
)
from moldau.core.pipelines.sql_inputs import tables_in
from moldau.core.spark.errors import OptionError, suggestion
from moldau.frozen import frozen
from moldau.pipelines.declare.arguments import (
    check_whole,
    duration_ms,
    expectations_of,
    format_of,
    refresh_of,
    settings_of,
    start_of,
    trigger_of,
    word_of,
    wrong,
)
from moldau.pipelines.declare.calls import checked
from moldau.pipelines.declare.formats import pairs_of
from moldau.pipelines.declare.source_locations import caller

FLOW_MARK = "__moldau_flow__"
RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp", "headers")
EVENT_COLUMNS = ("op", "ts_ms")
"""Of Debezium's events alone."""
FILE_FORMATS = ("json", "csv", "text", "parquet")
HTTP_LINES = ("json_lines", "csv", "text")
Expected: TypeAlias = Mapping[str, str] | Sequence[Expectation] | None
"""Conditions in Spark SQL by their names."""
Function = TypeVar("Function", bound=Callable[..., Any])


@frozen(kw_only=True)
class Settings:
    """What holds for a whole pipeline."""

    spot: Spot
    name: str | None = None
    delivery: Delivery = Delivery.EXACTLY_ONCE
    trigger: Trigger = Trigger()
    settings: tuple[tuple[str, str], ...] = ()
    brokers_spot: Spot | None = None
    """Where bootstrap.servers is said."""
    checkpoint: str | None = None


@frozen
class SqlFlow:
    """A flow whose name is that of its variable."""

    flow: Flow


# Datasets and targets.


@checked
def topic(  # noqa: PLR0913 - a topic has many sides
    name: str,
    *,
    format: Format | str = "json",  # noqa: A002 - the user's word
    schema: str | None = None,
    key: str | Sequence[str] = (),
    compacted: bool = False,
    partitions: int | None = None,
    replication: int | None = None,
    config: Mapping[str, object] | None = None,
    start: str | int | datetime = "latest",
    dead_letter: str | None = None,
    on_error: str | None = None,
    expect: Expected = None,
    max_offsets_per_trigger: int | None = None,
    fail_on_data_loss: bool = True,
    columns: Sequence[str] = (),
    spot: Spot | None = None,
) -> Topic:
    """A topic to read (its variable's name is the dataset's), or to write into. One that is written
    is made with `partitions`, `replication` and the settings in `config` if it is not there.
    """
    spot = spot or caller()
    if not str(name).strip():
        raise wrong(spot, "a topic needs a name")
    check_whole(
        spot,
        partitions=partitions,
        replication=replication,
        max_offsets_per_trigger=max_offsets_per_trigger,
    )
    made = format_of(format, schema, spot)
    known = RECORD_COLUMNS + (EVENT_COLUMNS if made.kind is FormatKind.DEBEZIUM else ())
    for column in columns:
        if column not in known:
            raise wrong(spot, f"a record has no '{column}'{suggestion(column, known)}")
    return Topic(
        name=name,
        format=made,
        spot=spot,
        key=(key,) if isinstance(key, str) else tuple(key),
        compacted=compacted,
        partitions=partitions,
        replication=replication,
        config=settings_of(config),
        start=start_of(start, spot),
        dead_letter=dead_letter,
        on_error=_on_error_of(on_error, dead_letter, spot),
        expect=expectations_of(expect, spot),
        max_offsets_per_trigger=max_offsets_per_trigger,
        fail_on_data_loss=fail_on_data_loss,
        columns=tuple(columns),
    )


def _on_error_of(given: str | None, dead_letter: str | None, spot: Spot) -> OnError:
    if given is not None:
        return word_of(OnError, given, "on_error", spot)
    return OnError.FAIL if dead_letter is None else OnError.DEAD_LETTER


@checked
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
    expect: Expected = None,
    spot: Spot | None = None,
) -> Http:
    """An address that is asked again and again. `path`: where in its JSON the rows are."""
    spot = spot or caller()
    check_whole(spot, attempts=attempts)
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
        headers=pairs_of(headers or {}),
        params=pairs_of(params or {}),
        path=path,
        cursor=None if cursor is None else _cursor_of(cursor, spot),
        dead_letter=dead_letter,
        on_error=_on_error_of(on_error, dead_letter, spot),
        expect=expectations_of(expect, spot),
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


@checked
def files(  # noqa: PLR0913 - as of a topic
    path: str | Path,
    *,
    format: str,  # noqa: A002 - the user's word
    schema: str | None = None,
    dead_letter: str | None = None,
    on_error: str | None = None,
    expect: Expected = None,
    max_files_per_trigger: int | None = None,
    options: Mapping[str, str] | None = None,
    spot: Spot | None = None,
) -> Files:
    """A folder whose new files are read, each once."""
    spot = spot or caller()
    check_whole(spot, max_files_per_trigger=max_files_per_trigger)
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
        expect=expectations_of(expect, spot),
        max_files_per_trigger=max_files_per_trigger,
        options=pairs_of(options or {}),
    )


@checked
def table(  # noqa: PLR0913 - read and written
    path: str | Path,
    *,
    format: str = "parquet",  # noqa: A002 - the user's word
    partition_by: str | Sequence[str] = (),
    catalog: str | Mapping[str, str] | None = None,
    schema: str | None = None,
    refresh: str = "start",
    spot: Spot | None = None,
) -> Table:
    """A table to write into, or to look rows up in: parquet, delta or iceberg. `catalog`: of
    iceberg, by the name that pyiceberg knows it by, or its properties; the path is the table's name
    in it then. A flow that has it as an argument gets its rows, as they were at the `start` of the
    run, or are read again every `refresh`.
    """
    spot = spot or caller()
    kind = word_of(TableKind, format, "format", spot)
    columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return Table(
        path=str(path),
        kind=kind,
        spot=spot,
        partition_by=columns,
        catalog=None if catalog is None else _catalog_of(catalog),
        schema=schema,
        refresh_ms=refresh_of(refresh, spot),
    )


def _catalog_of(given: str | Mapping[str, str]) -> Catalog:
    if isinstance(given, str):
        return Catalog(given)
    properties = dict(given)
    return Catalog(properties.pop("name", "moldau"), pairs_of(properties))


@checked
def postgres(  # noqa: PLR0913 - read and written
    name: str,
    *,
    url: str = "",
    key: str | Sequence[str] = (),
    by: str | None = None,
    schema: str | None = None,
    start: str | int | date = "earliest",
    lag: str | None = None,
    max_rows_per_trigger: int | None = None,
    tasks: int = 1,
    dead_letter: str | None = None,
    on_error: str | None = None,
    expect: Expected = None,
    create: bool = True,
    refresh: str | None = None,
    spot: Spot | None = None,
) -> Postgres:
    """A table of PostgreSQL: to read on and on by a column that grows, to write into, or with
    `refresh` (`start`, or a time such as `10m`) to look rows up in.
    """
    spot = spot or caller()
    if not str(name).strip():
        raise wrong(spot, "a table needs a name")
    if not url.startswith("env:") and _has_password(url):
        raise wrong(
            spot,
            "a password does not belong into a pipeline; use PGPASSWORD, PGPASSFILE or PGSERVICE, "
            "or url 'env:NAME' for a variable with the whole url",
        )
    check_whole(spot, tasks=tasks, max_rows_per_trigger=max_rows_per_trigger)
    try:
        lag_ms = 0 if lag is None else duration_ms(lag)
    except OptionError as error:
        raise wrong(spot, f"lag {error}") from None
    return Postgres(
        name=name,
        spot=spot,
        url=url,
        key=(key,) if isinstance(key, str) else tuple(key),
        by=by,
        schema=schema,
        start=start.isoformat() if isinstance(start, datetime) else str(start),
        lag_ms=lag_ms,
        max_rows_per_trigger=max_rows_per_trigger,
        tasks=tasks,
        dead_letter=dead_letter,
        on_error=_on_error_of(on_error, dead_letter, spot),
        expect=expectations_of(expect, spot),
        create=create,
        is_lookup=refresh is not None,
        refresh_ms=None if refresh is None else refresh_of(refresh, spot),
    )


def _has_password(url: str) -> bool:
    """In either of libpq's ways to write one."""
    if "://" not in url:
        return bool(re.search(r"\bpassword\s*=", url))
    parts = urlsplit(url)
    return bool(parts.password) or "password=" in parts.query


# Flows.


@checked
def flow(
    *,
    into: Target | None = None,
    mode: str = "append",
    on_error: str | None = None,
    expect: Expected = None,
) -> Callable[[Function], Function]:
    """Marks a function as a flow and gives it back unchanged. Its arguments' names are datasets.
    `expect`: conditions by name that every row fulfils, or `on_error` says what becomes of it.
    """
    spot = caller()
    target = _target_of(into, spot)
    chosen = word_of(Mode, mode, "mode", spot)
    expected = expectations_of(expect, spot)
    reaction = reaction_of(on_error, expected, spot)

    def mark(function: Function) -> Function:
        made = Flow(
            name=function.__name__,
            inputs=tuple(signature(function).parameters),
            body=function,
            spot=spot,
            into=target,
            mode=chosen,
            on_error=reaction,
            expect=expected,
        )
        setattr(function, FLOW_MARK, made)
        return function

    return mark


def reaction_of(given: str | None, expected: tuple[Expectation, ...], spot: Spot) -> OnError | None:
    """Of a step: rows that are not as expected are an error unless it says something else."""
    if given is not None:
        return word_of(OnError, given, "on_error", spot)
    return OnError.FAIL if expected else None


def _target_of(into: object, spot: Spot) -> Target | None:
    if into is None or isinstance(into, Topic | Table | Postgres):
        return into
    raise wrong(spot, f"into is mp.topic(…), mp.table(…) or mp.postgres(…), not {into!r}")


@checked
def sql(
    text: str,
    *,
    into: Target | None = None,
    mode: str = "append",
    on_error: str | None = None,
    expect: Expected = None,
) -> SqlFlow:
    """A flow written in Spark SQL; its name is that of its variable."""
    spot = caller()
    expected = expectations_of(expect, spot)
    made = Flow(
        name="",
        inputs=tables_in(text),
        body=Sql(text, spot),
        spot=spot,
        into=_target_of(into, spot),
        mode=word_of(Mode, mode, "mode", spot),
        on_error=reaction_of(on_error, expected, spot),
        expect=expected,
    )
    return SqlFlow(made)


@checked
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
    spot = spot or caller()
    return Settings(
        spot=spot,
        name=name,
        delivery=word_of(Delivery, delivery, "delivery", spot),
        trigger=trigger_of(trigger, spot),
        settings=pairs_of(settings or {}),
        brokers_spot=spot if "bootstrap.servers" in (settings or {}) else None,
        checkpoint=None if checkpoint is None else str(checkpoint),
    )


@checked
def example(
    name: str,
    given: Mapping[str, Sequence[Mapping[str, Any]]],
    expect: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Example:
    """For `moldau pipeline test`: rows in, rows out."""
    return Example(name, _rows(given), _rows(expect), caller())


def _rows(given: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [dict(row) for row in rows] for name, rows in given.items()}
