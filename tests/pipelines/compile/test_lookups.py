"""Lookups: rows of a stream are joined with a table as of the start of the run, or as of its last
refresh.
"""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pipelines.at_work import make_topics, queries_of, run_once, send, values_of
from pipelines.pipeline_files import written
from pyiceberg.catalog import load_catalog
from support.postgres_process import PostgresProcess
from support.running_node import free_port

import moldau.pipelines as mp
from moldau.core.pipelines.graph import Lookup, Pipeline, PipelineError, Postgres, Table
from moldau.pipelines.compile.examples import try_example
from moldau.pipelines.compile.lookups import LookupFrames, Lookups, shapes_of_lookups
from moldau.testing import ThreadBroker

JOINED = """\
name: looked
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  orders: {{topic: looked, schema: "n INT, user STRING", start: earliest}}
lookups:
  once: {{table: users, schema: "user STRING, city STRING"}}
  often: {{table: users, refresh: 1ms, schema: "user STRING, city STRING"}}
steps:
  joined:
    sql: |
      SELECT n, once.city AS at_start, often.city AS now
      FROM orders JOIN once USING (user) JOIN often USING (user)
    into: {{topic: looked.joined}}
  cities:
    sql: SELECT city, count(*) AS orders FROM orders JOIN once USING (user) GROUP BY city
    mode: upsert
    into: {{topic: looked.cities, key: city}}
tests:
  - name: users have cities
    given:
      orders: [{{n: 1, user: a}}, {{n: 2, user: eve}}]
      once: [{{user: a, city: Prag}}]
      often: [{{user: a, city: Brno}}]
    expect: {{joined: [{{n: 1, at_start: Prag, now: Brno}}]}}
"""
PYTHON = """\
import moldau.pipelines as mp

orders = mp.topic("looked", schema="n INT, user STRING")
users = mp.table("users", refresh="10m")
prices = mp.postgres("prices", key="n", refresh="start")
lake = mp.table("lake")


@mp.flow(into=lake)
def joined(orders, users, prices):
    return orders.join(users, "user").join(prices, "n")
"""


def move(session: Any, folder: Path, city: str) -> None:
    """Changes the city in which the user lives."""
    rows = session.createDataFrame([("a", city)], "user STRING, city STRING")
    rows.coalesce(1).write.mode("overwrite").parquet(str(folder / "users"))


