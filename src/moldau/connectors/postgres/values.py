"""From the texts that a PostgreSQL server sends to Arrow, in the kinds of Spark's schema."""

import json
from typing import Any

from moldau.connectors.postgres.server import PostgresError
from moldau.core.connectors.postgres_sql import BAD_REASON, BAD_ROW


def json_columns(schema: Any) -> frozenset[str]:
    """Those that are asked for as JSON: their own texts are hard to read."""
    return frozenset(field.name for field in schema.fields if field.dataType.typeName() == "array")


def table_columns(schema: Any) -> list[str]:
    """Without our own."""
    return [name for name in schema.fieldNames() if name not in {BAD_ROW, BAD_REASON}]


def arrow_batch(lines: bytes, schema: Any, what: str) -> Any:
    """Of rows in CSV as COPY writes it. Rows that do not fit are told in BAD_ROW and BAD_REASON, if
    the schema has these. Raises PostgresError.
    """
    import pyarrow as pa
    from pyarrow import csv
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    names = table_columns(schema)
    table = csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(column_names=names, block_size=len(lines) + 1, use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            # Nothing is null, and quotes are an empty text.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).combine_chunks()
    columns = []
    problems: dict[int, str] = {}
    for name in names:
        kind = wanted.field(name).type
        texts = table.column(name)
        texts = texts.chunk(0) if texts.num_chunks else pa.array([], pa.string())
        column, found = _fitting(pa, texts, kind)
        columns.append(column)
        for place, line in found.items():
            said = schema[name].dataType.simpleString()
            problems.setdefault(place, f"column {name} does not fit {said}: {line}")
    if BAD_ROW in wanted.names:
        bad = {place: table.slice(place, 1).to_pylist()[0] for place in problems}
        rows = {place: json.dumps(row, ensure_ascii=False) for place, row in bad.items()}
        columns += [
            pa.array([told.get(place) for place in range(table.num_rows)], pa.string())
            for told in (rows, problems)
        ]
    elif problems:
        raise PostgresError(
            f"{what}: {next(iter(problems.values()))}; "
            "give the source a schema that takes it, STRING takes everything"
        )
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _fitting(pa: Any, texts: Any, kind: Any) -> tuple[Any, dict[int, str]]:
    """Halved until what does not fit is alone; it becomes null, and is told by its place."""
    try:
        return _converted(pa, texts, kind), {}
    except (pa.ArrowException, ValueError, TypeError) as error:
        if len(texts) == 1:
            return pa.nulls(1, kind), {0: str(error).splitlines()[0]}
    middle = len(texts) // 2
    left, problems = _fitting(pa, texts.slice(0, middle), kind)
    right, others = _fitting(pa, texts.slice(middle), kind)
    problems |= {middle + place: line for place, line in others.items()}
    return pa.concat_arrays([left, right]), problems


def _converted(pa: Any, texts: Any, kind: Any) -> Any:
    if pa.types.is_string(kind):
        return texts
    if pa.types.is_binary(kind):
        # `\x`, then digits.
        made = [None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()]
        return pa.array(made, kind)
    if pa.types.is_list(kind):
        return _list(pa, texts, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # The session's zone is UTC, and Arrow wants to see it.
        return texts.cast(pa.timestamp("us", "UTC")).cast(kind)
    return texts.cast(kind)


def _list(pa: Any, texts: Any, kind: Any) -> Any:
    """Of JSON; its items are texts again."""
    offsets, items = [0], []
    # Numbers keep all their digits.
    is_text = pa.types.is_string(kind.value_type)
    exact: dict[str, Any] = {} if is_text else {"parse_int": str, "parse_float": str}
    for text in texts.to_pylist():
        found = [] if text is None else json.loads(text, **exact)
        items += [_item(one) for one in found]
        offsets.append(len(items))
    values = _converted(pa, pa.array(items, pa.string()), kind.value_type)
    made = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), values, mask=texts.is_null() if texts.null_count else None
    )
    return made.cast(kind)


def _item(one: Any) -> Any:
    if one is None or isinstance(one, str):
        return one
    return json.dumps(one)
