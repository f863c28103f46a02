"""A run is killed between its stage and its commit, and after its commit; the server is restarted
during a run. Each row is in the table once.
"""

import json
from pathlib import Path

import psycopg
import pytest
from pipelines.at_work import make_topics
from pipelines.killing import started
from pipelines.pipeline_files import written
from support.postgres_process import PASSWORD, PostgresProcess
from support.waiting import wait_for

from moldau import Producer
from moldau.testing import ThreadBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 300
WAIT_S = 1200.0
PIPELINE = """\
name: {name}
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  numbers: {{topic: {name}, schema: n BIGINT, start: earliest, max_offsets_per_trigger: 100}}
steps:
  first: {{sql: SELECT n FROM numbers, into: {{postgres: {name}_first, url: "{url}"}}}}
  second: {{sql: SELECT n FROM numbers, into: {{postgres: {name}_second, url: "{url}"}}}}
"""


def produce(node: ThreadBroker, topic: str, numbers: range) -> None:
    with Producer(node.bootstrap) as producer:
        for number in numbers:
            producer.send(topic, json.dumps({"n": number}).encode())


def prepared(node: ThreadBroker, postgres: PostgresProcess, folder: Path, name: str) -> Path:
    make_topics(node, name)
    produce(node, name, range(ROWS))
    content = PIPELINE.format(name=name, bootstrap=node.bootstrap, url=postgres.url)
    return written(folder, f"{name}.yaml", content)


def rows_of(postgres: PostgresProcess, table: str) -> list[int]:
    return [row[0] for row in postgres.rows(f"SELECT n FROM {table} ORDER BY n")]


def test_a_run_is_killed_while_a_target_is_committed_and_another_is_not(
    node: ThreadBroker,
    postgres: PostgresProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second table is locked, so its batch is staged but not merged, while the first table is
    committed and Spark has not recorded the end of the batch.
    """
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    path = prepared(node, postgres, tmp_path, "struck")
    postgres.rows("CREATE TABLE struck_second (n bigint)")
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND query LIKE 'INSERT INTO \"struck_second\"%'"
    )
    with psycopg.connect(postgres.url, password=PASSWORD) as holder:
        holder.execute("LOCK TABLE struck_second IN EXCLUSIVE MODE")
        with started(path) as running:
            wait_for(
                lambda: running.poll() is not None or postgres.rows(waiting) == [(1,)],
                "a merge that waits",
                WAIT_S,
            )
            assert running.poll() is None, (tmp_path / "errors").read_text()[-3000:]
        assert rows_of(postgres, "struck_first") == list(range(100))
        assert not list((tmp_path / ".moldau" / "struck" / "numbers" / "commits").glob("?"))
        assert len(postgres.rows("SELECT 1 FROM pg_class WHERE relname LIKE 'moldau_stage%'")) == 1
    with started(path, "--once") as last:
        assert last.wait(WAIT_S) == 0, (tmp_path / "errors").read_text()[-3000:]
    assert rows_of(postgres, "struck_first") == list(range(ROWS))
    assert rows_of(postgres, "struck_second") == list(range(ROWS))
    assert postgres.rows("SELECT 1 FROM pg_class WHERE relname LIKE 'moldau_stage%'") == []


def test_the_server_is_restarted_under_a_run(
    node: ThreadBroker,
    postgres: PostgresProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    path = prepared(node, postgres, tmp_path, "shaken")
    postgres.rows("CREATE TABLE shaken_second (n bigint)")
    with started(path) as running:
        wait_for(
            lambda: running.poll() is not None or len(rows_of(postgres, "shaken_second")) >= 100,
            "the first batch",
            WAIT_S,
        )
        postgres.stop()
        produce(node, "shaken", range(ROWS, ROWS + 100))
        postgres.start()
        wait_for(
            lambda: (
                running.poll() is not None or len(rows_of(postgres, "shaken_second")) >= ROWS + 100
            ),
            "all batches",
            WAIT_S,
        )
        assert running.poll() is None, (tmp_path / "errors").read_text()[-3000:]
    assert rows_of(postgres, "shaken_first") == list(range(ROWS + 100))
    assert rows_of(postgres, "shaken_second") == list(range(ROWS + 100))