@pytest.mark.spark
def test_rows_are_joined_with_tables_that_are_read_once_or_refreshed(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    path = written(tmp_path, "a.yaml", JOINED.format(bootstrap=node.bootstrap))
    pipeline = mp.load(path)
    # The table need not exist for this.
    assert [one.name for one in queries_of(session, path)] == ["orders", "cities"]
    assert try_example(session, pipeline, pipeline.examples[0]).problems == ()

    make_topics(node, "looked")
    with pytest.raises(mp.PipelineError, match=r"a.yaml:6:9: 'once': \[PATH_NOT_FOUND\]"):
        run_once(session, pipeline, tmp_path)
    move(session, tmp_path, "Prag")
    send(node, "looked", [{"n": 1, "user": "a"}])
    run_once(session, pipeline, tmp_path)
    move(session, tmp_path, "Brno")
    send(node, "looked", [{"n": 2, "user": "a"}, {"n": 3, "user": "eve"}])
    run_once(session, pipeline, tmp_path)
    assert values_of(session, node, "looked.joined") == [
        {"n": 1, "at_start": "Prag", "now": "Prag"},
        {"n": 2, "at_start": "Brno", "now": "Brno"},
    ]
    assert values_of(session, node, "looked.cities") == [
        {"city": "Prag", "orders": 1},
        {"city": "Brno", "orders": 1},
    ]


@pytest.mark.spark
def test_a_table_is_read_again_when_a_refresh_is_due(
    session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, "a.yaml", JOINED.format(bootstrap="127.0.0.1:1"))
    move(session, tmp_path, "Prag")
    lookups = Lookups(session, mp.load(path))
    found = LookupFrames(lookups, ["once", "often"])

    def cities() -> dict[str, str]:
        return {name: rows.first().city for name, rows in found.frames(session).items()}

    # With `start`, later batches see the rows of the run's start, too.
    move(session, tmp_path, "Brno")
    assert cities() == {"once": "Prag", "often": "Brno"}
    move(session, tmp_path, "Wien")
    assert cities() == {"once": "Prag", "often": "Wien"}
    shutil.rmtree(tmp_path / "users")
    with caplog.at_level("WARNING"):
        assert cities() == {"once": "Prag", "often": "Wien"}
    assert "'often': [PATH_NOT_FOUND]" in caplog.text
    assert "using the rows read before" in caplog.text
    move(session, tmp_path, "Rom")
    assert cities() == {"once": "Prag", "often": "Rom"}


@pytest.mark.spark
def test_tables_of_every_kind_can_be_looked_up(
    session: Any, postgres: PostgresProcess, tmp_path: Path
) -> None:
    users = pa.table({"user": ["a"], "city": ["Prag"]})
    write_deltalake(str(tmp_path / "delta"), users)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog["warehouse"] = f"file://{tmp_path}/warehouse"
    opened = load_catalog("moldau", **catalog)
    opened.create_namespace("shop")
    opened.create_table("shop.users", users.schema).append(users)
    with postgres.connected() as connection:
        connection.execute('CREATE TABLE looked_up ("user" text PRIMARY KEY, city text)')
        connection.execute("INSERT INTO looked_up VALUES ('a', 'Prag')")
    lookups: tuple[Lookup, ...] = (
        mp.table(tmp_path / "delta", format="delta"),
        mp.table(tmp_path / "delta", format="delta", schema="city STRING"),
        mp.table("shop.users", format="iceberg", catalog=catalog),
        mp.postgres("looked_up", url=postgres.url, key="user", refresh="start"),
    )
    pipeline = Pipeline(name="all", spot=lookups[0].spot)
    pipeline.lookups.update({f"users_{number}": one for number, one in enumerate(lookups)})
    shapes = shapes_of_lookups(session, pipeline)
    for name, rows in Lookups(session, pipeline).frames().items():
        assert [row.city for row in rows.collect()] == ["Prag"], name
        # `check` sees the same columns, but no row.
        assert shapes[name].schema == rows.schema
        assert shapes[name].isEmpty()


@pytest.mark.spark
def test_an_unreachable_server_is_reported_with_its_own_message(session: Any) -> None:
    url = f"postgresql://boss@127.0.0.1:{free_port()}/postgres"
    lookup = mp.postgres("prices", url=url, key="n", refresh="start")
    pipeline = Pipeline(name="lost", spot=lookup.spot)
    pipeline.lookups["prices"] = lookup
    with pytest.raises(PipelineError, match=r"'prices': table prices: .*Connection refused"):
        shapes_of_lookups(session, pipeline)


def test_lookups_in_python_are_what_flows_read(tmp_path: Path) -> None:
    found = mp.load(written(tmp_path, "b.py", PYTHON))
    assert list(found.sources) == ["orders"]
    assert list(found.lookups) == ["users", "prices"]
    users, prices = found.lookups["users"], found.lookups["prices"]
    assert isinstance(users, Table)
    assert isinstance(prices, Postgres)
    assert (users.path, users.refresh_ms) == (str(tmp_path / "users"), 600_000)
    assert (prices.is_lookup, prices.refresh_ms) == (True, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("FROM orders JOIN once USING (user) JOIN", "FROM once JOIN", "only reads lookups"),
        (
            "refresh: 1ms",
            "refresh: soon",
            "'soon' is not a duration; write 500ms, 10s",
        ),
        (
            "table: users, refresh",
            "postgres: users, refresh",
            "'often' needs a key to be",
        ),
        ("once: {{table", "orders: {{table", "'orders' is already the name of a source or flow"),
        ("given:\n      orders", "given:\n      oders", "did you mean orders?"),
    ],
)
def test_impossible_lookups_are_errors(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in JOINED
    content = JOINED.replace(old, new, 1).format(bootstrap="127.0.0.1:1")
    with pytest.raises(mp.PipelineError) as caught:
        mp.load(written(tmp_path, "a.yaml", content))
    assert message in str(caught.value)


def test_a_table_of_postgres_is_a_source_or_a_lookup(tmp_path: Path) -> None:
    content = PYTHON.replace('refresh="start"', 'refresh="start", by="n"')
    with pytest.raises(mp.PipelineError, match="'prices' is read by 'n' as a source, or with"):
        mp.load(written(tmp_path, "b.py", content))
