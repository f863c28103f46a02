"""The columns of the source, as those of Spark's own `kafka`, and the columns of the sink."""

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.core.spark.errors import OptionError
from moldau.core.spark.options import schema_problem

HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_COLUMNS: dict[str, Any] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
_TEXT_OR_BYTES = (StringType(), BinaryType())
_SINK_COLUMNS: dict[str, tuple[Any, ...]] = {
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": (HEADERS,),
}


def source_schema(*, has_headers: bool) -> StructType:
    columns = _COLUMNS | ({"headers": HEADERS} if has_headers else {})
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def chosen_columns(schema: StructType) -> tuple[str, ...]:
    """The columns of a user's schema; others are not read. Raises OptionError."""
    known = _COLUMNS | {"headers": HEADERS}
    chosen = {field.name: field.dataType for field in schema.fields}
    problem = schema_problem(chosen, known, lambda kind: kind.simpleString())
    if problem is not None:
        raise OptionError(problem)
    return tuple(chosen)


def check_rows(schema: StructType, topic: str | None) -> None:
    """Raises OptionError if rows of this schema cannot be written. Other columns are ignored."""
    for field in schema.fields:
        kinds = _SINK_COLUMNS.get(field.name)
        if kinds is not None and not any(_is_same(field.dataType, kind) for kind in kinds):
            allowed = " or ".join(kind.simpleString() for kind in kinds)
            raise OptionError(
                f"column {field.name} is {field.dataType.simpleString()}; cast it to {allowed}"
            )
    names = schema.fieldNames()
    if "value" not in names:
        raise OptionError(f"the rows have no column named value, only {', '.join(names)}")
    if topic is None and "topic" not in names:
        raise OptionError("no topic; set the option topic, or give the rows a column topic")


def _is_same(kind: Any, other: Any) -> bool:
    """Whether types are equal, ignoring what they say about nulls."""
    return bool(kind.simpleString() == other.simpleString())
