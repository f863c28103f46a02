"""The functions of a pipeline's file that declare sources: topics (also targets), HTTP addresses,
folders. Each declaration keeps the line of its call.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from moldau.core.pipelines.graph import (
    Cursor,
    Files,
    Format,
    FormatKind,
    Http,
    Spot,
    Topic,
)
from moldau.core.spark.errors import OptionError, suggestion
from moldau.pipelines.declare.arguments import (
    Expected,
    check_whole,
    duration_ms,
    expectations_of,
    format_of,
    on_error_of,
    pipeline_error,
    settings_of,
    start_of,
)
from moldau.pipelines.declare.calls import checked
from moldau.pipelines.declare.formats import pairs_of
from moldau.pipelines.declare.source_locations import caller

RECORD_COLUMNS = ("key", "topic", "partition", "offset", "timestamp", "headers")
EVENT_COLUMNS = ("op", "ts_ms")
"""Columns that only Debezium's events have."""
FILE_FORMATS = ("json", "csv", "text", "parquet")
HTTP_LINES = ("json_lines", "csv", "text")


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
    """Declares a topic: a source if assigned to a variable, a target as `into` of a flow.

    A source's dataset has the name of its variable. A target that does not exist is created.

    Args:
        name: The topic's name.
        format: The format of values: a name such as `"json"`, or a format such as `mp.avro(…)`.
        schema: The columns of values, as in `"id BIGINT, user STRING"`, if `format` is a name.
        key: Columns that make up the record key. For targets.
        compacted: Whether to create the topic with `cleanup.policy=compact`. For targets.
        partitions: Partitions of a topic that is created (default: the broker's).
        replication: Replication factor of a topic that is created (default: the broker's).
        config: Topic settings of a topic that is created.
        start: Where a new query starts: `"latest"`, `"earliest"`, `"group"` (the committed offsets
            of the query's group) or a time.
        dead_letter: A topic for records that cannot be read or do not meet `expect`.
        on_error: What to do with such records: `"fail"` (the default), `"drop"` or
            `"dead_letter"` (the default with `dead_letter`).
        expect: Conditions in Spark SQL that every row must meet, by name.
        max_offsets_per_trigger: The maximum number of records in one micro-batch.
        fail_on_data_loss: Whether the query fails if records were deleted before they were read.
        columns: Further columns of records, each with a leading underscore in the dataset: `key`,
            `topic`, `partition`, `offset`, `timestamp`, `headers`; with Debezium also `op` and
            `ts_ms`.
        spot: The line of the declaration. Set by the reader of YAML files.

    Returns:
        The declared topic.

    Raises:
        PipelineError: An argument is invalid.

    Example:
        ```python
        orders = mp.topic("orders", schema="id BIGINT, amount DOUBLE", start="earliest")
        ```
    """
    spot = spot or caller()
    if not str(name).strip():
        raise pipeline_error(spot, "a topic needs a name")
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
            raise pipeline_error(spot, f"a record has no '{column}'{suggestion(column, known)}")
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
        on_error=on_error_of(on_error, dead_letter, spot),
        expect=expectations_of(expect, spot),
        max_offsets_per_trigger=max_offsets_per_trigger,
        fail_on_data_loss=fail_on_data_loss,
        columns=tuple(columns),
    )


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
    """Declares an HTTP address that is polled, as a source.

    Args:
        url: The address. `${NAME}` stands for an environment variable, here and in `headers` and
            `params`.
        format: `"json"`, `"json_lines"`, `"csv"`, `"text"`, or a format such as `mp.csv(…)`.
        schema: The columns of rows, as in `"id BIGINT, user STRING"`.
        every: Time between two polls, such as `"10s"`.
        timeout: Time that one request may take.
        attempts: How many requests may fail in a row before the query fails.
        headers: Headers of the request.
        params: Query parameters of the request.
        path: Where the rows are in a JSON response, such as `"data.items"`.
        cursor: How to request only new rows: `param` (the query parameter), `last` (the field of
            the last row that holds its next value) or `next` (the field of the response that holds
            it), and `start` (its first value).
        dead_letter: A topic for rows that cannot be read or do not meet `expect`.
        on_error: What to do with such rows: `"fail"` (the default), `"drop"` or `"dead_letter"`
            (the default with `dead_letter`).
        expect: Conditions in Spark SQL that every row must meet, by name.
        spot: The line of the declaration. Set by the reader of YAML files.

    Returns:
        The declared source.

    Raises:
        PipelineError: An argument is invalid.

    Example:
        ```python
        rates = mp.http("https://example.org/rates", schema="code STRING, rate DOUBLE", every="1m")
        ```
    """
    spot = spot or caller()
    check_whole(spot, attempts=attempts)
    is_lines = format in HTTP_LINES
    if isinstance(format, Format):
        is_lines = format.kind is not FormatKind.JSON
    elif format not in ("json", *HTTP_LINES):
        known = ("json", *HTTP_LINES)
        raise pipeline_error(
            spot,
            f"the format of answers must be {', '.join(known)}, "
            f"not '{format}'{suggestion(format, known)}",
        )
    try:
        every_ms, timeout_ms = duration_ms(every), duration_ms(timeout)
    except OptionError as error:
        raise pipeline_error(spot, str(error)) from None
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
        on_error=on_error_of(on_error, dead_letter, spot),
        expect=expectations_of(expect, spot),
    )


def _cursor_of(cursor: Mapping[str, str], spot: Spot) -> Cursor:
    known = ("param", "last", "next", "start")
    for name in cursor:
        if name not in known:
            raise pipeline_error(spot, f"a cursor has no '{name}'{suggestion(name, known)}")
    if "param" not in cursor or ("last" in cursor) == ("next" in cursor):
        raise pipeline_error(
            spot,
            "a cursor needs a param, and last (a field of the last row) or next (a field of the "
            "answer)",
        )
    words = {name: str(value) for name, value in cursor.items()}
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
    """Declares a folder as a source: each new file is read once.

    Args:
        path: The folder, relative to the pipeline's file, or a URL that Spark knows.
        format: `"json"`, `"csv"`, `"text"` or `"parquet"`.
        schema: The columns of rows, as in `"id BIGINT, user STRING"`.
        dead_letter: A topic for rows that cannot be read or do not meet `expect`.
        on_error: What to do with such rows: `"fail"` (the default), `"drop"` or `"dead_letter"`
            (the default with `dead_letter`).
        expect: Conditions in Spark SQL that every row must meet, by name.
        max_files_per_trigger: The maximum number of files in one micro-batch.
        options: Options of Spark's reader for the format.
        spot: The line of the declaration. Set by the reader of YAML files.

    Returns:
        The declared source.

    Raises:
        PipelineError: An argument is invalid.
    """
    spot = spot or caller()
    check_whole(spot, max_files_per_trigger=max_files_per_trigger)
    if format not in FILE_FORMATS:
        raise pipeline_error(
            spot,
            f"the format of files must be {', '.join(FILE_FORMATS)}, not '{format}'"
            f"{suggestion(format, FILE_FORMATS)}",
        )
    return Files(
        path=str(path),
        format=format,
        spot=spot,
        schema=schema,
        dead_letter=dead_letter,
        on_error=on_error_of(on_error, dead_letter, spot),
        expect=expectations_of(expect, spot),
        max_files_per_trigger=max_files_per_trigger,
        options=pairs_of(options or {}),
    )
