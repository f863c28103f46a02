"""Converts the texts that a PostgreSQL server sends to Arrow, with the types of Spark's schema."""

import json
from typing import Any

from moldau.connectors.postgres.server import PostgresError
from moldau.core.connectors.postgres_sql import BAD_REASON, BAD_ROW


def json_columns(schema: Any) -> frozenset[str]:
    """Columns that are requested as JSON, because the texts of their values are hard to parse."""
    return frozenset(field.name for field in schema.fields if field.dataType.typeName() == "array")


def table_columns(schema: Any) -> list[str]:
    """The columns without those for bad rows."""
    return [name for name in schema.fieldNames() if name not in {BAD_ROW, BAD_REASON}]


def arrow_batch(lines: bytes, schema: Any, table_name: str) -> Any:
    """A batch of rows in CSV, as COPY writes it. Rows that do not fit the schema are reported in
    its columns BAD_ROW and BAD_REASON, if it has them. Raises PostgresError.
    """
    import pyarrow as pa
    from pyarrow import csv
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    names = table_columns(schema)
    table = csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(column_names=names, block_size=len(lines) + 1, use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            # An empty field is null, and quotes are an empty text.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).combine_chunks()
    columns = []
    problems: dict[int, str] = {}
    for name in names:
        kind = arrow_schema.field(name).type
        texts = table.column(name)
        texts = texts.chunk(0) if texts.num_chunks else pa.array([], pa.string())
        column, errors = _convert_or_report(pa, texts, kind)
        columns.append(column)
        for row, error in errors.items():
            type_name = schema[name].dataType.simpleString()
            problems.setdefault(row, f"column {name} does not fit {type_name}: {error}")
    if BAD_ROW in arrow_schema.names:
        bad = {row: table.slice(row, 1).to_pylist()[0] for row in problems}
        rows = {row: json.dumps(content, ensure_ascii=False) for row, content in bad.items()}
        columns += [
            pa.array([texts.get(row) for row in range(table.num_rows)], pa.string())
            for texts in (rows, problems)
        ]
    elif problems:
        raise PostgresError(
            f"{table_name}: {next(iter(problems.values()))}; "
            "give the source a schema with another type, STRING fits every value"
        )
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def _convert_or_report(pa: Any, texts: Any, kind: Any) -> tuple[Any, dict[int, str]]:
    """Converts texts, and halves them on errors until each bad value is alone. Bad values become
    null, with their errors by row.
    """
    try:
        return _converted(pa, texts, kind), {}
    except (pa.ArrowException, ValueError, TypeError) as error:
        if len(texts) == 1:
            return pa.nulls(1, kind), {0: str(error).splitlines()[0]}
    middle = len(texts) // 2
    left, problems = _convert_or_report(pa, texts.slice(0, middle), kind)
    right, others = _convert_or_report(pa, texts.slice(middle), kind)
    problems |= {middle + row: error for row, error in others.items()}
    return pa.concat_arrays([left, right]), problems


def _converted(pa: Any, texts: Any, kind: Any) -> Any:
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_binary(kind):
        # `\x`, then hexadecimal digits.
        values = [None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()]
        return pa.array(values, kind)
    if pa.types.is_list(kind):
        return _list(pa, texts, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # The session's zone is UTC, which Arrow requires explicitly.
        return texts.cast(pa.timestamp("us", "UTC")).cast(kind)
    return texts.cast(kind)


def _list(pa: Any, texts: Any, kind: Any) -> Any:
    """Lists, from JSON. Their items become texts again, and are converted like columns."""
    offsets, items = [0], []
    # As texts, numbers keep all their digits.
    is_text = pa.types.is_string(kind.value_type)
    exact: dict[str, Any] = {} if is_text else {"parse_int": str, "parse_float": str}
    for text in texts.to_pylist():
        content = [] if text is None else json.loads(text, **exact)
        items += [_item(item) for item in content]
        offsets.append(len(items))
    values = _converted(pa, pa.array(items, pa.string()), kind.value_type)
    lists = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), values, mask=texts.is_null() if texts.null_count else None
    )
    return lists.cast(kind)


def _item(item: Any) -> Any:
    if item is None or isinstance(item, str):
        return item
    return json.dumps(item)
