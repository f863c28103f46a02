"""Declarations of PostgreSQL tables and change events, and the SQL statements made from them."""

from pathlib import Path

import pytest
from pipelines.pipeline_files import written

import moldau.pipelines as mp
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
from moldau.core.pipelines.graph import FormatKind, Mode, OnError, Postgres, Topic
from moldau.core.pipelines.graph_checks import problems_of
from moldau.core.spark.errors import OptionError

YAML = """\
sources:
  orders:
    postgres: shop.orders
    url: "postgresql://me@host/db"
    by: changed
    key: [id]
    start: 2026-11-01
    lag: 10s
    max_rows_per_trigger: 1000
    tasks: 4
    dead_letter: orders.dlq
  changes: {topic: changes, format: debezium, schema: "id BIGINT", columns: [op, key]}
steps:
  copied:
    sql: SELECT * FROM orders
    mode: upsert
    into: {postgres: copies, key: id, create: false, url: "env:TARGET"}
  seen: {sql: SELECT * FROM changes, into: {topic: seen}}
"""


def test_a_file_declares_tables_and_events(tmp_path: Path) -> None:
    pipeline = mp.load(written(tmp_path, "pg.yaml", YAML))
    assert problems_of(pipeline) == ()
    orders = pipeline.sources["orders"]
    assert isinstance(orders, Postgres)
    assert (orders.name, orders.by, orders.key, orders.start, orders.lag_ms, orders.tasks) == (
        "shop.orders",
        "changed",
        ("id",),
        "2026-11-01",
        10_000,
        4,
    )
    assert (orders.dead_letter, orders.on_error) == ("orders.dlq", OnError.DEAD_LETTER)
    changes = pipeline.sources["changes"]
    assert isinstance(changes, Topic)
    assert changes.format.kind is FormatKind.DEBEZIUM
    into = pipeline.flows["copied"].into
    assert isinstance(into, Postgres)
    assert (into.name, into.key, into.create, into.url) == ("copies", ("id",), False, "env:TARGET")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("me@host", "me:secret@host", "a pipeline must not contain a password"),
        ("postgresql://me@host/db", "host=h password = x", "must not contain a password"),
        ("lag: 10s", "lag: soon", "lag 'soon' is not a duration"),
        ("tasks: 4", "taks: 4", "did you mean tasks?"),
        ("    by: changed\n", "", "needs the column by which"),
        ("dead_letter: orders.dlq", "on_error: dead_letter", "there is no dead_letter topic"),
        ("dead_letter: orders.dlq", "on_error: pass", "on_error must be dead_letter, drop or fail"),
        ("key: id, create", "create", "mode upsert needs a key"),
        ("[op, key]", "[opp]", "a record has no 'opp'"),
        ("format: debezium", "format: json", "a record has no 'op'"),
        ('"id BIGINT", ', "", "no schema"),
        ("{topic: seen}", "{topic: seen, format: debezium}", "debezium can only be read"),
    ],
)
def test_invalid_declarations_are_reported_with_their_location(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in YAML
    content = YAML.replace(old, new).replace("schema: columns", "columns")
    with pytest.raises(mp.PipelineError) as caught:
        mp.load(written(tmp_path, "pg.yaml", content))
    assert message in str(caught.value)
    assert "pg.yaml:" in str(caught.value)
    assert "secret" not in str(caught.value)


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
