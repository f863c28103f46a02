"""Statements for a PostgreSQL server: merging a batch into a table, reading a range of rows, and
the column types for Spark's. Values are parameters (`%s`).
"""

import hashlib
import json
import re
from typing import Any

from moldau.core.pipelines.graph import Mode
from moldau.core.spark.errors import OptionError
from moldau.frozen import frozen

MARKERS = "moldau_batches"
"""The table of each query's last committed batch, in the schema of the target table."""
STAGE_PREFIX = "moldau_stage_"
DELETED = "_deleted"
BAD_ROW = "__moldau_bad_row"
"""PostgreSQL's text of a row that does not match its columns."""
BAD_REASON = "__moldau_bad_reason"
_NAME_DIGITS = 12
_KINDS = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
_SPARK_KINDS = {kind: name for name, kind in _KINDS.items() if name != "tinyint"}
# Types whose ranges can be cut into equal parts.
_EVEN_KINDS = (
    "smallint", "integer", "bigint", "date", "timestamp with time zone",
    "timestamp without time zone",
)  # fmt: skip
_TIME_KINDS = ("date", "timestamp with time zone", "timestamp without time zone")
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_DIGITS_MAX = 38


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def quoted_table(name: str) -> str:
    """`shop.orders` is the table orders of the schema shop."""
    return ".".join(quoted(part) for part in name.split(".", 1))


def sibling_table(table: str, name: str) -> str:
    """A table of another name in the same schema."""
    schema, dot, _ = table.rpartition(".")
    return f"{schema}{dot}{name}"


def stage_prefix(name: str) -> str:
    """The prefix of the stage tables of one query's flow."""
    return f"{STAGE_PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:_NAME_DIGITS]}_"


def kind_of(spark_kind: str) -> str:
    """The column type for a Spark type."""
    if spark_kind.startswith("decimal"):
        return spark_kind.replace("decimal", "numeric")
    if spark_kind.startswith("array<"):
        inner = kind_of(spark_kind[len("array<") : -1])
        return "jsonb" if inner == "jsonb" or inner.endswith("[]") else f"{inner}[]"
    # Structs, maps and variants keep their shape.
    return _KINDS.get(spark_kind, "jsonb")


def spark_kind_of(kind: str) -> str:
    """The Spark type for a column type; string for types that Spark does not have."""
    if kind.endswith("[]"):
        return f"array<{spark_kind_of(kind[:-2])}>"
    if kind == "numeric":
        return f"decimal({_DIGITS_MAX},18)"
    if match := _NUMERIC.fullmatch(kind):
        digits, scale = int(match[1]), int(match[2])
        return f"decimal({digits},{scale})" if 0 <= scale <= digits <= _DIGITS_MAX else "string"
    return _SPARK_KINDS.get(re.sub(r"^(time.*)\(\d\)", r"\1", kind), "string")


@frozen
class WrittenColumn:
    """A column of the rows, and the table's column for it."""

    name: str
    spark_kind: str
    kind: str

    def value(self, index: int) -> str:
        """The expression that converts the stage's text."""
        text = stage_column(index)
        if self.spark_kind.startswith("array<") and self.kind.endswith("[]"):
            items = f"jsonb_array_elements_text({text}::jsonb) WITH ORDINALITY AS a(item, place)"
            made = f"ARRAY(SELECT item FROM {items} ORDER BY place)::{self.kind}"
            return f"CASE WHEN {text} IS NOT NULL THEN {made} END"
        if self.spark_kind == "timestamp":
            # Microseconds do not depend on the time zone.
            moment = f"timestamptz 'epoch' + {text}::bigint * interval '1 microsecond'"
            return f"({moment})::{self.kind}"
        return f"{text}::{self.kind}"


def stage_column(index: int) -> str:
    return f"c{index}"


def create_stage(stage: str, columns: int) -> str:
    """Every value is text, so tasks need not know the table's types. A crash may empty the table,
    which only affects uncommitted batches.
    """
    texts = ", ".join(f"{stage_column(index)} text" for index in range(columns))
    return (
        f"CREATE UNLOGGED TABLE {quoted_table(stage)} "
        f"(part integer, place bigint, attempt bigint, {texts})"
    )


def create_table(table: str, columns: dict[str, str], key: tuple[str, ...]) -> str:
    """`columns`: Spark types by name."""
    parts = [f"{quoted(name)} {kind_of(kind)}" for name, kind in columns.items()]
    if key:
        parts.append(f"PRIMARY KEY ({_names(key)})")
    return f"CREATE TABLE IF NOT EXISTS {quoted_table(table)} ({', '.join(parts)})"


def create_markers(table: str) -> str:
    markers = quoted_table(sibling_table(table, MARKERS))
    return (
        f"CREATE TABLE IF NOT EXISTS {markers} (name text PRIMARY KEY,"
        " query_id text NOT NULL, batch_id bigint NOT NULL, digest text NOT NULL,"
        " committed timestamptz NOT NULL DEFAULT now())"
    )


