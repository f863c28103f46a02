"""Between records and columns: how values of each format are read, told bad ones apart, and
written.
"""

from typing import Any

from pyspark.sql import functions as sql

from moldau.core.pipelines.errors import suggestion
from moldau.core.pipelines.graph import Flow, Format, FormatKind, OnError, Pipeline, Topic
from moldau.core.pipelines.query_progress import OBSERVED
from moldau.pipelines.change_events import (
    DELETED,
    event_columns,
    event_error,
    event_schema,
)
from moldau.pipelines.declare import EVENT_COLUMNS, wrong
from moldau.pipelines.registry_values import FromRow, RegistryFormat, ToJson

_CORRUPT = "__moldau_corrupt"
_PARSED = "__moldau_parsed"
ERROR = "__moldau_error"
ROW = "__moldau_row"
STEP_ERROR = "_error"
HEADERS = "_headers"
_OWN = (DELETED, STEP_ERROR, HEADERS)
# Bad records are sent on with where they come from.
LETTER_COLUMNS = ("key", "value", "topic", "partition", "offset", "headers")
_HEADER_ARRAY = "array<struct<key:string,value:binary>>"
OUT_COLUMNS = ("topic", "key", "value", "headers")
EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""For JSON and CSV: Spark would cut times to milliseconds."""


def needed_columns(source: Topic) -> tuple[str, ...]:
    """Of the record; others are not even read."""
    wanted = {"value", *record_columns(source)}
    if source.on_error is OnError.DEAD_LETTER:
        wanted |= set(LETTER_COLUMNS)
    elif source.on_error is OnError.FAIL:
        wanted |= {"topic", "partition", "offset"}
    order = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
    return tuple(name for name in order if name in wanted)


def record_columns(source: Topic) -> tuple[str, ...]:
    """Of those that were asked for, the ones that every record has."""
    return tuple(name for name in source.columns if name not in EVENT_COLUMNS)


def read_values(records: Any, source: Topic, name: str) -> Any:
    """Each record as ROW, or with an ERROR; and, for dead letters, as it was. Spark lets a source
    in Python say nothing about bytes, so a stream counts them on the way.
    """
    is_event = source.format.kind is FormatKind.DEBEZIUM
    if is_event or "key" not in source.columns:
        # Tombstones have no columns; only their key means something. Behind a deletion they are
        # for compaction alone.
        records = records.where("value IS NOT NULL")
    parsed, error = _parsed(source.format)
    record = [sql.col(name).alias(f"_{name}") for name in record_columns(source)]
    prepared = records.withColumn(_PARSED, parsed).withColumn(
        ERROR, error if error is not None else sql.lit(None).cast("string")
    )
    if records.isStreaming:
        prepared = prepared.observe(f"{OBSERVED}{name}", *_counts(records.columns))
    names = _column_names(source.format)
    if is_event:
        asked = tuple(name for name in source.columns if name in EVENT_COLUMNS)
        columns = event_columns(_PARSED, names, asked)
    else:
        columns = [sql.col(f"{_PARSED}.`{name}`").alias(name) for name in names]
    row = sql.struct(*columns, *record)
    kept = [sql.col(name) for name in LETTER_COLUMNS if name in records.columns]
    if source.on_error is OnError.FAIL and error is not None:
        row = sql.when(sql.col(ERROR).isNull(), row).otherwise(sql.raise_error(_complaint()))
        return prepared.select(row.alias(ROW), sql.lit(None).cast("string").alias(ERROR))
    if source.on_error is OnError.DEAD_LETTER:
        return prepared.select(row.alias(ROW), ERROR, *kept)
    return prepared.select(row.alias(ROW), ERROR)


def _counts(columns: list[str]) -> list[Any]:
    sizes = [
        sql.coalesce(sql.octet_length(one), sql.lit(0))
        for one in ("key", "value")
        if one in columns
    ]
    size = sizes[0] if len(sizes) == 1 else sizes[0] + sizes[1]
    return [
        sql.sum(size.cast("bigint")).alias("bytes"),
        sql.count(sql.col(ERROR)).alias("bad"),
    ]


def good_rows(prepared: Any) -> Any:
    return prepared.where(sql.col(ERROR).isNull()).select(f"{ROW}.*")


def dead_letters(prepared: Any, pipeline: Pipeline, name: str) -> Any:
    """As rows to write: the record as it was, and headers that say what was wrong with it."""
    source = pipeline.sources[name]
    assert isinstance(source, Topic)
    told = {
        "topic": sql.col("topic"),
        "partition": sql.col("partition").cast("string"),
        "offset": sql.col("offset").cast("string"),
        "error": sql.col(ERROR),
        "pipeline": sql.lit(pipeline.name),
        "step": sql.lit(name),
    }
    own = sql.coalesce(sql.col("headers"), sql.array().cast(_HEADER_ARRAY))
    return prepared.where(sql.col(ERROR).isNotNull()).select(
        sql.lit(source.dead_letter).alias("topic"),
        sql.col("key").cast("binary").alias("key"),
        sql.col("value").cast("binary").alias("value"),
        sql.concat(own, _headers(told)).alias("headers"),
    )


def written_rows(rows: Any, flow: Flow, dead_letter: str | None, pipeline: Pipeline) -> list[Any]:
    """What a flow writes to topics, in OUT_COLUMNS. Raises PipelineError."""
    into = flow.into
    assert isinstance(into, Topic)
    good = rows
    found = []
    if flow.on_error is not None:
        need_columns(rows, (STEP_ERROR,), flow, "on_error")
        if flow.on_error is OnError.FAIL:
            complaint = sql.concat(sql.lit(f"step {flow.name}: "), sql.col(STEP_ERROR))
            checked = sql.when(sql.col(STEP_ERROR).isNotNull(), sql.raise_error(complaint))
            good = rows.where(checked.cast("boolean").isNull())
        else:
            good = rows.where(sql.col(STEP_ERROR).isNull())
        if flow.on_error is OnError.DEAD_LETTER:
            found.append(_step_letters(rows, flow, dead_letter, pipeline))
    return [_encoded(good, flow, into), *found]


def _step_letters(rows: Any, flow: Flow, dead_letter: str | None, pipeline: Pipeline) -> Any:
    """The record is not known any more behind a step: the row is told as JSON."""
    names = [name for name in rows.columns if name not in _OWN]
    told = {
        "error": sql.col(STEP_ERROR),
        "pipeline": sql.lit(pipeline.name),
        "step": sql.lit(flow.name),
    }
    return rows.where(sql.col(STEP_ERROR).isNotNull()).select(
        sql.lit(dead_letter).alias("topic"),
        sql.lit(None).cast("binary").alias("key"),
        sql.to_json(_struct(names), EXACT_TIMES).cast("binary").alias("value"),
        _headers(told).alias("headers"),
    )


def _encoded(rows: Any, flow: Flow, into: Topic) -> Any:
    need_columns(rows, into.key, flow, "key")
    names = [name for name in rows.columns if name not in _OWN]
    value = _value(rows, flow, into, names).cast("binary")
    if DELETED in rows.columns:
        value = sql.when(sql.col(DELETED), sql.lit(None)).otherwise(value)
    headers = sql.col(HEADERS) if HEADERS in rows.columns else sql.lit(None)
    return rows.select(
        sql.lit(into.name).alias("topic"),
        _key(into.key).cast("binary").alias("key"),
        value.alias("value"),
        headers.cast(_HEADER_ARRAY).alias("headers"),
    )


def _key(names: tuple[str, ...]) -> Any:
    match names:
        case ():
            return sql.lit(None)
        case (name,):
            # Bytes stay as they are; everything else is text.
            return sql.col(f"`{name}`").cast("string")
        case _:
            return sql.to_json(_struct(names), EXACT_TIMES)


def _struct(names: Any) -> Any:
    return sql.struct(*[sql.col(f"`{name}`") for name in names])


def _value(rows: Any, flow: Flow, into: Topic, names: list[str]) -> Any:
    form = into.format
    options = dict(form.options)
    match form.kind:
        case FormatKind.JSON:
            return sql.to_json(_struct(names), EXACT_TIMES | options)
        case FormatKind.CSV:
            return sql.to_csv(_struct(names), EXACT_TIMES | options)
        case FormatKind.TEXT | FormatKind.BYTES:
            need_columns(rows, ("value",), flow, f"format {form.kind}")
            return sql.col("value")
        case _:
            if not options["written"]:
                raise wrong(
                    into.spot, f"'{flow.name}': writing {form.kind} needs the schema to write with"
                )
            write = FromRow(_registry_format(form), into.name)
            # Spark reads type hints as wishes; a lambda has none.
            return sql.udf(lambda row: write(row), "binary")(_struct(names))  # noqa: PLW0108


def need_columns(rows: Any, names: tuple[str, ...], flow: Flow, what: str) -> None:
    for name in names:
        if name not in rows.columns:
            hint = suggestion(name, rows.columns)
            raise wrong(
                flow.spot,
                f"'{flow.name}': {what} needs a column '{name}'{hint}; there are "
                f"{', '.join(rows.columns)}",
            )


def _parsed(form: Format) -> tuple[Any, Any]:
    """A struct of the columns, and what is wrong (None: nothing can be)."""
    value = sql.col("value")
    options = dict(form.options)
    permissive = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    match form.kind:
        case FormatKind.TEXT:
            return sql.struct(value.cast("string").alias("value")), None
        case FormatKind.BYTES:
            return sql.struct(value.alias("value")), None
        case FormatKind.CSV:
            parsed = sql.from_csv(value.cast("string"), _with_corrupt(form), options | permissive)
        case FormatKind.JSON:
            parsed = sql.from_json(value.cast("string"), _with_corrupt(form), options | permissive)
        case FormatKind.DEBEZIUM:
            schema = event_schema(form.schema or "", _CORRUPT)
            parsed = sql.from_json(value.cast("string"), schema, options | permissive)
            return parsed, event_error(_PARSED, _CORRUPT, form.schema or "")
        case _:
            return _registry_parsed(form)
    return parsed, _error_of(value, form)


def _registry_parsed(form: Format) -> tuple[Any, Any]:
    read = ToJson(_registry_format(form))
    # Spark reads type hints as wishes; a lambda has none.
    as_json = sql.udf(lambda content: read(content), "json string, error string")  # noqa: PLW0108
    decoded = as_json(sql.col("value"))
    permissive = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = sql.from_json(decoded["json"], _with_corrupt(form), permissive)
    return parsed, _error_of(sql.col("value"), form)


def _error_of(value: Any, form: Format) -> Any:
    is_bad = sql.col(_PARSED).isNull() | sql.col(f"{_PARSED}.{_CORRUPT}").isNotNull()
    told = f"the value is no {form.kind} of the columns {form.schema}"
    return sql.when(value.isNotNull() & is_bad, sql.lit(told))


def _with_corrupt(form: Format) -> str:
    return f"{form.schema}, {_CORRUPT} STRING"


def _column_names(form: Format) -> list[str]:
    if form.kind in {FormatKind.TEXT, FormatKind.BYTES}:
        return ["value"]
    from pyspark.sql.types import StructType

    return list(StructType.fromDDL(form.schema or "").fieldNames())


def _complaint() -> Any:
    parts = [sql.lit("record "), "topic", sql.lit("-"), "partition", sql.lit(" offset "), "offset"]
    return sql.concat(*parts, sql.lit(": "), sql.col(ERROR))


def _headers(told: dict[str, Any]) -> Any:
    return sql.array(
        *[
            sql.struct(sql.lit(f"__dlq.{name}").alias("key"), value.cast("binary").alias("value"))
            for name, value in told.items()
        ]
    ).cast(_HEADER_ARRAY)


def _registry_format(form: Format) -> RegistryFormat:
    options = dict(form.options)
    return RegistryFormat(form.kind, options["registry"], options["written"])
