"""Pipelines from and to a real PostgreSQL server: every row once, all kinds of values."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pipelines.at_work import make_topics, records_of, run_once, send, values_of
from pipelines.pipeline_files import example_here, written
from support.postgres_process import PASSWORD, PostgresProcess

import moldau.pipelines as mp
from moldau.protocol.errors import MoldauError
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

WRITING = """\
name: {name}
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  changes: {{topic: {name}, schema: "id BIGINT, text STRING, gone BOOLEAN", start: earliest}}
steps:
  added:
    sql: SELECT id, text FROM changes
    into: {{postgres: {name}_added, url: "{url}"}}
  latest:
    sql: SELECT id, text, gone AS _deleted FROM changes
    mode: upsert
    into: {{postgres: {name}_latest, key: id, url: "{url}"}}
  counted:
    sql: SELECT id, count(*) AS times FROM changes GROUP BY id
    mode: complete
    into: {{postgres: {name}_counted, url: "{url}"}}
"""


def run_again(session: Any, pipeline: mp.Pipeline, folder: Path) -> None:
    """Runs the last batch again, as after a crash between the targets' commits and Spark's own."""
    for file in (folder / "checkpoint").glob("*/commits/*0*"):
        file.unlink()
    run_once(session, pipeline, folder)


def test_tables_are_appended_to_upserted_and_replaced(
    session: Any, node: ThreadBroker, postgres: PostgresProcess, tmp_path: Path
) -> None:
    make_topics(node, "wrote")
    content = WRITING.format(name="wrote", bootstrap=node.bootstrap, url=postgres.url)
    pipeline = mp.load(written(tmp_path, "wrote.yaml", content))
    odd = 'a "quoted"\n\\.\n, %s and an end'
    send(node, "wrote", [{"id": 1, "text": "old"}, {"id": 1, "text": odd}, {"id": 2, "text": ""}])
    run_once(session, pipeline, tmp_path)
    run_again(session, pipeline, tmp_path)
    assert postgres.rows("SELECT * FROM wrote_latest ORDER BY id") == [(1, odd), (2, "")]
    send(node, "wrote", [{"id": 3}, {"id": 1, "gone": True}, {"id": 2, "text": "new"}])
    run_once(session, pipeline, tmp_path)

    added = postgres.rows("SELECT id, text FROM wrote_added ORDER BY id, text")
    assert len(added) == 6
    assert set(added) == {(1, "old"), (1, odd), (1, None), (2, ""), (2, "new"), (3, None)}
    assert postgres.rows("SELECT * FROM wrote_latest ORDER BY id") == [(2, "new"), (3, None)]
    assert postgres.rows("SELECT * FROM wrote_counted ORDER BY id") == [(1, 3), (2, 2), (3, 1)]
    assert postgres.rows("SELECT batch_id FROM moldau_batches WHERE name LIKE 'wrote.%'") == [
        (1,),
        (1,),
        (1,),
    ]
    assert postgres.rows("SELECT relname FROM pg_class WHERE relname LIKE 'moldau_stage%'") == []
    kept = [one for one in (tmp_path / "checkpoint").rglob("*") if one.is_file()]
    assert kept
    assert not [one for one in kept if PASSWORD.encode() in one.read_bytes()]


KINDS = """
CREATE TABLE kinds (
    id bigint PRIMARY KEY, small smallint, whole integer, price numeric(12,2), big numeric,
    ratio double precision, single real, sure boolean, day date, at timestamptz, local timestamp(3),
    body jsonb, raw bytea, tag uuid, tags text[], numbers numeric(10,3)[], moments timestamptz[],
    name varchar(20), mood text
)"""


def full_row(number: int) -> tuple[Any, ...]:
    moment = datetime(2026, 11, 1, 10, 0, 0, 123456, tzinfo=UTC)
    return (
        number, -3, 2**31 - 1, Decimal("12.50"), Decimal("123456789012345678.000000000000000001"),
        1e-300, 0.5, True, date(1969, 12, 31), moment,
        moment.replace(microsecond=500000, tzinfo=None),
        '{"a": [1, null]}', b"\x00\xff\\x", UUID(int=7), ["a,b", '"', "", None],
        [Decimal("1.500"), None], [moment], "N%me", "ok",
    )  # fmt: skip


COPYING = """\
name: {name}
sources:
  rows: {{postgres: kinds, url: "{url}", by: id, max_rows_per_trigger: 2}}
steps:
  copied: {{sql: SELECT * FROM rows, into: {{postgres: kinds_copied, key: id, url: "{url}"}}}}
