"""Converts between records and columns: reads values of each format, separates bad records, and
writes values.
"""

import re
from typing import Any

from pyspark.sql import functions as sql

from moldau.connectors.debezium import event_columns, event_error, event_schema
from moldau.core.connectors.postgres_sql import BAD_REASON, BAD_ROW, DELETED
from moldau.core.pipelines.graph import (
    Files,
    Flow,
    Format,
    FormatKind,
    Http,
    OnError,
    Postgres,
    Source,
    Topic,
)
from moldau.core.pipelines.query_progress import EXPECTED, OBSERVED
from moldau.pipelines.compile.expectations import (
    STEP_ERROR,
    require_columns,
    with_expectations,
    without_bad_rows,
)
from moldau.pipelines.compile.registry_values import FromRow, RegistryFormat, ToJson
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.pipelines.declare.sources import EVENT_COLUMNS
from moldau.spark.runtime.exact_times import EXACT_TIMES

CORRUPT = "__moldau_corrupt"
_PARSED = "__moldau_parsed"
ERROR = "__moldau_error"
ROW = "__moldau_row"
HEADERS = "_headers"
SPECIAL_COLUMNS = (DELETED, STEP_ERROR, HEADERS)
"""Columns of a step's rows that are not part of the value."""
# A dead letter (dead_letters.py) needs the unchanged record, and where it comes from.
_RECORD = ("key", "value", "headers")
_TOPIC_ORIGIN = ("topic", "partition", "offset")
_FILE_ORIGIN = ("file",)
_HTTP_ORIGIN = ("url", "poll", "row")
_TABLE_ORIGIN = ("table",)
_LEAST_INT = -(2**31)
HEADER_ARRAY = "array<struct<key:string,value:binary>>"
OUT_COLUMNS = ("topic", "key", "value", "headers")


def needed_columns(source: Topic) -> tuple[str, ...]:
    """The columns of a record that are needed; others are not even read."""
    wanted = {"value", *record_columns(source)}
    if source.on_error is OnError.DEAD_LETTER:
        wanted |= {*_RECORD, *_TOPIC_ORIGIN}
    elif source.on_error is OnError.FAIL:
        wanted |= set(_TOPIC_ORIGIN)
    order = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
    return tuple(name for name in order if name in wanted)


def record_columns(source: Topic) -> tuple[str, ...]:
    """The requested columns that every record has, whatever its format."""
    return tuple(name for name in source.columns if name not in EVENT_COLUMNS)


def read_values(records: Any, source: Source, name: str) -> Any:
    """Each record as ROW, or with an ERROR; for dead letters also unchanged. A stream counts bytes
    here, because Spark has no metric for them in a Python source.
    """
    prepared, row, can_fail = _source_rows(records, source)
    if source.expect:
        is_topic, can_fail = isinstance(source, Topic), True
        prepared, row = with_expectations(prepared, row, source.expect, ERROR, is_topic=is_topic)
    if records.isStreaming:
        prepared = prepared.observe(f"{OBSERVED}{name}", *_counts(source, prepared.columns))
    if source.on_error is OnError.FAIL and can_fail:
        complaint = sql.raise_error(_complaint(source))
        row = sql.when(sql.col(ERROR).isNull(), row).otherwise(complaint)
        # Offsets, to report the record at which a flow fails.
        places = [sql.col(one) for one in origin_columns(source) if one in prepared.columns]
        return prepared.select(row.alias(ROW), sql.lit(None).cast("string").alias(ERROR), *places)
    if source.on_error is OnError.DEAD_LETTER:
        if source.expect and isinstance(source, Files | Postgres):
            # There is no record: the dead letter is the row as JSON, as after a step.
            as_json = sql.to_json(row, EXACT_TIMES).cast("binary")
            prepared = prepared.withColumn("value", sql.coalesce("value", as_json))
        kept = [sql.col(one) for one in (*_RECORD, *origin_columns(source))]
        return prepared.select(row.alias(ROW), ERROR, *kept)
    return prepared.select(row.alias(ROW), ERROR)


def _source_rows(records: Any, source: Source) -> tuple[Any, Any, bool]:
    """Records with ERROR, the column ROW, and whether a record can be bad."""
    match source:
        case Topic():
            return _topic_rows(records, source)
        case Files():
            return _file_rows(records, source)
        case Http():
            return _http_rows(records, source)
        case Postgres():
            return _table_rows(records, source)


