"""The SQL statements and types of PostgreSQL tables."""

import pytest

from moldau.core.connectors.postgres_sql import (
    Cursor,
    Merge,
    WrittenColumn,
    check_lag,
    create_markers,
    create_stage,
    create_table,
    kind_of,
    quoted_table,
    read_position,
    spark_kind_of,
    stage_prefix,
    write_position,
)
from moldau.core.pipelines.graph import Mode
from moldau.core.spark.errors import OptionError


def test_names_cannot_leave_their_quotes() -> None:
    assert quoted_table('shop.or"ders; DROP') == '"shop"."or""ders; DROP"'


@pytest.mark.parametrize(
    ("spark", "postgres"),
    [
        ("bigint", "bigint"),
        ("decimal(10,2)", "numeric(10,2)"),
        ("timestamp", "timestamp with time zone"),
        ("binary", "bytea"),
        ("array<string>", "text[]"),
        ("array<decimal(10,2)>", "numeric(10,2)[]"),
    ],
)
def test_types_are_converted_both_ways(spark: str, postgres: str) -> None:
    assert kind_of(spark) == postgres
    assert spark_kind_of(postgres) == spark


def test_types_that_only_one_side_has() -> None:
    assert kind_of("struct<a:int>") == kind_of("map<string,int>") == "jsonb"
    assert kind_of("array<array<int>>") == "jsonb"
    assert [spark_kind_of(kind) for kind in ("uuid", "jsonb", "numeric(50,2)", "time")] == [
        "string"
    ] * 4
    assert spark_kind_of("numeric") == "decimal(38,18)"
    assert spark_kind_of("timestamp(3) without time zone") == "timestamp_ntz"


def test_an_upsert_takes_the_last_of_each_key_and_deletes() -> None:
    columns = (WrittenColumn("id", "int", "integer"), WrittenColumn("n", "int", "integer"))
    merge = Merge(
        table="t", stage="s", columns=columns, mode=Mode.UPSERT, key=("id",), deleted_index=2
    )
    ((statement, takes_attempts),) = merge.statements()
    assert takes_attempts
    assert "DISTINCT ON (c0)" in statement
    assert "ORDER BY c0, part DESC, place DESC" in statement
    assert 'DELETE FROM "t" t USING latest' in statement
    assert 'ON CONFLICT ("id") DO UPDATE SET "n" = excluded."n"' in statement


def test_a_range_starts_after_one_row_and_ends_with_another() -> None:
    cursor = Cursor(table="t", columns=("at", "id"), kinds=("date", "integer"), lag_ms=5)
    where, values = cursor.between(("2026-11-01", "5"), ("2026-11-02",))
    assert '("at", "id") > (%s::date, %s::integer)' in where
    assert '("at") <= (%s::date)' in where
    assert values == ["2026-11-01", "5", "2026-11-02"]
    # An end was chosen with the lag; rows after the start alone still have to wait for it.
    assert "interval" not in where
    assert "interval '5 milliseconds'" in cursor.between(None, None)[0]


def test_a_lag_needs_a_column_of_times() -> None:
    with pytest.raises(OptionError, match="needs a column of times"):
        check_lag(Cursor(table="t", columns=("id",), kinds=("bigint",), lag_ms=1))


@pytest.mark.parametrize("place", [None, ("1",), ("2026-11-01 00:00:00+00", "a")])
def test_positions_survive_the_checkpoint(place: tuple[str, ...] | None) -> None:
    assert read_position(write_position(place)) == place


def merge(mode: Mode, *columns: WrittenColumn, key: tuple[str, ...] = ()) -> list[tuple[str, bool]]:
    return Merge(table="shop.t", stage="s", columns=columns, mode=mode, key=key).statements()


ID = WrittenColumn("id", "int", "integer")


def test_appended_rows_keep_the_order_in_which_they_were_written() -> None:
    ((statement, takes_attempts),) = merge(Mode.APPEND, ID)
    assert takes_attempts
    assert statement.startswith('INSERT INTO "shop"."t" ("id") SELECT c0::integer FROM "s"')
    assert statement.endswith(" WHERE attempt = ANY(%s) ORDER BY part, place")


def test_a_complete_result_replaces_all_rows() -> None:
    deletion, insertion = merge(Mode.COMPLETE, ID)
    assert deletion == ('DELETE FROM "shop"."t"', False)
    assert insertion[0].startswith('INSERT INTO "shop"."t" ("id")')
    assert insertion[1]


def test_an_upsert_of_keys_alone_keeps_what_is_there() -> None:
    ((statement, _),) = merge(Mode.UPSERT, ID, key=("id",))
    assert statement.endswith('WHERE NOT false ON CONFLICT ("id") DO NOTHING')
    assert "DELETE" not in statement


def test_values_are_made_from_text() -> None:
    times = WrittenColumn("at", "timestamp", "timestamp with time zone")
    assert times.value(2) == (
        "(timestamptz 'epoch' + c2::bigint * interval '1 microsecond')::timestamp with time zone"
    )
    items = WrittenColumn("tags", "array<string>", "text[]").value(0)
    assert "jsonb_array_elements_text(c0::jsonb) WITH ORDINALITY" in items
    assert items.endswith("::text[] END")
    # An array in a column of another kind is written as it is.
    assert WrittenColumn("tags", "array<string>", "jsonb").value(0) == "c0::jsonb"


def test_tables_are_made_in_the_schema_of_their_table() -> None:
    columns = {"id": "bigint", "name": "string"}
    assert create_table("shop.t", columns, ("id",)) == (
        'CREATE TABLE IF NOT EXISTS "shop"."t" ("id" bigint, "name" text, PRIMARY KEY ("id"))'
    )
    assert "PRIMARY KEY" not in create_table("t", columns, ())
    assert create_markers("shop.t").startswith('CREATE TABLE IF NOT EXISTS "shop"."')
    assert create_stage("s", 2) == (
        'CREATE UNLOGGED TABLE "s" (part integer, place bigint, attempt bigint, c0 text, c1 text)'
    )
    assert stage_prefix("a query") != stage_prefix("another query")


def test_a_column_of_times_may_lag() -> None:
    check_lag(Cursor(table="t", columns=("at",), kinds=("timestamp with time zone",), lag_ms=5))
    check_lag(Cursor(table="t", columns=("id",), kinds=("bigint",)))
