"""Declarations of PostgreSQL tables and change events."""

from pathlib import Path

import pytest
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau.core.pipelines.graph import FormatKind, OnError, Postgres, Topic
from moldau.core.pipelines.graph_checks import problems_of

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
