"""The example pipelines: their own tests pass, and each of them runs. (Those with PostgreSQL run in
test_postgres_tables.py, orders.yaml in test_demo_at_work.py.)
"""

from pathlib import Path
from typing import Any

import pytest
from pipelines.at_work import make_topics, records_of, run_once, send, values_of
from pipelines.pipeline_files import EXAMPLES, example_here

import moldau.pipelines as mp
from moldau.pipelines.compile.examples import try_example
from moldau.testing import ThreadBroker, broker

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.*")), ids=lambda path: path.name)
def test_the_tests_in_the_examples_pass(session: Any, path: Path) -> None:
    pipeline = mp.load(path)
    assert pipeline.examples
    for example in pipeline.examples:
        assert try_example(session, pipeline, example).problems == ()


def test_the_example_of_checks_and_lookups_runs(session: Any, tmp_path: Path) -> None:
    users = session.createDataFrame([("ada", "GB")], "user STRING, country STRING")
    users.write.parquet(str(tmp_path / "lake" / "users"))
    with broker() as node:
        assert isinstance(node, ThreadBroker)
        make_topics(node, "orders")
        orders: list[Any] = [
            {"id": 1, "user": "ada", "amount": 2000.0},
            {"id": 2, "user": "ada", "amount": -5.0},
            {"id": 3, "user": "eve", "amount": 20.0},
            {"id": 4, "user": "ada", "amount": 5000000.0},
            b"no order",
        ]
        send(node, "orders", orders)
        places = {"127.0.0.1:9092": node.bootstrap}
        run_once(session, example_here("checked_orders.yaml", tmp_path, places), tmp_path)
        assert sorted(row["id"] for row in values_of(session, node, "orders.shipped")) == [1, 4]
        letters = [headers for _, _, headers in records_of(session, node, "orders.dlq")]
    assert sorted(one["__dlq.error"].split(":")[0] for one in letters) == [
        "expectation amount_positive fails",
        "expectation believable fails",
        "the value is not json of the columns id BIGINT, user STRING, amount DOUBLE",
    ]
    rows = session.read.parquet(str(tmp_path / "lake" / "large"))
    assert [row.asDict() for row in rows.select("id", "country", "amount").collect()] == [
        {"id": 1, "country": "GB", "amount": 2000.0}
    ]


def test_the_example_of_orders_in_python_runs(session: Any, tmp_path: Path) -> None:
    with broker() as node:
        assert isinstance(node, ThreadBroker)
        make_topics(node, "orders")
        orders: list[Any] = [
            {"id": 1, "user": "Ada", "amount": 500, "ts": "2026-11-15T10:00:00Z"},
            {"id": 2, "user": "ada", "amount": 5, "ts": "2026-11-15T10:00:30Z"},
            b"no order",
        ]
        send(node, "orders", orders)
        places = {"127.0.0.1:9092": node.bootstrap}
        run_once(session, example_here("orders.py", tmp_path, places), tmp_path)
        assert [row["id"] for row in values_of(session, node, "orders.big")] == [1]
        sums = [(row["user"], row["total"]) for row in values_of(session, node, "orders.per_user")]
        assert sums == [("ada", 505.0)]
        assert len(records_of(session, node, "orders.dlq")) == 1
    assert session.read.parquet(str(tmp_path / "lake" / "orders")).count() == 2


def test_the_example_of_counted_words_runs(session: Any, tmp_path: Path) -> None:
    with broker() as node:
        assert isinstance(node, ThreadBroker)
        make_topics(node, "lines")
        send(node, "lines", [b"The river", b"the sea"])
        places = {"127.0.0.1:9092": node.bootstrap}
        run_once(session, example_here("word_count.py", tmp_path, places), tmp_path)
        found = {row["word"]: row["count"] for row in values_of(session, node, "word.counts")}
    assert found == {"the": 2, "river": 1, "sea": 1}