@frozen(kw_only=True)
class Merge:
    """Moves a stage's rows into a table. `%s` is the list of valid attempts."""

    table: str
    stage: str
    columns: tuple[WrittenColumn, ...]
    mode: Mode
    key: tuple[str, ...] = ()
    deleted_index: int | None = None
    """The index of the stage column that marks deleted rows."""

    def statements(self) -> list[tuple[str, bool]]:
        """Each statement, and whether it takes the parameter."""
        names = _names(column.name for column in self.columns)
        values = ", ".join(column.value(index) for index, column in enumerate(self.columns))
        insert = f"INSERT INTO {quoted_table(self.table)} ({names}) SELECT {values} FROM"
        valid_rows = f"{quoted_table(self.stage)} WHERE attempt = ANY(%s)"
        match self.mode:
            case Mode.APPEND:
                return [(f"{insert} {valid_rows} ORDER BY part, place", True)]
            case Mode.COMPLETE:
                # Not TRUNCATE, so concurrent readers still see the old rows.
                return [
                    (f"DELETE FROM {quoted_table(self.table)}", False),
                    (f"{insert} {valid_rows}", True),
                ]
            case Mode.UPSERT:
                return [(self._upsert(insert, valid_rows), True)]

    def _upsert(self, insert: str, valid_rows: str) -> str:
        indexes = {column.name: index for index, column in enumerate(self.columns)}
        key_texts = ", ".join(stage_column(indexes[name]) for name in self.key)
        # Within a batch, the last row of a key wins.
        latest = (
            f"WITH latest AS (SELECT DISTINCT ON ({key_texts}) * FROM {valid_rows} "
            f"ORDER BY {key_texts}, part DESC, place DESC)"
        )
        is_gone = "false"
        if self.deleted_index is not None:
            is_gone = f"coalesce({stage_column(self.deleted_index)}::boolean, false)"
            same = " AND ".join(
                f"t.{quoted(name)} = {self.columns[indexes[name]].value(indexes[name])}"
                for name in self.key
            )
            latest += (
                f", gone AS (DELETE FROM {quoted_table(self.table)} t USING latest "
                f"WHERE {is_gone} AND {same})"
            )
        others = [column.name for column in self.columns if column.name not in self.key]
        changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        action = f"DO UPDATE SET {changes}" if others else "DO NOTHING"
        conflict = f"ON CONFLICT ({_names(self.key)}) {action}"
        return f"{latest} {insert} latest WHERE NOT {is_gone} {conflict}"


def _names(names: Any) -> str:
    return ", ".join(map(quoted, names))


# Reading.


@frozen(kw_only=True)
class Cursor:
    """The order in which a table is read: by one column and, for equal values, by a key."""

    table: str
    columns: tuple[str, ...]
    """The column `by` comes first."""
    kinds: tuple[str, ...]
    lag_ms: int = 0

    @property
    def is_even(self) -> bool:
        return self.kinds[0] in _EVEN_KINDS

    def between(
        self, start: tuple[str, ...] | None, end: tuple[str, ...] | None
    ) -> tuple[str, list[str]]:
        """The condition for the rows after `start` and up to `end`, and its parameters. `start` and
        `end` have the values of a row, or only that of `by`.
        """
        by = quoted(self.columns[0])
        parts = [f"{by} IS NOT NULL"]
        values: list[str] = []
        for sign, position in ((">", start), ("<=", end)):
            if position is not None:
                names = _names(self.columns[: len(position)])
                casts = ", ".join(f"%s::{kind}" for kind in self.kinds[: len(position)])
                parts.append(f"({names}) {sign} ({casts})")
                values += position
        if end is None and self.lag_ms:
            # Transactions that began earlier have had time to commit.
            parts.append(f"{by} <= (now() - interval '{self.lag_ms} milliseconds')")
        return " AND ".join(parts), values

    def last_of(self, start: tuple[str, ...] | None, rows_max: int | None) -> tuple[str, list[str]]:
        """A query for the position of the last row to read; without `rows_max`, of the last row."""
        # Aliases, because the order is that of the columns, not of these texts.
        texts = ", ".join(
            f"{quoted(name)}::text AS {stage_column(index)}"
            for index, name in enumerate(self.columns)
        )
        where, values = self.between(start, None)
        direction = " DESC" if rows_max is None else ""
        order = ", ".join(f"{quoted(name)}{direction}" for name in self.columns)
        skipped = "" if rows_max is None else f" OFFSET {rows_max - 1}"
        rows = f"FROM {quoted_table(self.table)} WHERE {where}"
        return f"SELECT {texts} {rows} ORDER BY {order} LIMIT 1{skipped}", values

    def cuts(
        self, start: tuple[str, ...] | None, end: tuple[str, ...], parts: int
    ) -> tuple[str, list[str]]:
        """A query for the values of `by` that cut a range into equal parts."""
        by, kind = quoted(self.columns[0]), self.kinds[0]
        where, values = self.between(start, end)
        inner = ", ".join(
            f"(low + (high - low) * {index} / {parts})::{kind}::text" for index in range(1, parts)
        )
        found = f"SELECT min({by}) AS low, max({by}) AS high FROM {quoted_table(self.table)}"
        return f"SELECT {inner} FROM ({found} WHERE {where}) AS ends", values


def check_lag(cursor: Cursor) -> None:
    """Raises OptionError."""
    if cursor.lag_ms and cursor.kinds[0] not in _TIME_KINDS:
        raise OptionError(
            f"table {cursor.table}: a lag needs a column of times, but {cursor.columns[0]} is "
            f"{cursor.kinds[0]}"
        )


def write_position(position: tuple[str, ...] | None) -> dict[str, Any]:
    """The position as stored in Spark's checkpoint."""
    return {"behind": None if position is None else list(position)}


def read_position(offset: dict[str, Any] | str) -> tuple[str, ...] | None:
    found = json.loads(offset) if isinstance(offset, str) else offset
    position = found["behind"]
    return None if position is None else tuple(position)
