"""Pipelines in Spark, against a broker: each row is written once, even if a batch runs again."""

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pipelines.at_work import make_topics, records_of, run_once, send, values_of
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau.pipelines.run.replay import renamed, replay
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

SHOP = """\
name: {name}
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  orders:
    topic: {name}
    schema: "id BIGINT, user STRING, amount DOUBLE, ts TIMESTAMP"
    start: earliest
    dead_letter: {name}.dlq
steps:
  known: {{sql: SELECT * FROM orders WHERE user IS NOT NULL}}
  big:
    sql: SELECT id, user, amount FROM known WHERE amount > 100
    into: {{topic: {name}.big, key: user}}
  per_user:
    sql: |
      SELECT user, count(*) AS orders, sum(amount) AS total
      FROM known GROUP BY user
    mode: upsert
    into: {{topic: {name}.per_user, key: user, compacted: true}}
  lake:
    sql: SELECT *, to_date(ts) AS day FROM known
    into: {{table: "{folder}/lake", partition_by: day}}
  delta_lake:
    sql: SELECT id, ts, user FROM known
    into: {{table: "{folder}/delta", format: delta, partition_by: user}}
"""


def order(number: int) -> dict[str, Any]:
    day = f"2026-11-{1 + number % 3:02d}"
    return {"id": number, "user": f"u{number % 2}", "amount": number, "ts": f"{day}T12:00:00Z"}


def shop(node: ThreadBroker, folder: Path, name: str) -> mp.Pipeline:
    make_topics(node, name)
    content = SHOP.format(name=name, bootstrap=node.bootstrap, folder=folder)
    return mp.load(written(folder, "shop.yaml", content))


def lake_ids(folder: Path) -> list[int]:
    table = ds.dataset(folder / "lake", partitioning="hive").to_table()
    delta = sorted(DeltaTable(folder / "delta").to_pyarrow_table()["id"].to_pylist())
    found = sorted(table["id"].to_pylist())
    assert found == delta
    return found


def test_all_targets_get_every_row_once(session: Any, node: ThreadBroker, tmp_path: Path) -> None:
    pipeline = shop(node, tmp_path, "shop")
    send(node, "shop", [order(number) for number in range(90, 110)])
    send(node, "shop", [b"{broken"], key=b"k")
    run_once(session, pipeline, tmp_path)
    send(node, "shop", [order(number) for number in range(110, 115)])
    run_once(session, pipeline, tmp_path)
    run_once(session, pipeline, tmp_path)

    big = values_of(session, node, "shop.big")
    assert sorted(row["id"] for row in big) == list(range(101, 115))
    assert records_of(session, node, "shop.big")[0][0] == b"u1"
    assert lake_ids(tmp_path) == list(range(90, 115))
    assert sorted(one.name for one in (tmp_path / "lake").glob("day=*")) == [
        "day=2026-11-01",
        "day=2026-11-02",
        "day=2026-11-03",
    ]
    latest = {row["user"]: row["orders"] for row in values_of(session, node, "shop.per_user")}
    assert latest == {"u0": 13, "u1": 12}
    ((key, value, headers),) = records_of(session, node, "shop.dlq")
    assert (key, value) == (b"k", b"{broken")
    assert headers["__dlq.topic"] == headers["__dlq.pipeline"] == "shop"
    assert (headers["__dlq.partition"], headers["__dlq.offset"]) == ("0", "20")
    assert headers["__dlq.step"] == "orders"
    assert "not json" in headers["__dlq.error"]


