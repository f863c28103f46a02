"""A run is killed between and within batches; the next resumes, and each row is written once."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pipelines.at_work import make_topics, values_of
from pipelines.killing import has_reached, started
from pipelines.pipeline_files import written
from pyiceberg.catalog import load_catalog
from support.waiting import wait_at_random, wait_for

from moldau import Producer
from moldau.pipelines.run.run_folder import RunFolder
from moldau.testing import ThreadBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 800
KILLS = 1
BATCH = 100
WAIT_S = 400.0
PIPELINE = """\
name: killed
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  numbers: {{topic: killed, schema: n BIGINT, start: earliest, max_offsets_per_trigger: 100}}
steps:
  copied: {{sql: SELECT n FROM numbers, into: {{topic: killed.copied, key: n}}}}
  lake: {{sql: SELECT n FROM numbers, into: {{table: lake}}}}
  delta: {{sql: SELECT n FROM numbers, into: {{table: delta, format: delta}}}}
  iceberg: {{sql: SELECT n FROM numbers, into: {{table: iceberg, format: iceberg}}}}
  counted:
    sql: SELECT n % 10 AS rest, count(*) AS times FROM numbers GROUP BY n % 10
    mode: upsert
    into: {{topic: killed.counted, key: rest}}
"""


def test_rows_are_written_once_although_runs_are_killed(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    make_topics(node, "killed")
    with Producer(node.bootstrap) as producer:
        for number in range(ROWS):
            producer.send("killed", json.dumps({"n": number}).encode())
    path = written(tmp_path, "killed.yaml", PIPELINE.format(bootstrap=node.bootstrap))
    folder = RunFolder(tmp_path / ".moldau" / "killed")
    for kill in range(KILLS):
        with started(path) as running:
            wait_for(has_reached(1 + kill, folder, running), "batches", WAIT_S)
            # Somewhere within a batch.
            wait_at_random(Random(), 0.3)
            assert running.poll() is None, (tmp_path / "errors").read_text()[-3000:]
    with started(path, "--once") as last:
        assert last.wait(WAIT_S) == 0, (tmp_path / "errors").read_text()[-3000:]
    assert len(list((folder.path / "numbers" / "commits").glob("?"))) == ROWS // BATCH

    everything = list(range(ROWS))
    assert sorted(row["n"] for row in values_of(session, node, "killed.copied")) == everything
    lake = ds.dataset(tmp_path / "lake").to_table()["n"].to_pylist()
    assert sorted(lake) == everything
    delta = DeltaTable(tmp_path / "delta").to_pyarrow_table()["n"].to_pylist()
    assert sorted(delta) == everything
    catalog = load_catalog("moldau", type="sql", uri=f"sqlite:///{tmp_path}/iceberg.db")
    table = catalog.load_table("default.iceberg")
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == everything
    assert len(table.snapshots()) == ROWS // BATCH
    counted = {row["rest"]: row["times"] for row in values_of(session, node, "killed.counted")}
    assert counted == dict.fromkeys(range(10), ROWS // 10)
