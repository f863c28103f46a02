"""A query that is added to a pipeline later starts on its own; a flow that becomes a query of its
own is refused.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pipelines.at_work import make_topics, run_once, send, values_of
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau import Admin
from moldau.testing import ThreadBroker
from moldau.types import TopicPartition

pytestmark = pytest.mark.spark

LATER = """\
name: later
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  later: {{topic: later, schema: n INT, start: earliest}}
steps:
  copied: {{sql: SELECT n FROM later, into: {{topic: later.copied}}}}
"""
SUMS = """\
  sums: {sql: SELECT count(*) AS times FROM later, mode: complete, into: {topic: later.sums}}
"""


def test_a_new_stateful_flow_starts_at_the_time_it_was_added(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    """The topic has lost its oldest records and got partitions since the pipeline started."""
    make_topics(node, "later")
    send(node, "later", [{"n": 1}, {"n": 2}])
    content = LATER.format(bootstrap=node.bootstrap)
    run_once(session, mp.load(written(tmp_path, "later.yaml", content)), tmp_path)
    with Admin(node.bootstrap) as admin:
        admin.delete_records({TopicPartition("later", 0): 2})
        admin.create_partitions({"later": 2})
    send(node, "later", [{"n": 3}], key=b"a")
    send(node, "later", [{"n": 4}, {"n": 5}], key=b"b")
    run_once(session, mp.load(written(tmp_path, "later.yaml", content + SUMS)), tmp_path)
    assert sorted(row["n"] for row in values_of(session, node, "later.copied")) == [1, 2, 3, 4, 5]
    assert values_of(session, node, "later.sums") == [{"times": 3}]


def test_a_new_checkpoint_resumes_at_the_group_of_its_query(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    make_topics(node, "grouped")
    content = (
        f"settings: {{bootstrap.servers: '{node.bootstrap}'}}\n"
        "sources: {grouped: {topic: grouped, schema: n INT, start: group}}\n"
        "steps:\n"
        "  sums: {sql: SELECT sum(n) AS total FROM grouped, mode: complete, "
        "into: {topic: grouped.sums}}\n"
    )
    pipeline = mp.load(written(tmp_path, "grouped.yaml", content))
    send(node, "grouped", [{"n": 1}, {"n": 2}])
    run_once(session, pipeline, tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    send(node, "grouped", [{"n": 40}])
    run_once(session, pipeline, tmp_path)
    assert [row["total"] for row in values_of(session, node, "grouped.sums")] == [3, 40]