def _topic_rows(records: Any, source: Topic) -> tuple[Any, Any, bool]:
    is_event = source.format.kind is FormatKind.DEBEZIUM
    if is_event or "key" not in source.columns:
        # Tombstones have no columns, only a key. After a deletion event they only serve compaction.
        records = records.where("value IS NOT NULL")
    parsed, error = _parsed(source.format)
    record = [sql.col(name).alias(f"_{name}") for name in record_columns(source)]
    prepared = records.withColumn(_PARSED, parsed).withColumn(
        ERROR, error if error is not None else sql.lit(None).cast("string")
    )
    if is_event:
        event_fields = tuple(name for name in source.columns if name in EVENT_COLUMNS)
        columns = event_columns(_PARSED, _column_names(source.format), event_fields)
    else:
        columns = _parsed_columns(source.format)
    return prepared, sql.struct(*columns, *record), error is not None


def _http_rows(records: Any, source: Http) -> tuple[Any, Any, bool]:
    parsed, error = _parsed(source.format)
    # An answer without readable rows is reported as a bad row.
    prepared = records.withColumn(_PARSED, parsed).withColumn(
        ERROR, sql.col("error") if error is None else sql.coalesce("error", error)
    )
    return _with_no_key(prepared), sql.struct(*_parsed_columns(source.format)), True


def _file_rows(records: Any, source: Files) -> tuple[Any, Any, bool]:
    columns = [sql.col(f"`{name}`") for name in records.columns if name != CORRUPT]
    can_fail = CORRUPT in records.columns
    error, value = sql.lit(None).cast("string"), sql.lit(None)
    if can_fail:
        value = sql.col(CORRUPT)
        # Always true, and it needs all columns: Spark detects errors only in columns that are used.
        is_all_read = sql.hash(*columns) >= sql.lit(_LEAST_INT)
        text = f"the line is not {source.format} of the columns {source.schema}"
        error = sql.when(value.isNotNull() & is_all_read, sql.lit(text))
    prepared = records.select(
        sql.struct(*columns).alias(_PARSED),
        sql.col("_metadata.file_path").alias("file"),
        value.cast("binary").alias("value"),
        error.alias(ERROR),
    )
    return _with_no_key(prepared), sql.col(_PARSED), can_fail


def _table_rows(records: Any, source: Postgres) -> tuple[Any, Any, bool]:
    """Without columns for bad rows, the source itself fails on them."""
    value = error = sql.lit(None)
    if BAD_ROW in records.columns:
        value, error = sql.col(BAD_ROW), sql.col(BAD_REASON)
    names = [name for name in records.columns if name not in {BAD_ROW, BAD_REASON}]
    prepared = records.select(
        sql.struct(*[sql.col(f"`{name}`") for name in names]).alias(_PARSED),
        sql.lit(source.name).alias("table"),
        value.cast("binary").alias("value"),
        error.cast("string").alias(ERROR),
    )
    return _with_no_key(prepared), sql.col(_PARSED), False


def _with_no_key(rows: Any) -> Any:
    return rows.withColumn("key", sql.lit(None).cast("binary")).withColumn(
        "headers", sql.lit(None).cast(HEADER_ARRAY)
    )


def _parsed_columns(form: Format) -> list[Any]:
    return [sql.col(f"{_PARSED}.`{name}`").alias(name) for name in _column_names(form)]


def origin_columns(source: Source) -> tuple[str, ...]:
    match source:
        case Topic():
            return _TOPIC_ORIGIN
        case Files():
            return _FILE_ORIGIN
        case Http():
            return _HTTP_ORIGIN
        case Postgres():
            return _TABLE_ORIGIN


def _counts(source: Source, columns: list[str]) -> list[Any]:
    bad = sql.count(sql.col(ERROR)).alias("bad")
    failed = [
        sql.count_if(sql.col(name)).alias(name)
        for name in (f"{EXPECTED}{expectation.name}" for expectation in source.expect)
    ]
    if isinstance(source, Files | Postgres):
        # Their rows arrive as columns, without bytes.
        return [bad, *failed]
    size = sql.lit(0)
    for one in ("key", "value"):
        if one in columns:
            size += sql.coalesce(sql.octet_length(one), sql.lit(0))
    return [sql.sum(size.cast("bigint")).alias("bytes"), bad, *failed]


def good_rows(prepared: Any) -> Any:
    return prepared.where(sql.col(ERROR).isNull()).select(f"{ROW}.*")


def written_rows(rows: Any, flow: Flow) -> Any:
    """The rows that a flow writes to a topic, in OUT_COLUMNS. Raises PipelineError."""
    assert isinstance(flow.into, Topic)
    return _encoded(without_bad_rows(rows, flow), flow, flow.into)


def _encoded(rows: Any, flow: Flow, into: Topic) -> Any:
    require_columns(rows, into.key, flow, "key")
    names = [name for name in rows.columns if name not in SPECIAL_COLUMNS]
    value = _value(rows, flow, into, names).cast("binary")
    if DELETED in rows.columns:
        value = sql.when(sql.col(DELETED), sql.lit(None)).otherwise(value)
    headers = sql.col(HEADERS) if HEADERS in rows.columns else sql.lit(None)
    return rows.select(
        sql.lit(into.name).alias("topic"),
        _key(into.key).cast("binary").alias("key"),
        value.alias("value"),
        headers.cast(HEADER_ARRAY).alias("headers"),
    )