"""


def test_all_kinds_of_values_survive(
    session: Any, postgres: PostgresProcess, tmp_path: Path
) -> None:
    postgres.rows(KINDS)
    postgres.rows(KINDS.replace("kinds", "kinds_copied"))
    nothing = (9, *[None] * 17, "")
    wild = list(full_row(3))
    wild[5], wild[14] = float("inf"), []
    places = ", ".join(["%s"] * 19)
    for row in (full_row(1), nothing, tuple(wild)):
        postgres.rows(f"INSERT INTO kinds VALUES ({places})", *row)
    content = COPYING.format(name="kinds", url=postgres.url)
    run_once(session, mp.load(written(tmp_path, "kinds.yaml", content)), tmp_path)
    order = "SELECT * FROM {} ORDER BY id"
    assert postgres.rows(order.format("kinds_copied")) == postgres.rows(order.format("kinds"))
    # Two rows in the first batch, one in the second.
    assert len(list((tmp_path / "checkpoint" / "rows" / "commits").glob("?"))) == 2


READING = """\
name: {name}
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  rows:
    postgres: {name}
    url: "{url}"
    by: changed
    max_rows_per_trigger: 3
steps:
  sent: {{sql: "SELECT id, note, changed FROM rows", into: {{topic: {name}.sent, key: id}}}}
"""


def test_rows_of_equal_time_are_read_once_each(
    session: Any, node: ThreadBroker, postgres: PostgresProcess, tmp_path: Path
) -> None:
    postgres.rows("CREATE TABLE ticks (id int PRIMARY KEY, note text, changed timestamptz)")
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    insert = "INSERT INTO ticks SELECT n, 'first', %s FROM generate_series({}, {}) n"
    postgres.rows(insert.format(4, 10), moment)
    content = READING.format(name="ticks", bootstrap=node.bootstrap, url=postgres.url)
    pipeline = mp.load(written(tmp_path, "ticks.yaml", content))
    run_once(session, pipeline, tmp_path)
    assert len(list((tmp_path / "checkpoint" / "rows" / "commits").glob("?"))) == 3
    # Rows with the same time as the last one read, and a change of one that was read.
    postgres.rows(insert.format(11, 12), moment)
    postgres.rows("UPDATE ticks SET note = 'second', changed = now() WHERE id = 5")
    run_again(session, pipeline, tmp_path)
    run_once(session, pipeline, tmp_path)
    found = sorted((row["id"], row["note"]) for row in values_of(session, node, "ticks.sent"))
    assert found == sorted([*((n, "first") for n in range(4, 13)), (5, "second")])


def test_a_large_first_load_is_read_in_parallel(
    session: Any, postgres: PostgresProcess, tmp_path: Path
) -> None:
    postgres.rows(
        "CREATE TABLE many AS SELECT n AS id, n % 7 AS rest FROM generate_series(1, 20000) n"
    )
    postgres.rows("ALTER TABLE many ADD PRIMARY KEY (id)")
    pipeline = mp.Pipeline(
        name="many",
        spot=mp.postgres("many").spot,
        sources={"many": mp.postgres("many", url=postgres.url, by="id", tasks=3)},
    )
    from moldau.pipelines.compile.sources import batch_of

    frame = batch_of(session, pipeline, "many", options={})
    assert frame.rdd.getNumPartitions() == 3
    assert frame.selectExpr("count(*)", "count(distinct id)", "sum(rest)").first() == (
        20000,
        20000,
        sum(n % 7 for n in range(1, 20001)),
    )


def test_rows_younger_than_the_lag_wait(
    session: Any, node: ThreadBroker, postgres: PostgresProcess, tmp_path: Path
) -> None:
    postgres.rows("CREATE TABLE late (id int PRIMARY KEY, note text, changed timestamptz)")
    postgres.rows(
        "INSERT INTO late VALUES (1, 'old', now() - interval '2 hours'), (2, 'new', now())"
    )
    content = READING.format(name="late", bootstrap=node.bootstrap, url=postgres.url)
    content = content.replace("by: changed", "by: changed\n    lag: 1h")
    run_once(session, mp.load(written(tmp_path, "late.yaml", content)), tmp_path)
    assert [row["id"] for row in values_of(session, node, "late.sent")] == [1]


UNFIT = """\
name: unfit
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  rows: {{postgres: unfit, url: "{url}", by: id, {on_error}}}
steps:
  sent: {{sql: SELECT * FROM rows, into: {{topic: unfit.sent}}}}
