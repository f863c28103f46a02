"""The SQL statements and types of PostgreSQL tables."""

import pytest

from moldau.core.connectors.postgres_sql import (
    Cursor,
    Merge,
    WrittenColumn,
    check_lag,
    kind_of,
    quoted_table,
    read_position,
    spark_kind_of,
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
