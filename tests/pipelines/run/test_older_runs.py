"""Runs that an older version started are resumed: nothing is written twice."""

from pathlib import Path
from typing import Any

import pytest
from pipelines.at_work import make_topics, run_once, send, values_of
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau import Admin
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

COPY = """\
name: older
settings: {{bootstrap.servers: "{bootstrap}"}}
sources: {{numbers: {{topic: older, schema: n INT, start: earliest}}}}
steps: {{copied: {{sql: SELECT n FROM numbers, into: {{topic: older.copied}}}}}}
"""


def test_a_batch_recorded_under_the_old_name_is_recognised(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    make_topics(node, "older")
    send(node, "older", [{"n": n} for n in range(3)])
    pipeline = mp.load(written(tmp_path, "a.yaml", COPY.format(bootstrap=node.bootstrap)))
    run_once(session, pipeline, tmp_path)
    new, old = "moldau.pipeline.older.numbers", "older.numbers"
    with Admin(node.bootstrap) as admin:
        committed = admin.list_group_offsets([new])[new]
        assert isinstance(committed, dict)
        assert set(admin.alter_group_offsets(old, committed).values()) == {None}
        assert admin.delete_groups([new]) == {new: None}
    # As if the run had been killed between its transaction and Spark's own record of the batch.
    checkpoint = tmp_path / "checkpoint" / "numbers"
    for note in (checkpoint / "commits").glob("*0*"):
        note.unlink()
    send(node, "older", [{"n": 3}])
    run_once(session, pipeline, tmp_path)
    assert [row["n"] for row in values_of(session, node, "older.copied")] == [0, 1, 2, 3]