"""


def test_rows_that_do_not_fit_become_dead_letters(
    session: Any, node: ThreadBroker, postgres: PostgresProcess, tmp_path: Path
) -> None:
    postgres.rows("CREATE TABLE unfit (id int PRIMARY KEY, price numeric(9,2), day date)")
    postgres.rows(
        "INSERT INTO unfit VALUES (1, 1.5, '2026-11-01'), (2, 'NaN', NULL), (3, NULL, 'infinity'), "
        "(4, 'NaN', 'infinity'), (5, NULL, NULL)"
    )

    def run(on_error: str, folder: str) -> None:
        made = UNFIT.format(bootstrap=node.bootstrap, url=postgres.url, on_error=on_error)
        (tmp_path / folder).mkdir()
        run_once(session, mp.load(written(tmp_path / folder, "a.yaml", made)), tmp_path / folder)

    with pytest.raises(MoldauError, match=r"table unfit: column price does not fit decimal.*NaN"):
        run("on_error: fail", "fails")
    run("dead_letter: unfit.dlq", "letters")
    found = values_of(session, node, "unfit.sent")
    assert found == [{"id": 1, "price": 1.5, "day": "2026-11-01"}, {"id": 5}]
    letters = records_of(session, node, "unfit.dlq")
    assert [json.loads(value) for _, value, _ in letters] == [
        {"id": "2", "price": "NaN", "day": None},
        {"id": "3", "price": None, "day": "infinity"},
        {"id": "4", "price": "NaN", "day": "infinity"},
    ]
    told = [headers["__dlq.error"].split(":")[0] for _, _, headers in letters]
    wrong = ["price does not fit decimal(9,2)", "day does not fit date"]
    assert told == [f"column {wrong[place]}" for place in (0, 1, 0)]
    assert {(one["__dlq.table"], one["__dlq.step"]) for _, _, one in letters} == {("unfit", "rows")}


WRONG = """\
name: wrong
sources:
  rows: {{postgres: {table}, url: "{source}", by: {by}}}
steps:
  copied:
    sql: {sql}
    mode: {mode}
    into: {{postgres: {into}, url: "{target}", key: [{key}], create: {create}}}
"""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": "amuonts"}, "there is no table amuonts; did you mean amounts?"),
        ({"by": "idd"}, "table amounts has no column 'idd'; did you mean id?"),
        ({"into": "nowhere", "create": "false"}, "there is no table nowhere"),
        ({"sql": "SELECT id, n AS nn FROM rows"}, "no column 'nn'; did you mean n?"),
        ({"sql": "SELECT 'x' AS id FROM rows"}, 'invalid input syntax for type integer: "x"'),
        ({"mode": "upsert", "key": "n"}, "an upsert needs a primary key or unique index"),
        ({"target": "postgresql://boss@127.0.0.1:1/postgres"}, "Connection refused"),
        ({"source": "postgresql://boss@127.0.0.1:1/postgres"}, "Connection refused"),
        ({"target": "env:MOLDAU_NO_SUCH"}, "environment variable MOLDAU_NO_SUCH is not set"),
        ({"target": "guest"}, "permission denied for table copies"),
        ({"target": "stranger"}, 'password authentication failed for user "stranger"'),
    ],
)
def test_invalid_tables_are_an_error_of_one_line(
    session: Any, postgres: PostgresProcess, tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    if not postgres.rows("SELECT to_regclass('amounts')")[0][0]:
        postgres.rows("CREATE TABLE amounts (id int PRIMARY KEY, n int)")
        postgres.rows("INSERT INTO amounts VALUES (1, 1)")
        postgres.rows("CREATE TABLE copies (id int PRIMARY KEY, n int)")
        postgres.rows(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
        postgres.rows("GRANT CREATE ON SCHEMA public TO guest")
        postgres.rows("DROP TABLE IF EXISTS moldau_batches")
    known = {
        "table": "amounts", "by": "id", "sql": "SELECT * FROM rows", "mode": "append",
        "into": "copies", "key": "id", "create": "true",
        "source": postgres.url, "target": postgres.url,
    }  # fmt: skip
    known |= changes
    if known["target"] in {"guest", "stranger"}:
        postgres.rows("DROP TABLE IF EXISTS moldau_batches")
        known["target"] = postgres.url_for(known["target"])
    pipeline = mp.load(written(tmp_path, "wrong.yaml", WRONG.format(**known)))
    with pytest.raises(MoldauError) as caught:
        run_once(session, pipeline, tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


CHANGES = """\
name: cdc
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  customers:
    topic: cdc
    format: debezium
    schema: id BIGINT, name STRING
    start: earliest
    columns: [op]
    dead_letter: cdc.dlq
