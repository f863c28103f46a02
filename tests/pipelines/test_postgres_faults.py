"""The server is restarted under a run: each row is there once."""

import json
from pathlib import Path

import pytest
from pipelines.at_work import make_topics
from pipelines.killing import started
from pipelines.pipeline_files import written
from postgres_process import PASSWORD, PostgresProcess
from running_node import wait_for

from moldau import Producer
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

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