def _key(names: tuple[str, ...]) -> Any:
    match names:
        case ():
            return sql.lit(None)
        case (name,):
            # Bytes stay unchanged; everything else becomes text.
            return sql.col(f"`{name}`").cast("string")
        case _:
            return sql.to_json(struct_of(names), EXACT_TIMES)


def struct_of(names: Any) -> Any:
    return sql.struct(*[sql.col(f"`{name}`") for name in names])


def _value(rows: Any, flow: Flow, into: Topic, names: list[str]) -> Any:
    form = into.format
    options = dict(form.options)
    match form.kind:
        case FormatKind.JSON:
            return sql.to_json(struct_of(names), EXACT_TIMES | options)
        case FormatKind.CSV:
            return sql.to_csv(struct_of(names), EXACT_TIMES | options)
        case FormatKind.TEXT | FormatKind.BYTES:
            require_columns(rows, ("value",), flow, f"format {form.kind}")
            return sql.col("value")
        case _:
            if not options["written"]:
                raise pipeline_error(
                    into.spot, f"'{flow.name}': writing {form.kind} needs the schema to write with"
                )
            kind = rows.select(*[f"`{name}`" for name in names]).schema
            write = FromRow(_registry_format(form), into.name, kind)
            # A lambda, because Spark interprets type hints. Arrow could not distinguish the two
            # equal hours when clocks are set back.
            as_bytes = sql.udf(lambda row: write(row), "binary", useArrow=False)  # noqa: PLW0108
            return as_bytes(struct_of(names))


def _parsed(form: Format) -> tuple[Any, Any]:
    """A struct of the columns, and the error (None if there can be none)."""
    value = sql.col("value")
    options = dict(form.options)
    permissive = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    match form.kind:
        case FormatKind.TEXT:
            return sql.struct(value.cast("string").alias("value")), None
        case FormatKind.BYTES:
            return sql.struct(value.alias("value")), None
        case FormatKind.CSV:
            parsed = sql.from_csv(
                value.cast("string"), with_corrupt(form.schema), options | permissive
            )
        case FormatKind.JSON:
            parsed = sql.from_json(
                value.cast("string"), with_corrupt(form.schema), options | permissive
            )
        case FormatKind.DEBEZIUM:
            schema = event_schema(form.schema or "", CORRUPT)
            parsed = sql.from_json(value.cast("string"), schema, options | permissive)
            return parsed, event_error(_PARSED, CORRUPT, form.schema or "")
        case _:
            return _registry_parsed(form)
    return parsed, _error_of(value, form)


def _registry_parsed(form: Format) -> tuple[Any, Any]:
    read = ToJson(_registry_format(form))
    # A lambda, because Spark interprets type hints.
    as_json = sql.udf(lambda content: read(content), "json string, error string")  # noqa: PLW0108
    decoded = as_json(sql.col("value"))
    permissive = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = sql.from_json(decoded["json"], with_corrupt(form.schema), permissive)
    return parsed, _error_of(sql.col("value"), form)


def _error_of(value: Any, form: Format) -> Any:
    is_bad = sql.col(_PARSED).isNull() | sql.col(f"{_PARSED}.{CORRUPT}").isNotNull()
    text = f"the value is not {form.kind} of the columns {form.schema}"
    return sql.when(value.isNotNull() & is_bad, sql.lit(text))


def with_corrupt(schema: str | None) -> str:
    return f"{schema}, {CORRUPT} STRING"


def _column_names(form: Format) -> list[str]:
    if form.kind in {FormatKind.TEXT, FormatKind.BYTES}:
        return ["value"]
    from pyspark.sql.types import StructType

    return list(StructType.fromDDL(form.schema or "").fieldNames())


def _complaint(source: Source) -> Any:
    parts: list[Any] = []
    for word in re.split(r"[{}]", _place_words(source)):
        # Every second one is the name of a column.
        named = sql.coalesce(sql.col(word).cast("string"), sql.lit("")) if len(parts) % 2 else None
        parts.append(sql.lit(word) if named is None else named)
    return sql.concat(*parts, sql.lit(": "), sql.col(ERROR))


def _place_words(source: Source) -> str:
    match source:
        case Topic():
            return "record {topic}-{partition} offset {offset}"
        case Files():
            return "{file}, '{value}'"
        case Http():
            return "{url}, answer {poll}, row {row}"
        case Postgres():
            return "table {table}, '{value}'"


def _registry_format(form: Format) -> RegistryFormat:
    options = dict(form.options)
    return RegistryFormat(form.kind, options["registry"], options["written"])