steps:
  latest:
    sql: SELECT id, name, _deleted FROM customers
    mode: upsert
    into: {{topic: cdc.latest, key: id, compacted: true}}
  mirrored:
    sql: SELECT id, name, _deleted FROM customers
    mode: upsert
    into: {{postgres: cdc_mirror, key: id, url: "{url}"}}
"""


def event(op: str, before: Any, after: Any, *, wrapped: bool = False) -> dict[str, Any]:
    made = {
        "before": before,
        "after": after,
        "op": op,
        "ts_ms": 1,
        "source": {"table": "customers"},
    }
    return {"schema": {"type": "struct"}, "payload": made} if wrapped else made


def test_change_events_become_rows_and_deletions(
    session: Any, node: ThreadBroker, postgres: PostgresProcess, tmp_path: Path
) -> None:
    make_topics(node, "cdc")
    ada, bob, eve = ({"id": n, "name": name} for n, name in enumerate(["Ada", "Bob", "Eve"]))
    send(
        node,
        "cdc",
        [
            event("r", None, ada),
            event("c", None, bob, wrapped=True),
            event("c", None, eve),
            event("u", bob, bob | {"name": "Robert"}, wrapped=True),
            event("d", eve, None),
            event("t", None, None),
            event("d", None, None),
            b"{}",
            b"[broken",
        ],
    )
    from moldau import Producer

    with Producer(node.bootstrap) as producer:
        producer.send("cdc", None, key=b"2")
    content = CHANGES.format(bootstrap=node.bootstrap, url=postgres.url)
    run_once(session, mp.load(written(tmp_path, "cdc.yaml", content)), tmp_path)

    assert postgres.rows("TABLE cdc_mirror") == [(0, "Ada"), (1, "Robert")]
    latest = {key: value for key, value, _ in records_of(session, node, "cdc.latest")}
    assert latest == {
        b"0": b'{"id":0,"name":"Ada"}',
        b"1": b'{"id":1,"name":"Robert"}',
        b"2": None,
    }
    letters = [headers["__dlq.error"] for _, _, headers in records_of(session, node, "cdc.dlq")]
    assert [text.split(":")[0] for text in letters] == [
        "a change event that concerns no row",
        "a deletion without the row before it",
        "the value is not a change event",
        "the value is not a change event of the columns id BIGINT, name STRING",
    ]


def test_the_example_of_change_events_runs(
    session: Any, node: ThreadBroker, postgres: PostgresProcess, tmp_path: Path
) -> None:
    places = {
        "127.0.0.1:9092": node.bootstrap,
        "postgresql://moldau@127.0.0.1:5432/shop": postgres.url,
    }
    make_topics(node, "shop.public.customers")
    ada = {"id": 1, "name": "Ada", "city": "Prag"}
    bob = {"id": 2, "name": "Bob", "city": "Linz"}
    events = [event("c", None, ada), event("c", None, bob), event("d", ada, None)]
    send(node, "shop.public.customers", events)
    run_once(session, example_here("customers.yaml", tmp_path, places), tmp_path)
    assert postgres.rows("TABLE customers_mirror") == [(2, "Bob", "LINZ")]
    assert [value for _, value, _ in records_of(session, node, "customers.latest")][-1] is None


def test_the_example_of_an_export_runs(
    session: Any,
    node: ThreadBroker,
    postgres: PostgresProcess,
    tmp_path: Path,
) -> None:
    postgres.rows(
        "CREATE TABLE invoices (id bigint PRIMARY KEY, customer text, amount numeric(12,2), "
        "changed timestamptz DEFAULT now() - interval '1 hour')"
    )
    postgres.rows("INSERT INTO invoices VALUES (1, 'Ada', 1.5), (2, 'Bob', 2), (3, 'Ada', 0.25)")
    places = {"127.0.0.1:9092": node.bootstrap, "env:DATABASE_URL": postgres.url}
    run_once(session, example_here("invoices.py", tmp_path, places), tmp_path)
    assert sorted(row["id"] for row in values_of(session, node, "invoices")) == [1, 2, 3]
    found = postgres.rows("SELECT * FROM invoice_sums ORDER BY customer")
    assert found == [("Ada", 2, Decimal("1.75")), ("Bob", 1, Decimal("2.00"))]
