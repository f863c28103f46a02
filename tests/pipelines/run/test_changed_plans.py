"""A checkpoint is only resumed with the plan that created it; after a failed batch, with a
corrected one.
"""

from pathlib import Path
from typing import Any

import pytest
from pipelines.at_work import make_topics, run_once, send, values_of
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau.pipelines.compile.checking import check_plans
from moldau.pipelines.run.run_folder import RunFolder
from moldau.testing import ThreadBroker

pytestmark = pytest.mark.spark

PLAN = """\
name: plans
settings: {{bootstrap.servers: "{bootstrap}"}}
sources:
  left: {{topic: plans.left, schema: "n INT, ts TIMESTAMP", start: earliest}}
  right: {{topic: plans.right, schema: "n INT, ts TIMESTAMP, m INT", start: earliest}}
steps:
  copied: {{sql: SELECT n FROM left, into: {{topic: plans.copied}}}}
  lake: {{sql: SELECT n FROM left, into: {{table: lake}}}}
  sums:
    sql: SELECT n, count(*) AS times FROM left GROUP BY n
    mode: upsert
    into: {{topic: plans.sums, key: n}}
  both:
    sql: >
      SELECT l.n FROM left WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS l
      JOIN right WATERMARK ts DELAY OF INTERVAL 1 MINUTE AS r ON l.n = r.n AND l.ts = r.ts
    into: {{topic: plans.both}}
"""
WAYS_OUT = "start again with moldau pipeline reset, or use another --checkpoint"
CHANGES = {
    "state": ("count(*) AS times", "sum(n) AS times", "'sums' has changed the state that it keeps"),
    "type of the state": (
        'schema: "n INT, ts TIMESTAMP", start: earliest}\n  right',
        'schema: "n BIGINT, ts TIMESTAMP", start: earliest}\n  right',
        "'sums' has changed the state that it keeps",
    ),
    "columns of a join": (
        "SELECT l.n FROM",
        "SELECT l.n, r.m FROM",
        "'both' has changed the state",
    ),
    "now stateful": (
        "SELECT n FROM left, into: {topic: plans.copied}",
        "SELECT n FROM left GROUP BY n, mode: upsert, into: {topic: plans.copied, key: n}",
        "'copied' now keeps state or reads several sources",
    ),
    "no longer stateful": (
        "count(*) AS times FROM left GROUP BY n",
        "1 AS times FROM left",
        "'sums' no longer keeps state and reads one source,",
    ),
    "topic of a source": (
        "topic: plans.left",
        "topic: plans.right",
        "'left' was topic 'plans.left' and is topic 'plans.right'",
    ),
    "source added and removed": (
        "times FROM left",
        "times FROM right",
        "'sums' reads other sources than those in its checkpoint: 'left' is gone, 'right' is new",
    ),
    "target topic": (
        "topic: plans.copied",
        "topic: plans.other",
        "'copied' wrote to topic 'plans.copied' and would continue in topic 'plans.other'",
    ),
    "target table": (
        "table: lake",
        "table: pond",
        "pond, which lacks the earlier rows",
    ),
}


def test_another_plan_is_refused_with_the_name_of_the_flow(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    make_topics(node, "plans.left", "plans.right")
    send(node, "plans.left", [{"n": 1}])
    content = PLAN.format(bootstrap=node.bootstrap)
    run_once(session, mp.load(written(tmp_path, "plans.yaml", content)), tmp_path)
    send(node, "plans.left", [{"n": 2}])
    for old, new, message in CHANGES.values():
        assert old in content
        changed = mp.load(written(tmp_path, "plans.yaml", content.replace(old, new)))
        with pytest.raises(mp.MoldauError) as caught:
            run_once(session, changed, tmp_path)
        assert message in str(caught.value)
        assert str(caught.value).startswith(f"{tmp_path}/plans.yaml:")
        assert WAYS_OUT in str(caught.value)
        folder = RunFolder(tmp_path / "checkpoint")
        assert folder.status()["error"] == str(caught.value)
        with pytest.raises(mp.MoldauError) as checked:
            check_plans(session, changed, folder)
        assert str(checked.value) == str(caught.value)
    # None of them has processed anything, and stateless flows may change freely.
    mended = content.replace(
        "SELECT n FROM left, into: {topic", "SELECT n + 10 AS n FROM left, into: {topic"
    )
    run_once(session, mp.load(written(tmp_path, "plans.yaml", mended)), tmp_path)
    assert [row["n"] for row in values_of(session, node, "plans.copied")] == [1, 12]
    assert [row["times"] for row in values_of(session, node, "plans.sums")] == [1, 1]


def test_after_a_failed_batch_a_fixed_pipeline_resumes(
    session: Any, node: ThreadBroker, tmp_path: Path
) -> None:
    make_topics(node, "mended")
    content = (
        f"settings: {{bootstrap.servers: '{node.bootstrap}'}}\n"
        "sources: {mended: {topic: mended, schema: n INT, start: earliest, on_error: fail}}\n"
        "steps: {all: {sql: SELECT n FROM mended, into: {topic: mended.out}}}\n"
    )
    send(node, "mended", [{"n": 1}])
    run_once(session, mp.load(written(tmp_path, "mended.yaml", content)), tmp_path)
    send(node, "mended", [{"n": 2}, b"broken", {"n": 3}])
    folder = RunFolder(tmp_path / "checkpoint")
    for _ in range(2):
        with pytest.raises(mp.MoldauError, match="offset 2: the value is not json"):
            run_once(session, mp.load(tmp_path / "mended.yaml"), tmp_path)
        told = folder.status()
        assert "offset 2: the value is not json" in told["error"]
        assert [one["state"] for one in told["queries"]] == ["failed"]
    mended = content.replace("on_error: fail", "on_error: drop")
    run_once(session, mp.load(written(tmp_path, "mended.yaml", mended)), tmp_path)
    assert [row["n"] for row in values_of(session, node, "mended.out")] == [1, 2, 3]
    assert folder.status()["error"] is None
