"""From the texts that a PostgreSQL server sends to Arrow, in the kinds of Spark's schema."""

import json
from typing import Any

from moldau.pipelines.postgres_server import PostgresError


def json_columns(schema: Any) -> frozenset[str]:
    """Those that are asked for as JSON: their own texts are hard to read."""
    return frozenset(field.name for field in schema.fields if field.dataType.typeName() == "array")


def arrow_batch(lines: bytes, schema: Any, what: str) -> Any:
    """Of rows in CSV as COPY writes it. Raises PostgresError."""
    import pyarrow as pa
    from pyarrow import csv
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    table = csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(column_names=wanted.names, block_size=len(lines) + 1, use_threads=False),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(wanted.names, pa.string()),
            # Nothing is null, and quotes are an empty text.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).combine_chunks()
    columns = []
    for field in wanted:
        texts = table.column(field.name)
        texts = texts.chunk(0) if texts.num_chunks else pa.array([], pa.string())
        try:
            columns.append(_converted(pa, texts, field.type))
        except (pa.ArrowException, ValueError, TypeError) as error:
            line = str(error).splitlines()[0]
            raise PostgresError(
                f"{what}: column {field.name} does not fit {field.type}: {line}; "
                "give the source a schema that takes it, STRING takes everything"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


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