def test_a_batch_that_is_run_again_changes_nothing(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    """As after a crash between the targets' commits and Spark's own."""
    pipeline = shop(node, tmp_path, "again")
    send(node, "again", [order(number) for number in range(200, 210)])
    run_once(session, pipeline, tmp_path)
    for file in (tmp_path / "checkpoint").glob("*/commits/*0*"):
        file.unlink()
    run_once(session, pipeline, tmp_path)
    assert len(values_of(session, node, "again.big")) == 10
    assert lake_ids(tmp_path) == list(range(200, 210))
    assert [row["orders"] for row in values_of(session, node, "again.per_user")] == [5, 5]


WORDS = """\
from pyspark.sql import functions as F

import moldau.pipelines as mp

servers = {{"bootstrap.servers": "{bootstrap}"}}
settings = mp.pipeline("{name}", settings=servers, delivery="{delivery}")
lines = mp.topic("{name}", format=mp.text(), start="earliest", columns=["key"])


@F.udf("string")
def shout(word):
    return word.upper()


@mp.flow()
def words(lines):
    return lines.select(F.explode(F.split("value", " ")).alias("word"), "_key")


@mp.flow(into=mp.topic("{name}.counts", key="word"), mode="complete")
def counts(words):
    return words.groupBy("word").count()


@mp.flow(into=mp.topic("{name}.loud", format=mp.text()))
def loud(words):
    return words.select(shout("word").alias("value"))


@mp.flow(into=mp.topic("{name}.csv", format=mp.csv(), key=["word", "length"]), on_error="drop")
def lengths(words):
    too_long = F.when(F.length("word") > 5, "too long")
    return words.select("word", F.length("word").alias("length"), too_long.alias("_error"))


gone = mp.sql(
    "SELECT value AS word, 1 AS n, true AS _deleted FROM lines WHERE value LIKE '% %'",
    into=mp.topic("{name}.gone", key="word"), mode="upsert",
)
"""


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_flows_in_python(session: Any, node: ThreadBroker, tmp_path: Path, delivery: str) -> None:
    name = f"words-{delivery}"
    make_topics(node, name)
    content = WORDS.format(name=name, bootstrap=node.bootstrap, delivery=delivery)
    pipeline = mp.load(written(tmp_path, "words.py", content))
    send(node, name, [b"a b", b"b longest"])
    run_once(session, pipeline, tmp_path)

    counted = {row["word"]: row["count"] for row in values_of(session, node, f"{name}.counts")}
    assert counted == {"a": 1, "b": 2, "longest": 1}
    loud = [value for _, value, _ in records_of(session, node, f"{name}.loud")]
    assert sorted(loud) == [b"A", b"B", b"B", b"LONGEST"]
    lengths = records_of(session, node, f"{name}.csv")
    assert sorted(value for _, value, _ in lengths) == [b"a,1", b"b,1", b"b,1"]
    assert lengths[0][0] == b'{"word":"a","length":1}'
    gone = records_of(session, node, f"{name}.gone")
    assert sorted(gone) == [(b"a b", None, {}), (b"b longest", None, {})]


def test_a_bad_record_fails_the_run_with_its_offset(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    make_topics(node, "strict")
    content = (
        f"settings: {{bootstrap.servers: '{node.bootstrap}'}}\n"
        "sources: {strict: {topic: strict, schema: n INT, start: earliest}}\n"
        "steps: {all: {sql: SELECT * FROM strict, into: {topic: strict.out}}}\n"
    )
    send(node, "strict", [{"n": 1}, {"n": "one"}])
    pipeline = mp.load(written(tmp_path, "strict.yaml", content))
    message = "record strict-0 offset 1: the value is not json"
    with pytest.raises(mp.MoldauError, match=message):
        run_once(session, pipeline, tmp_path)
    assert values_of(session, node, "strict.out") == []
    with pytest.raises(mp.MoldauError, match=f"^strict: {message}") as caught:
        replay(session, renamed(pipeline, ".again"), None, None)
    assert "\n" not in str(caught.value)


RAISES = """\
import moldau.pipelines as mp
from pyspark.sql import functions as sql

settings = mp.pipeline("raises", settings={{"bootstrap.servers": "{bootstrap}"}})
raises = mp.topic("raises", format=mp.text(), start="earliest")


@sql.udf("string")
def known(user):
    raise ValueError(f"no such user: {{user}}")


@mp.flow(into=mp.topic("raises.out"))
def out(raises):
    return raises.select(known("value").alias("user"))
"""


def test_exceptions_of_user_functions_are_reported(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    make_topics(node, "raises")
    send(node, "raises", [b"libuse"])
    path = written(tmp_path, "raises.py", RAISES.format(bootstrap=node.bootstrap))
    with pytest.raises(mp.MoldauError) as caught:
        run_once(session, mp.load(path), tmp_path)
    assert str(caught.value) == (
        f"raises.raises: {path}:10: in known: ValueError: no such user: libuse; "
        "row {'value': 'libuse'}"
    )


def test_files_become_records(session: Any, node: ThreadBroker, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    written(tmp_path / "in", "one.csv", "1,a\n2,b\n")
    content = (
        f"settings: {{bootstrap.servers: '{node.bootstrap}'}}\n"
        "sources: {rows: {files: in, format: csv, schema: 'n INT, word STRING'}}\n"
        "steps: {all: {sql: SELECT * FROM rows, into: {topic: from.files, key: word}}}\n"
    )
    pipeline = mp.load(written(tmp_path, "files.yaml", content))
    run_once(session, pipeline, tmp_path)
    written(tmp_path / "in", "two.csv", "3,c\n")
    run_once(session, pipeline, tmp_path)
    assert sorted(row["n"] for row in values_of(session, node, "from.files")) == [1, 2, 3]


def test_a_flow_whose_state_has_changed_is_refused(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    make_topics(node, "changed")
    content = (
        f"settings: {{bootstrap.servers: '{node.bootstrap}'}}\n"
        "sources: {numbers: {topic: changed, schema: n INT, start: earliest}}\n"
        "steps: {sums: {sql: 'SELECT n, count(*) c FROM numbers GROUP BY n', mode: upsert,\n"
        "        into: {topic: changed.sums, key: n}}}\n"
    )
    send(node, "changed", [{"n": 1}])
    run_once(session, mp.load(written(tmp_path, "changed.yaml", content)), tmp_path)
    run_once(session, mp.load(written(tmp_path, "changed.yaml", content)), tmp_path)
    other = written(tmp_path, "changed.yaml", content.replace("count(*) c", "count(*) c, sum(n) s"))
    with pytest.raises(mp.MoldauError, match=r"changed\.yaml:3:15: 'sums' has changed the state"):
        run_once(session, mp.load(other), tmp_path)
    assert [row["c"] for row in values_of(session, node, "changed.sums")] == [1]
